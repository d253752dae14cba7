"""How evidence about one moment becomes evidence about another: the recursion of moment leakage (proof: `leakage.md`).

Laws and evidence are logarithms: an impossible state is exactly -inf. The kind of household is the last axis.
"""

from __future__ import annotations

from math import inf

import numpy as np

from murmurate.quantities import BoolArray, FloatArray

SLACK = 1e-12  # by which an endless leakage is rounded up, at least
_ROUNDING = 2.0**-48  # of one step of a recursion on values of size 1, many times what happens
OUTWARD = np.array([[-1.0], [1.0]])  # [lo and hi, kind]


def carry(law: FloatArray, a: FloatArray) -> FloatArray:
    """`leakage.phi` on a law [state, neighbour, kind] in logarithms."""
    return np.asarray(np.logaddexp(law[1, 0], law[1, 1] + a) - np.logaddexp(law[0, 0], law[0, 1] + a))


def chain_product(laws: FloatArray) -> FloatArray:
    """The matrix product laws[0] laws[1] .. of [step, .., from, to, kind], in logarithms."""
    while len(laws) > 1:
        left, right, odd = laws[:-1:2], laws[1::2], laws[len(laws) // 2 * 2 :]
        paths = (left[..., :, s, None, :] + right[..., None, s, :, :] for s in (0, 1))
        laws = np.concatenate([np.logaddexp(*paths), odd])
    return np.asarray(laws[0])


def evidence_ranges(laws: FloatArray, ends: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """Ranges [step, lo and hi, kind]: out[0] = start, out[i] = sorted(phi(laws[i], out[i-1] + ends[i-1]))."""
    out = np.empty((steps, *ends.shape[1:]))
    out[0] = start
    for i in range(1, steps):
        found = carry(laws[i % len(laws)], out[i - 1] + ends[i - 1])
        out[i, 0], out[i, 1] = np.minimum(found[0], found[1]), np.maximum(found[0], found[1])
    return out


def rounding(intervals: int, evidence: FloatArray) -> FloatArray:
    """More than rounding can do to evidence in the course of so many intervals."""
    return np.asarray(intervals * _ROUNDING * (1 + np.abs(evidence)))


def periodic_evidence(laws: FloatArray, ends: FloatArray, moving: BoolArray) -> FloatArray:
    """What evidence [interval, lo and hi, kind] grows to from 0 over endless days, rounded outward.

    A range that a day does not widen holds all that grows from 0. It is sought just outside the fixed point, then
    further out; infinite where there is none."""
    start = np.where(moving, _fixed_point(laws, ends), 0.0)
    widen = np.where(moving, SLACK + 4 * rounding(len(ends), start).max(axis=0), 0.0)
    for _ in range(40):
        begin = start + OUTWARD * widen
        out = evidence_ranges(laws, ends, begin, len(ends) + 1)
        kept = ~moving | (OUTWARD * (begin - out[-1]) >= rounding(len(ends), begin)).all(axis=0)
        if kept.all():
            break
        widen = np.where(kept, widen, 4 * widen)
    return np.where(kept, out[:-1], inf * OUTWARD)


def _fixed_point(laws: FloatArray, ends: FloatArray) -> FloatArray:
    """Where evidence [lo and hi, kind] settles: log v_1/v_0 of the Perron vector v of laws times likelihoods.

    Of two days of them: a falling phi exchanges lo and hi, and a day may do so an odd number of times."""
    falls = np.tile(np.roll(laws[:, 1, 1] < laws[:, 0, 1], -1, axis=0), (2, 1))
    turned = np.asarray((np.cumsum(falls, axis=0) - falls) % 2, np.bool_)
    ends = np.tile(ends, (2, 1, 1))
    weighted = np.tile(np.roll(laws, -1, axis=0), (2, 1, 1, 1))[:, None].repeat(2, axis=1)
    weighted[:, :, :, 1] += np.where(turned[:, None], ends[:, ::-1], ends)[:, :, None]
    k = chain_product(weighted[::-1])
    with np.errstate(invalid="ignore"):
        pull = np.minimum((k[:, 1, 1] + k[:, 0, 0] - k[:, 0, 1] - k[:, 1, 0]) / 2, 300)
        gap = np.clip((k[:, 1, 1] - k[:, 0, 0]) / 2, -300, 300)
        return np.asarray(np.arcsinh(np.exp(pull) * np.sinh(gap)) + (k[:, 1, 0] - k[:, 0, 1]) / 2)
