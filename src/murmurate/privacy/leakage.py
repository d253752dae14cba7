"""Moment leakage: the evidence of all releases, past and future, about one moment of a household (`leakage.md`).

The releases r depend on the occupancy S^t of a household, a Markov chain on {0, 1}. The leakage of moment t is the
largest change of the log odds of S^t,

    leakage[t] = sup over r of |log p(r | S^t = 1) - log p(r | S^t = 0)|,

without unit (natural logarithms). A release also leaks about nearby moments, because occupancy persists. If the chain
mixes, the leakage of an infinite stream is bounded. All probabilities are logarithms: an impossible state is exactly
-inf, and a possible state is never -inf. The kind of household is the last axis.

The loss of a release bounds |log p(r_t | S^t = 1) / p(r_t | S^t = 0)|. It is one number, or an array [interval] or
[interval, kind] that repeats cyclically.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, lcm
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.units import BoolArray, FloatArray, raise_where

_MAX_TRANSIENT_DAYS = 30  # simulated days after the start; the rest is bounded
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


class ChainDistributions(NamedTuple):
    """A two-state chain conditioned on each moment, in logarithms. A certain moment gets no evidence."""

    belief: FloatArray  # [interval, state, kind] log P(S^t = x)
    backward: FloatArray  # [interval, state, before, kind] log P(S^(t-1) = s | S^t = x)
    forward: FloatArray  # [interval, state, after, kind] log P(S^(t+1) = s | S^t = x)


class SpanLeakage(NamedTuple):
    """The leakage of each moment of a span, or of a day of an infinite stream, with prior and evidence."""

    leakage: FloatArray  # [interval, kind]
    belief: FloatArray  # [interval, state, kind] prior, in logarithms
    past_evidence: FloatArray  # [interval, lo and hi, kind] evidence of everything before the interval
    future_evidence: FloatArray  # [interval, lo and hi, kind] evidence of everything after the interval


def periodic_leakage(chains: OccupancyChains, loss: Any) -> FloatArray:
    """Return the leakage [interval of the day, kind] of an infinite stream, rounded up.

    The prior is the periodic one, the limit of `initial`. The leakage is infinite if both states are possible at the
    start of the day and two days never lead from one to the other. If the loss has another period than the day, the
    first axis is their least common multiple.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> periodic_leakage(lasting, 0.5).round(4).tolist()
    [[3.1193]]
    >>> always_the_same = OccupancyChains.independent(initial=[0.5], arrive=[[0.0]], leave=[[0.0]])
    >>> periodic_leakage(always_the_same, 0.5).tolist()
    [[inf]]
    """
    return periodic_regime(chains, loss_ends(chains, loss)).leakage


def worst_leakage(chains: OccupancyChains, loss: Any) -> float:
    """Return the largest leakage of any moment of an infinite stream with a start, of any kind.

    The first days count too, because `initial` may be far from the periodic prior. They are computed one by one until
    they agree with the periodic days, for at most 30 days. The rest is bounded (`leakage.md`).

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> round(worst_leakage(lasting, 0.5), 4)
    3.1193
    """
    ends = loss_ends(chains, loss)
    regime = periodic_regime(chains, ends)
    periodic, first, past = float(regime.leakage.max()), 0.0, np.zeros(())
    if periodic == inf:
        return inf
    day = chain_product(np.roll(log_transitions(chains, len(ends)), -1, axis=0))
    belief, days = _log(chains.initial), 0
    while (distance := log_odds_distance(belief, regime.belief[0])) > LEAKAGE_SLACK and days < _MAX_TRANSIENT_DAYS:
        belief, days = _next_belief(belief, day), days + 1
    if days:
        days_ends = ends[np.arange(days * len(ends) + 1) % len(ends)]
        leaked, past = leakage_from_start(chains, days_ends, regime.future_evidence[0])
        first = float((leaked + (leaked > 0) * rounding_bound(len(leaked), leaked)).max())
    excess = evidence_excess(past, regime.past_evidence[0])
    return max(first, periodic + excess + 2 * distance if periodic else 0.0)


def epsilon_for_leakage(chains: OccupancyChains, target: float) -> float:
    """Return the largest epsilon of an interval at which no moment leaks more than `target`.

    The leakage at the result was computed. It is rounded down by less than a millionth. Raises `PrivacyError` if no
    epsilon or every epsilon keeps the target.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> round(epsilon_for_leakage(lasting, 3.1193), 4)
    0.5
    """
    if not 0 < target < inf:
        raise PrivacyError("target", target, "must be positive and finite")
    low, high = 0.0, float(target)  # a moment that is not certain leaks at least its epsilon
    max_leakage, min_high = worst_leakage(chains, high), high * LEAKAGE_SLACK
    if max_leakage in {0.0, inf}:
        raise PrivacyError("leakage", max_leakage, "occupancy must be uncertain, and change in the course of days")
    while high - low > 1e-9 * high and high > min_high:
        middle = (low + high) / 2
        keeps = worst_leakage(chains, middle) <= target
        low, high = (middle, high) if keeps else (low, middle)
    if low == 0:
        raise PrivacyError("target", target, "must exceed the leakage of a start this far from the periodic prior")
    return low


def loss_ends(chains: OccupancyChains, loss: Any) -> FloatArray:
    """Check the loss and return the ends of its range over one cycle, [interval, lo and hi, kind]."""
    limit = np.atleast_1d(np.asarray(loss, np.float64))
    raise_where(~((limit >= 0) & (limit < inf)), "loss", limit, "must be 0 or more, and finite", PrivacyError)
    rows = limit[:, None] if limit.ndim == 1 else limit
    intervals = lcm(len(chains.period), len(rows))
    cycle = rows[np.arange(intervals) % len(rows)] * np.ones(chains.initial.shape[-1])
    return np.stack([-cycle, cycle], axis=1)


def _log(probability: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(probability)


def log_transitions(chains: OccupancyChains, intervals: int) -> FloatArray:
    """Return the log transition into each interval [interval, from, to, kind], with normalised rows."""
    if chains.group_size != 1:
        raise ModelError("members", f"groups of {chains.group_size}", "must be single households with one chain each")
    rows = _log(chains.transition)
    rows -= np.logaddexp(rows[:, :, :1], rows[:, :, 1:])
    return np.asarray(rows[chains.period[np.arange(intervals) % len(chains.period)]])


def _next_belief(belief: FloatArray, step: FloatArray) -> FloatArray:
    moved: FloatArray = np.logaddexp(belief[0] + step[0], belief[1] + step[1])
    return np.asarray(moved - np.logaddexp(moved[0], moved[1]))


def is_certain(belief: FloatArray) -> BoolArray:
    return np.asarray((belief == -inf).any(axis=-2))


def chain_distributions(first: FloatArray, steps: FloatArray) -> ChainDistributions:
    """Return the distributions from the first belief [state, kind] on. The first past and last future wrap around."""
    belief = np.empty((len(steps), *first.shape))
    for t, step in enumerate(steps):
        belief[t] = _next_belief(belief[t - 1], step) if t else first
    joint = (np.roll(belief, 1, axis=0)[:, :, None] + steps).swapaxes(1, 2)
    total = np.logaddexp(joint[:, :, :1], joint[:, :, 1:])
    past = joint - np.where(total > -inf, total, 0)
    future = np.roll(steps, -1, axis=0)
    # an impossible state gets the distribution of the possible one, so that its neighbours give no evidence
    past = np.where(total == -inf, past[:, ::-1], past)
    return ChainDistributions(belief, past, np.where((belief == -inf)[:, :, None], future[:, ::-1], future))


def with_periodic_prior(chains: OccupancyChains) -> OccupancyChains:
    """Return the chains with the periodic prior as `initial`, so that a stream may begin at any interval of the day.

    A stream that begins at interval t of the day has the prior `periodic_distributions(..)[0].belief[t]`: the belief of
    an attacker who knows the habits. Chains without a periodic regime keep their `initial`.
    """
    distributions, never = periodic_distributions(chains, len(chains.period))
    return replace(chains, initial=np.where(never, chains.initial, np.exp(distributions.belief[0])))


def periodic_distributions(chains: OccupancyChains, intervals: int) -> tuple[ChainDistributions, BoolArray]:
    """Return the chain in its periodic regime over a cycle of `intervals`, and which kinds have none [kind].

    A kind has none if both states stay possible although two cycles never lead from one to the other."""
    steps = log_transitions(chains, intervals)
    day = chain_product(np.roll(steps, -1, axis=0))  # from interval 0 to interval 0
    twice = chain_product(np.stack([day, day]))
    start = _log(chains.initial)
    for _ in range(3):  # the possible states at the start of the day are constant after two days
        start = _next_belief(start, day)
    mixing = (twice[0, 1] > -inf) & (twice[1, 0] > -inf)
    flux = np.where(mixing, np.stack([twice[1, 0], twice[0, 1]]), 0.0)
    settled = flux - np.logaddexp(flux[0], flux[1])
    both = ~is_certain(start)
    return chain_distributions(np.where(both & mixing, settled, start), steps), both & ~mixing


def leakage_from_start(
    chains: OccupancyChains, ends: FloatArray, future_evidence: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the leakage [interval, kind] from `initial` on, not rounded, and the past evidence of the last interval.

    Raises `ModelError` for groups of more than one household.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> ends = np.tile(loss_ends(lasting, 0.5), (3, 1, 1))
    >>> leakage_from_start(lasting, ends, np.zeros(()))[0][:, 0].round(4).tolist()
    [1.2004, 1.294, 1.2004]
    """
    belief, steps = _log(chains.initial / chains.initial.sum(axis=0)), log_transitions(chains, len(ends))
    span = _unrounded_leakage(belief, steps, ends, np.zeros(()), future_evidence)
    return span.leakage, span.past_evidence[-1]


def span_leakage(
    belief: FloatArray, steps: FloatArray, ends: FloatArray, *, past_evidence: FloatArray, future_evidence: FloatArray
) -> SpanLeakage:
    """Return the leakage of each moment of a span of intervals, rounded up.

    `belief` [state, kind] is the prior of the first interval and `steps` [interval, from, to, kind] are the
    transitions, both in logarithms. `ends` [interval, lo and hi, kind] are the losses. `past_evidence` is the evidence
    from before the first interval, `future_evidence` that from after the last interval.
    """
    span = _unrounded_leakage(belief, steps, ends, past_evidence, future_evidence)
    rounded = np.where(is_certain(span.belief), 0.0, span.leakage + rounding_bound(len(ends), span.leakage))
    return span._replace(leakage=rounded)


def _unrounded_leakage(
    belief: FloatArray, steps: FloatArray, ends: FloatArray, past_evidence: FloatArray, future_evidence: FloatArray
) -> SpanLeakage:
    """Return the leakage of a span.

    B, F are the evidence [lo, hi] of past and future, q and g the distributions of the neighbours
    (`ChainDistributions.backward` and `.forward`), and phi is `propagate_evidence`:

        B[0]   = past_evidence,    B[t] = sorted(phi(q_t, B[t-1] + ends[t-1]))
        F[T-1] = future_evidence,  F[t] = sorted(phi(g_t, F[t+1] + ends[t+1]))
        leakage[t] = max(B_hi[t] + hi[t] + F_hi[t], -(B_lo[t] + lo[t] + F_lo[t])), 0 where S^t is certain
    """
    distributions = chain_distributions(belief, steps)
    before = evidence_ranges(distributions.backward, ends, past_evidence, len(ends))
    after = evidence_ranges(distributions.forward[::-1], ends[::-1], future_evidence, len(ends))[::-1]
    leaked = (OUTWARD_SIGNS * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(distributions.belief), 0.0, leaked)
    return SpanLeakage(leaked, distributions.belief, before, after)


def periodic_regime(chains: OccupancyChains, ends: FloatArray) -> SpanLeakage:
    """Return the periodic regime under losses `ends` [interval, lo and hi, kind], rounded up."""
    distributions, never = periodic_distributions(chains, len(ends))
    moving = ~never & ~is_certain(distributions.belief[0])
    backward = -np.arange(len(ends)) % len(ends)
    before = periodic_evidence(distributions.backward, ends, moving)
    after = periodic_evidence(distributions.forward[backward], ends[backward], moving)[backward]
    leaked = (OUTWARD_SIGNS * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(distributions.belief), 0.0, leaked + rounding_bound(len(ends), leaked))
    leaked = np.where(never & (ends != 0).any(axis=(0, 1)), inf, leaked)
    return SpanLeakage(leaked, distributions.belief, before, after)


def evidence_excess(evidence: FloatArray, reference: FloatArray) -> float:
    """Return how far a range of evidence [lo and hi, kind] extends beyond a reference range."""
    return float((OUTWARD_SIGNS * (evidence - reference)).clip(0).max())


def log_odds_distance(belief: FloatArray, reference: FloatArray) -> float:
    """Return the largest difference in log odds between two beliefs [state, kind]."""
    odds, reference_odds = belief[1] - belief[0], reference[1] - reference[0]
    return float(np.abs(np.subtract(odds, reference_odds, out=np.zeros_like(odds), where=odds != reference_odds)).max())
