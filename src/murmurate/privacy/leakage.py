"""Moment leakage: the evidence of all releases, past and future, about one moment of a household (`leakage.md`).

The releases r depend on the occupancy S^t of a household, a Markov chain on {0, 1}. The leakage of moment t is the
largest change of the log odds of S^t,

    leakage[t] = sup over r of |log p(r | S^t = 1) - log p(r | S^t = 0)|,

without unit (natural logarithms). A release also leaks about nearby moments, because occupancy persists. If the chain
mixes, the leakage of an infinite stream is bounded. All probabilities are logarithms: an impossible state is exactly
-inf, and a possible state is never -inf. The kind of household is the last axis.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, lcm
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.household.occupancy import ModelClass, OccupancyChains
from murmurate.privacy.evidence import (
    LEAKAGE_SLACK,
    OUTWARD_SIGNS,
    chain_product,
    evidence_ranges,
    periodic_evidence,
    rounding_bound,
)
from murmurate.units import BoolArray, FloatArray, raise_where

_MAX_TRANSIENT_DAYS = 30  # simulated days after the start; the rest is bounded


class ReleaseLoss(NamedTuple):
    """The loss of each release: log p(r_t | S^t = 1) / p(r_t | S^t = 0) lies in [-minus, plus]. It repeats cyclically.

    >>> ReleaseLoss.symmetric([0.5, 0.1]).minus.tolist()
    [0.5, 0.1]
    """

    minus: FloatArray  # [interval] or [interval, kind]; one number for all intervals
    plus: FloatArray  # likewise

    @classmethod
    def symmetric(cls, epsilon: Any) -> ReleaseLoss:
        """Return the loss of releases that keep the paper's promise epsilon in each interval."""
        loss = np.asarray(epsilon, np.float64)
        return cls(loss, loss)


class ChainDistributions(NamedTuple):
    """A two-state chain conditioned on each moment, in logarithms. A certain moment gets no evidence."""

    belief: FloatArray  # [interval, state, kind] log P(S^t = x)
    backward: FloatArray  # [interval, state, before, kind] log P(S^(t-1) = s | S^t = x)
    forward: FloatArray  # [interval, state, after, kind] log P(S^(t+1) = s | S^t = x)


class PeriodicRegime(NamedTuple):
    """An infinite stream of equal days: leakage, distributions, and the evidence of past and future at each moment."""

    leakage: FloatArray  # [interval of the day, kind]
    distributions: ChainDistributions
    past_evidence: FloatArray  # [interval of the day, lo and hi, kind]
    future_evidence: FloatArray  # likewise


def phi(p1: Any, p0: Any, a: Any) -> FloatArray:
    """Convert evidence `a` about a neighbour to evidence about S: log[(1 - p1 + p1 e^a) / (1 - p0 + p0 e^a)].

    `p1` and `p0` are P(neighbour = 1 | S = 1) and P(neighbour = 1 | S = 0); `a` is a log-likelihood ratio. If the
    neighbour equals S, the result is `a`. If it is independent of S, the result is 0.

    >>> phi([1.0, 0.3, 0.9], [0.0, 0.3, 0.1], 2.0).round(4).tolist()
    [2.0, 0.0, 1.4155]
    """
    ones, zeros, evidence = (np.asarray(v, np.float64) for v in (p1, p0, a))
    top, bottom = (np.logaddexp(_log(1 - p), _log(p) + evidence) for p in (ones, zeros))
    return np.asarray(top - bottom)


def moment_leakage(chains: OccupancyChains, loss: ReleaseLoss, horizon: int) -> FloatArray:
    """Leakage [interval, kind] of each moment when exactly `horizon` intervals are released, the first with `initial`.

    B, F the evidence [lo, hi] of past and future, q and g the laws of the neighbours (`Laws.backward`, `Laws.forward`):

        B[0]   = 0,  B[t] = sorted(phi(q_t, B_lo[t-1] - minus[t-1]), phi(q_t, B_hi[t-1] + plus[t-1]))
        F[T-1] = 0,  F[t] = sorted(phi(g_t, F_lo[t+1] - minus[t+1]), phi(g_t, F_hi[t+1] + plus[t+1]))
        leakage[t] = max(B_hi[t] + plus[t] + F_hi[t], -(B_lo[t] - minus[t] + F_lo[t])), 0 where S^t is certain

    Raises `ModelError` for groups of more than one household, `PrivacyError` for a loss that is negative or infinite.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> moment_leakage(lasting, ReleaseLoss.symmetric(0.5), 3)[:, 0].round(4).tolist()
    [1.2004, 1.294, 1.2004]
    """
    if horizon < 1:
        raise ModelError("horizon", horizon, "must be at least 1 interval")
    return _leakage_from_start(chains, loss_ends(chains, loss, horizon), np.zeros(()))[0]


def periodic_leakage(chains: OccupancyChains, loss: ReleaseLoss) -> FloatArray:
    """Return the leakage [interval of the day, kind] of an infinite stream, rounded up.

    The prior is the periodic one, the limit of `initial`. The leakage is infinite if both states are possible at the
    start of the day and two days never lead from one to the other. If the loss has another period than the day, the
    first axis is their least common multiple.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> periodic_leakage(lasting, ReleaseLoss.symmetric(0.5)).round(4).tolist()
    [[3.1193]]
    >>> always_the_same = OccupancyChains.independent(initial=[0.5], arrive=[[0.0]], leave=[[0.0]])
    >>> periodic_leakage(always_the_same, ReleaseLoss.symmetric(0.5)).tolist()
    [[inf]]
    """
    return periodic_regime(chains, loss_ends(chains, loss)).leakage


def worst_leakage(model_class: ModelClass, loss: ReleaseLoss) -> float:
    """Return the largest leakage of any moment of an infinite stream with a start, of any kind in any model.

    The first days count too, because `initial` may be far from the periodic prior. They are computed one by one until
    they agree with the periodic days, for at most 30 days. The rest is bounded (`leakage.md`).

    >>> from murmurate.household.occupancy import OccupancyModel
    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> round(worst_leakage(ModelClass(models=(OccupancyModel(groups=(lasting,)),)), ReleaseLoss.symmetric(0.5)), 4)
    3.1193
    """
    return max(_max_chain_leakage(chains, loss) for model in model_class.models for chains in model.groups)


def epsilon_for_leakage(chains_or_class: OccupancyChains | ModelClass, target: float, shape: Any = None) -> FloatArray:
    """Return the largest epsilon [interval] of the form s * `shape` at which no moment leaks more than `target`.

    Without a shape, one epsilon holds for all intervals. The leakage at the result was computed. It is rounded down by
    less than a millionth. Raises `PrivacyError` if no epsilon or every epsilon keeps the target.

    >>> lasting = OccupancyChains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> epsilon_for_leakage(lasting, 3.1193).round(4).tolist()
    [0.5]
    """
    profile = np.ones(1) if shape is None else np.asarray(shape, np.float64)
    for name, value in (("shape", profile), ("target", np.array([target]))):
        raise_where(~((value > 0) & (value < inf)), name, value, "must be positive and finite", PrivacyError)

    def leaked(scale: float) -> float:
        loss = ReleaseLoss.symmetric(scale * profile)
        if isinstance(chains_or_class, OccupancyChains):
            return _max_chain_leakage(chains_or_class, loss)
        return worst_leakage(chains_or_class, loss)

    low, high = 0.0, target / float(profile.min())  # a moment that is not certain leaks at least its epsilon
    max_leakage, min_high = leaked(high), high * LEAKAGE_SLACK
    if max_leakage in {0.0, inf}:
        raise PrivacyError("leakage", max_leakage, "occupancy must be uncertain, and change in the course of days")
    while high - low > 1e-9 * high and high > min_high:
        middle = (low + high) / 2
        low, high = (middle, high) if leaked(middle) <= target else (low, middle)
    if low == 0:
        raise PrivacyError("target", target, "must exceed the leakage of a start this far from the periodic prior")
    return low * profile


def loss_ends(chains: OccupancyChains, loss: ReleaseLoss, horizon: int | None = None) -> FloatArray:
    """Check the loss and return it as [interval, lo and hi, kind]. Without a horizon it covers one cycle."""
    sides = [np.atleast_1d(np.asarray(side, np.float64)) for side in loss]
    intervals = lcm(len(chains.period), *map(len, sides)) if horizon is None else horizon
    ends = np.empty((intervals, 2, chains.initial.shape[-1]))
    for end, (name, side) in enumerate(zip(loss._fields, sides, strict=True)):
        raise_where(~((side >= 0) & (side < inf)), name, side, "must be 0 or more, and finite", PrivacyError)
        rows = side[:, None] if side.ndim == 1 else side
        ends[:, end] = rows[np.arange(intervals) % len(rows)]
    ends[:, 0] *= -1
    return ends


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


def periodic_prior(chains: OccupancyChains, slot: int) -> FloatArray:
    """Return P(S = x) [state, kind] in an interval of the day for an attacker who knows only the habits."""
    return np.asarray(np.exp(periodic_distributions(chains, len(chains.period))[0].belief[slot]))


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


def _leakage_from_start(
    chains: OccupancyChains, ends: FloatArray, future_evidence: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the leakage [interval, kind] from `initial` on, and the past evidence of the last interval."""
    distributions = chain_distributions(
        _log(chains.initial / chains.initial.sum(axis=0)), log_transitions(chains, len(ends))
    )
    before = evidence_ranges(distributions.backward, ends, np.zeros(()), len(ends))
    after = evidence_ranges(distributions.forward[::-1], ends[::-1], future_evidence, len(ends))[::-1]
    leaked = (OUTWARD_SIGNS * (before + ends + after)).max(axis=1)
    return np.where(is_certain(distributions.belief), 0.0, leaked), before[-1]


def periodic_regime(chains: OccupancyChains, ends: FloatArray) -> PeriodicRegime:
    """Return the periodic regime under losses `ends` [interval, lo and hi, kind], rounded up."""
    distributions, never = periodic_distributions(chains, len(ends))
    moving = ~never & ~is_certain(distributions.belief[0])
    backward = -np.arange(len(ends)) % len(ends)
    before = periodic_evidence(distributions.backward, ends, moving)
    after = periodic_evidence(distributions.forward[backward], ends[backward], moving)[backward]
    leaked = (OUTWARD_SIGNS * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(distributions.belief), 0.0, leaked + rounding_bound(len(ends), leaked))
    return PeriodicRegime(np.where(never & (ends != 0).any(axis=(0, 1)), inf, leaked), distributions, before, after)


def _max_chain_leakage(chains: OccupancyChains, loss: ReleaseLoss) -> float:
    """Return the largest leakage of any kind in any interval, in the first days and later."""
    ends = loss_ends(chains, loss)
    leaked, distributions, before, after = periodic_regime(chains, ends)
    periodic, first, past = float(leaked.max()), 0.0, np.zeros(())
    if periodic == inf:
        return inf
    day = chain_product(np.roll(log_transitions(chains, len(ends)), -1, axis=0))
    belief, days = _log(chains.initial), 0
    while (
        distance := log_odds_distance(belief, distributions.belief[0])
    ) > LEAKAGE_SLACK and days < _MAX_TRANSIENT_DAYS:
        belief, days = _next_belief(belief, day), days + 1
    if days:
        leaked, past = _leakage_from_start(chains, ends[np.arange(days * len(ends) + 1) % len(ends)], after[0])
        first = float((leaked + (leaked > 0) * rounding_bound(len(leaked), leaked)).max())
    excess = float((OUTWARD_SIGNS * (past - before[0])).clip(0).max())
    return max(first, periodic + excess + 2 * distance if periodic else 0.0)


def log_odds_distance(belief: FloatArray, reference: FloatArray) -> float:
    """Return the largest difference in log odds between two beliefs [state, kind]."""
    odds, reference_odds = belief[1] - belief[0], reference[1] - reference[0]
    return float(np.abs(np.subtract(odds, reference_odds, out=np.zeros_like(odds), where=odds != reference_odds)).max())
