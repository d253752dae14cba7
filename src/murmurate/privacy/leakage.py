"""Moment leakage: what all releases, past and future, tell about one moment of one household (proof: `leakage.md`).

The releases r hang on the occupancy S^t of a household, a Markov chain on {0, 1}. The leakage of moment t is the most
by which they can change the odds of S^t,

    leakage[t] = sup over r of |log p(r | S^t = 1) - log p(r | S^t = 0)|,

no unit (natural logarithms). A release tells of its neighbours in time because occupancy lasts; a chain that mixes
forgets, so the leakage stays bounded on an endless stream. Logarithms of probabilities throughout: an impossible state
is exactly -inf, a possible one never becomes it. The kind of household is the last axis.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, lcm
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.household.occupancy import Chains, ModelClass
from murmurate.privacy.evidence import (
    OUTWARD,
    SLACK,
    chain_product,
    evidence_ranges,
    periodic_evidence,
    rounding,
)
from murmurate.quantities import BoolArray, FloatArray, refuse_where

_DAYS = 30  # of a start that is followed before the rest of it is bounded


class Loss(NamedTuple):
    """What one release may tell: log p(r_t | S^t = 1) / p(r_t | S^t = 0) lies in [-minus, plus]; repeats when used up.

    >>> Loss.symmetric([0.5, 0.1]).minus.tolist()
    [0.5, 0.1]
    """

    minus: FloatArray  # [interval] or [interval, kind]; one number for all intervals
    plus: FloatArray  # likewise

    @classmethod
    def symmetric(cls, epsilon: Any) -> Loss:
        """The loss of releases that keep the paper's promise epsilon in each interval."""
        found = np.asarray(epsilon, np.float64)
        return cls(found, found)


class Laws(NamedTuple):
    """A two-state chain as seen from each moment, in logarithms; the neighbours of a certain moment tell nothing."""

    belief: FloatArray  # [interval, state, kind] log P(S^t = x)
    past: FloatArray  # [interval, state, before, kind] log P(S^(t-1) = s | S^t = x)
    future: FloatArray  # [interval, state, after, kind] log P(S^(t+1) = s | S^t = x)


class Endless(NamedTuple):
    """An endless stream of equal days: leakage, laws, and the evidence that past and future add at each moment."""

    leaked: FloatArray  # [interval of the day, kind]
    laws: Laws
    before: FloatArray  # [interval of the day, lo and hi, kind]
    after: FloatArray  # likewise


def phi(p1: Any, p0: Any, a: Any) -> FloatArray:
    """Evidence `a` about a neighbour as evidence about S: log[(1 - p1 + p1 e^a) / (1 - p0 + p0 e^a)].

    `p1` and `p0` are P(neighbour = 1 | S = 1) and P(neighbour = 1 | S = 0); `a` is a log-likelihood ratio. Where the
    neighbour is S itself all of `a` passes, where it is independent of S nothing does.

    >>> phi([1.0, 0.3, 0.9], [0.0, 0.3, 0.1], 2.0).round(4).tolist()
    [2.0, 0.0, 1.4155]
    """
    ones, zeros, evidence = (np.asarray(v, np.float64) for v in (p1, p0, a))
    top, bottom = (np.logaddexp(_log(1 - p), _log(p) + evidence) for p in (ones, zeros))
    return np.asarray(top - bottom)


def moment_leakage(chains: Chains, loss: Loss, horizon: int) -> FloatArray:
    """Leakage [interval, kind] of each moment when exactly `horizon` intervals are released, the first with `initial`.

    B, F the evidence [lo, hi] of past and future, q and g the laws of the neighbours (`Laws.past`, `Laws.future`):

        B[0]   = 0,  B[t] = sorted(phi(q_t, B_lo[t-1] - minus[t-1]), phi(q_t, B_hi[t-1] + plus[t-1]))
        F[T-1] = 0,  F[t] = sorted(phi(g_t, F_lo[t+1] - minus[t+1]), phi(g_t, F_hi[t+1] + plus[t+1]))
        leakage[t] = max(B_hi[t] + plus[t] + F_hi[t], -(B_lo[t] - minus[t] + F_lo[t])), 0 where S^t is certain

    Raises `ModelError` for groups of more than one household, `PrivacyError` for a loss that is negative or infinite.

    >>> lasting = Chains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> moment_leakage(lasting, Loss.symmetric(0.5), 3)[:, 0].round(4).tolist()
    [1.2004, 1.294, 1.2004]
    """
    if horizon < 1:
        raise ModelError("horizon", horizon, "must be at least 1 interval")
    return _from_start(chains, loss_ends(chains, loss, horizon), np.zeros(()))[0]


def periodic_leakage(chains: Chains, loss: Loss) -> FloatArray:
    """Leakage [interval of the day, kind] of an endless stream, releases without end before and after; rounded up.

    The prior is the periodic one, which `initial` tends to. Infinite where evidence adds up for ever: both states are
    possible at the start of the day, and two days never lead from one of them to the other. If the loss repeats in
    another time than the day, the first axis is their least common multiple.

    >>> lasting = Chains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> periodic_leakage(lasting, Loss.symmetric(0.5)).round(4).tolist()
    [[3.1193]]
    >>> periodic_leakage(Chains.independent(initial=[0.5], arrive=[[0.0]], leave=[[0.0]]), Loss.symmetric(0.5)).tolist()
    [[inf]]
    """
    return endless(chains, loss_ends(chains, loss)).leaked


def worst_leakage(model_class: ModelClass, loss: Loss) -> float:
    """The largest leakage of any moment, from the first interval on and without end, of any kind in any model.

    The first days count too: `initial` may be far from the periodic prior. They are followed one by one until they
    are indistinguishable from the periodic ones, for at most 30 days, after which the rest is bounded (`leakage.md`).

    >>> from murmurate.household.occupancy import OccupancyModel
    >>> lasting = Chains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> round(worst_leakage(ModelClass(models=(OccupancyModel(groups=(lasting,)),)), Loss.symmetric(0.5)), 4)
    3.1193
    """
    return max(_worst(chains, loss) for model in model_class.models for chains in model.groups)


def epsilon_for_leakage(chains_or_class: Chains | ModelClass, target: float, shape: Any = None) -> FloatArray:
    """The largest epsilon [interval] of the form s * `shape` under which no moment ever leaks more than `target`.

    Without a shape one epsilon serves all intervals. The result itself has been seen to keep the promise (rounded down,
    by less than a millionth). Raises `PrivacyError` where no epsilon does, or where any does.

    >>> lasting = Chains.independent(initial=[0.5], arrive=[[0.1]], leave=[[0.1]])
    >>> epsilon_for_leakage(lasting, 3.1193).round(4).tolist()
    [0.5]
    """
    profile = np.ones(1) if shape is None else np.asarray(shape, np.float64)
    for name, value in (("shape", profile), ("target", np.array([target]))):
        refuse_where(~((value > 0) & (value < inf)), name, value, "must be positive and finite", PrivacyError)

    def leaked(scale: float) -> float:
        given, loss = chains_or_class, Loss.symmetric(scale * profile)
        return _worst(given, loss) if isinstance(given, Chains) else worst_leakage(given, loss)

    low, high = 0.0, target / float(profile.min())  # a moment that is not certain leaks at least its own epsilon
    most, least = leaked(high), high * SLACK
    if most in {0.0, inf}:
        raise PrivacyError("leakage", most, "occupancy must be uncertain, and change in the course of days")
    while high - low > 1e-9 * high and high > least:
        middle = (low + high) / 2
        low, high = (middle, high) if leaked(middle) <= target else (low, middle)
    if low == 0:
        raise PrivacyError("target", target, "must exceed what a start this far from the periodic prior may tell")
    return low * profile


def loss_ends(chains: Chains, loss: Loss, horizon: int | None = None) -> FloatArray:
    """The loss as [interval, lo and hi, kind], checked; of one cycle if there is no horizon."""
    sides = [np.atleast_1d(np.asarray(side, np.float64)) for side in loss]
    intervals = lcm(len(chains.period), *map(len, sides)) if horizon is None else horizon
    ends = np.empty((intervals, 2, chains.initial.shape[-1]))
    for end, (name, side) in enumerate(zip(loss._fields, sides, strict=True)):
        refuse_where(~((side >= 0) & (side < inf)), name, side, "must be 0 or more, and finite", PrivacyError)
        rows = side[:, None] if side.ndim == 1 else side
        ends[:, end] = rows[np.arange(intervals) % len(rows)]
    ends[:, 0] *= -1
    return ends


def _log(probability: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(probability)


def log_steps(chains: Chains, intervals: int) -> FloatArray:
    """The transition into each interval [interval, from, to, kind] in logarithms, rows summing to 1 anew."""
    if chains.size != 1:
        raise ModelError("members", f"groups of {chains.size}", "must be households on their own, a chain each")
    rows = _log(chains.transition)
    rows -= np.logaddexp(rows[:, :, :1], rows[:, :, 1:])
    return np.asarray(rows[chains.period[np.arange(intervals) % len(chains.period)]])


def _onward(belief: FloatArray, step: FloatArray) -> FloatArray:
    moved: FloatArray = np.logaddexp(belief[0] + step[0], belief[1] + step[1])
    return np.asarray(moved - np.logaddexp(moved[0], moved[1]))


def is_certain(belief: FloatArray) -> BoolArray:
    return np.asarray((belief == -inf).any(axis=-2))


def chain_laws(first: FloatArray, steps: FloatArray) -> Laws:
    """The laws from the first belief [state, kind] on; the first past and the last future close the circle."""
    belief = np.empty((len(steps), *first.shape))
    for t, step in enumerate(steps):
        belief[t] = _onward(belief[t - 1], step) if t else first
    joint = (np.roll(belief, 1, axis=0)[:, :, None] + steps).swapaxes(1, 2)
    total = np.logaddexp(joint[:, :, :1], joint[:, :, 1:])
    past = joint - np.where(total > -inf, total, 0)
    future = np.roll(steps, -1, axis=0)
    # an impossible state borrows the law of the possible one, so that its neighbours tell nothing
    past = np.where(total == -inf, past[:, ::-1], past)
    return Laws(belief, past, np.where((belief == -inf)[:, :, None], future[:, ::-1], future))


def begun_periodically(chains: Chains) -> Chains:
    """The same chains with the periodic prior as `initial`, so that they may begin at any interval of the day.

    The prior of a stream that begins at interval t of the day is then `periodic_laws(..)[0].belief[t]`: what somebody
    expects who knows the habits. Chains without a periodic regime keep their `initial`.
    """
    laws, never = periodic_laws(chains, len(chains.period))
    return replace(chains, initial=np.where(never, chains.initial, np.exp(laws.belief[0])))


def prior_at(chains: Chains, slot: int) -> FloatArray:
    """P(S = x) [state, kind] in an interval of the day, as somebody expects it who knows the habits alone."""
    return np.asarray(np.exp(periodic_laws(chains, len(chains.period))[0].belief[slot]))


def periodic_laws(chains: Chains, intervals: int) -> tuple[Laws, BoolArray]:
    """The chain in its periodic regime over a cycle of `intervals`, and which kinds [kind] have no such regime.

    They are those whose states both stay possible although two cycles never lead from one to the other."""
    steps = log_steps(chains, intervals)
    day = chain_product(np.roll(steps, -1, axis=0))  # from interval 0 to interval 0
    twice = chain_product(np.stack([day, day]))
    start = _log(chains.initial)
    for _ in range(3):  # which states are possible at the start of the day settles within two days
        start = _onward(start, day)
    mixing = (twice[0, 1] > -inf) & (twice[1, 0] > -inf)
    flux = np.where(mixing, np.stack([twice[1, 0], twice[0, 1]]), 0.0)
    settled = flux - np.logaddexp(flux[0], flux[1])
    both = ~is_certain(start)
    return chain_laws(np.where(both & mixing, settled, start), steps), both & ~mixing


def _from_start(chains: Chains, ends: FloatArray, future: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leakage [interval, kind] from `initial` on, given the `future` of the last interval; and the past of the last."""
    laws = chain_laws(_log(chains.initial / chains.initial.sum(axis=0)), log_steps(chains, len(ends)))
    before = evidence_ranges(laws.past, ends, np.zeros(()), len(ends))
    after = evidence_ranges(laws.future[::-1], ends[::-1], future, len(ends))[::-1]
    leaked = (OUTWARD * (before + ends + after)).max(axis=1)
    return np.where(is_certain(laws.belief), 0.0, leaked), before[-1]


def endless(chains: Chains, ends: FloatArray) -> Endless:
    """The periodic regime under losses `ends` [interval, lo and hi, kind]; rounded up."""
    laws, never = periodic_laws(chains, len(ends))
    moving = ~never & ~is_certain(laws.belief[0])
    backward = -np.arange(len(ends)) % len(ends)
    before = periodic_evidence(laws.past, ends, moving)
    after = periodic_evidence(laws.future[backward], ends[backward], moving)[backward]
    leaked = (OUTWARD * (before + ends + after)).max(axis=1)
    leaked = np.where(is_certain(laws.belief), 0.0, leaked + rounding(len(ends), leaked))
    return Endless(np.where(never & (ends != 0).any(axis=(0, 1)), inf, leaked), laws, before, after)


def _worst(chains: Chains, loss: Loss) -> float:
    """The largest leakage of any kind in any interval: of the first days, and of all that follow."""
    ends = loss_ends(chains, loss)
    leaked, laws, before, after = endless(chains, ends)
    periodic, first, past = float(leaked.max()), 0.0, np.zeros(())
    if periodic == inf:
        return inf
    day = chain_product(np.roll(log_steps(chains, len(ends)), -1, axis=0))
    belief, days = _log(chains.initial), 0
    while (apart := log_odds_apart(belief, laws.belief[0])) > SLACK and days < _DAYS:
        belief, days = _onward(belief, day), days + 1
    if days:
        leaked, past = _from_start(chains, ends[np.arange(days * len(ends) + 1) % len(ends)], after[0])
        first = float((leaked + (leaked > 0) * rounding(len(leaked), leaked)).max())
    beyond = float((OUTWARD * (past - before[0])).clip(0).max())
    return max(first, periodic + beyond + 2 * apart if periodic else 0.0)


def log_odds_apart(belief: FloatArray, other: FloatArray) -> float:
    """The largest difference in log odds between two beliefs [state, kind]."""
    odds, others = belief[1] - belief[0], other[1] - other[0]
    return float(np.abs(np.subtract(odds, others, out=np.zeros_like(odds), where=odds != others)).max())
