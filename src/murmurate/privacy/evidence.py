"""The recursion of moment leakage: propagate evidence from one moment to the next (proof: `leakage.md`).

Probabilities and evidence are logarithms: an impossible state is exactly -inf. The kind of household is the last axis.
"""

from __future__ import annotations

from math import inf

import numpy as np

from murmurate.units import BoolArray, FloatArray

LEAKAGE_SLACK = 1e-12  # least rounding up of the leakage of an infinite stream
_STEP_ROUNDING_ERROR = 2.0**-48  # generous bound for one step of a recursion on values of size 1
OUTWARD_SIGNS = np.array([[-1.0], [1.0]])  # [lo and hi, kind]


def propagate_evidence(conditional: FloatArray, a: FloatArray) -> FloatArray:
    """Convert evidence `a` about a neighbour to evidence about S: phi = log[(1 - p1 + p1 e^a) / (1 - p0 + p0 e^a)].

    p1 and p0 are P(neighbour = 1 | S = 1) and P(neighbour = 1 | S = 0), from the conditional distribution in logarithms
    [state, neighbour, kind]; `a` is a log-likelihood ratio. If the neighbour equals S, the result is `a`. If it is
    independent of S, the result is 0.

    >>> p1, p0 = np.array([0.3, 0.9]), np.array([0.3, 0.1])
    >>> propagate_evidence(np.log([[1 - p0, p0], [1 - p1, p1]]), np.array(2.0)).round(4).tolist()
    [0.0, 1.4155]
    """
    return np.asarray(
        np.logaddexp(conditional[1, 0], conditional[1, 1] + a) - np.logaddexp(conditional[0, 0], conditional[0, 1] + a)
    )


def chain_product(log_matrices: FloatArray) -> FloatArray:
    """Return the matrix product of [step, .., from, to, kind] over the steps, in logarithms."""
    while len(log_matrices) > 1:
        left, right, odd = log_matrices[:-1:2], log_matrices[1::2], log_matrices[len(log_matrices) // 2 * 2 :]
        paths = (left[..., :, s, None, :] + right[..., None, s, :, :] for s in (0, 1))
        log_matrices = np.concatenate([np.logaddexp(*paths), odd])
    return np.asarray(log_matrices[0])


def evidence_ranges(conditionals: FloatArray, ends: FloatArray, start: FloatArray, steps: int) -> FloatArray:
    """Return ranges [step, lo and hi, kind]: out[0] = start, out[i] = sorted(phi(q[i], out[i-1] + ends[i-1]))."""
    out = np.empty((steps, *ends.shape[1:]))
    out[0] = start
    for i in range(1, steps):
        propagated = propagate_evidence(conditionals[i % len(conditionals)], out[i - 1] + ends[i - 1])
        out[i, 0], out[i, 1] = np.minimum(propagated[0], propagated[1]), np.maximum(propagated[0], propagated[1])
    return out


def rounding_bound(intervals: int, evidence: FloatArray) -> FloatArray:
    """Return an upper bound on the rounding error of evidence over `intervals` intervals."""
    return np.asarray(intervals * _STEP_ROUNDING_ERROR * (1 + np.abs(evidence)))


def periodic_evidence(conditionals: FloatArray, ends: FloatArray, moving: BoolArray) -> FloatArray:
    """Return the limit of evidence [interval, lo and hi, kind] that starts at 0, over infinitely many days.

    The result is rounded outward. If one day does not widen a range that contains 0, the range contains the limit. The
    search starts just outside the fixed point and widens. The result is infinite if no such range is found."""
    start = np.where(moving, _fixed_point(conditionals, ends), 0.0)
    widen = np.where(moving, LEAKAGE_SLACK + 4 * rounding_bound(len(ends), start).max(axis=0), 0.0)
    for _ in range(40):
        begin = start + OUTWARD_SIGNS * widen
        out = evidence_ranges(conditionals, ends, begin, len(ends) + 1)
        contained = ~moving | (OUTWARD_SIGNS * (begin - out[-1]) >= rounding_bound(len(ends), begin)).all(axis=0)
        if contained.all():
            break
        widen = np.where(contained, widen, 4 * widen)
    return np.where(contained, out[:-1], inf * OUTWARD_SIGNS)


def _fixed_point(conditionals: FloatArray, ends: FloatArray) -> FloatArray:
    """Return the fixed point of evidence [lo and hi, kind]: log v_1/v_0 of a Perron vector v.

    The matrix is the product of conditional distributions and likelihoods over two days. A falling phi exchanges lo and
    hi, and one day may do so an odd number of times."""
    falls = np.tile(np.roll(conditionals[:, 1, 1] < conditionals[:, 0, 1], -1, axis=0), (2, 1))
    turned = np.asarray((np.cumsum(falls, axis=0) - falls) % 2, np.bool_)
    ends = np.tile(ends, (2, 1, 1))
    weighted = np.tile(np.roll(conditionals, -1, axis=0), (2, 1, 1, 1))[:, None].repeat(2, axis=1)
    weighted[:, :, :, 1] += np.where(turned[:, None], ends[:, ::-1], ends)[:, :, None]
    k = chain_product(weighted[::-1])
    with np.errstate(invalid="ignore"):
        pull = np.minimum((k[:, 1, 1] + k[:, 0, 0] - k[:, 0, 1] - k[:, 1, 0]) / 2, 300)
        gap = np.clip((k[:, 1, 1] - k[:, 0, 0]) / 2, -300, 300)
        return np.asarray(np.arcsinh(np.exp(pull) * np.sinh(gap)) + (k[:, 1, 0] - k[:, 0, 1]) / 2)
