"""Moments that were lived before a change of plan, and those that follow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from murmurate.curator.history import History
from murmurate.curator.plan import Plan
from murmurate.curator.spending import losses
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.household.occupancy import Chains
from murmurate.privacy.leakage import Loss, endless, log_odds_apart, log_steps, loss_ends
from murmurate.privacy.leakage_over_time import (
    ANYTHING,
    evidence_excess,
    memory_days,
    shifted,
    stretch_leakage,
)
from murmurate.privacy.promise import MomentPromise
from murmurate.quantities import BoolArray, FloatArray, IntArray


def refuse_moments(history: History, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every moment across the change keeps the leakage that its own plan promises."""
    lived = dict.fromkeys(history.plans[number] for number in history.in_force.tolist())
    for plan in dict.fromkeys([*lived, after]):
        limits = [float(p.leakage) for p in plan.zone.promises if isinstance(p, MomentPromise)]
        if limits and not kind_of[plan].always_public:
            leaked = max(_leaked(history, after, kind_of, plan, model) for model in kind_of[plan].models)
            if not leaked <= min(limits):
                which = "after" if plan is after else "before"
                allowed = f"must be at most {min(limits):g} for moments lived {which} it; see how-to/publish"
                raise PrivacyError("leakage across the change", f"{leaked:.4g}", allowed)


class _Variant(NamedTuple):
    """One way in which the clocks may have gone during the stretch: a shift, then another from some interval on."""

    before: int
    after: int
    at: int  # interval of the stretch from which the second shift holds


def _leaked(history: History, after: Plan, kind_of: Mapping[Plan, HouseholdKind], lived: Plan, model: Chains) -> float:
    """The most that is told about any moment lived under one plan, to somebody who knows these habits.

    Each column is one variant of the clocks.
    """
    zone, day = lived.zone, lived.zone.intervals_per_day
    memory = 2 * memory_days(model) * day
    ahead = 2 * memory  # a change of the clocks within the memory has faded by then
    tail = Loss(*losses(after.zone, after.noise, kind_of[after]))
    ends = np.concatenate([_ends(history, kind_of), _cycle(tail, history.end, ahead, day)])
    variants = list(_variants(zone, history, ahead, memory))
    regimes = {shift: endless(shifted(model, shift), loss_ends(model, tail)) for shift in zone.slot_shifts}
    if any(np.isinf(regime.leaked).any() for regime in regimes.values()):
        return float("inf")
    time = np.arange(history.first, history.end + ahead)
    steps = np.stack([_steps(model, variant, time) for variant in variants], axis=-1)
    first, last = time[0] % day, time[-1] % day
    belief = np.stack([regimes[v.before].laws.belief[first, :, 0] for v in variants], axis=-1)
    past = np.array([[-1.0], [1.0]]) * (0.0 if history.complete else ANYTHING) * np.ones(len(variants))
    future = np.stack([regimes[v.after].after[last, :, 0] for v in variants], axis=-1)
    seen = stretch_leakage(belief, steps, ends[:, :, None] * np.ones(len(variants)), past=past, future=future)
    worst = float(seen.leaked[_of(history, after, lived, ahead, memory)].max(initial=0.0))
    if lived is not after:
        return worst
    settled = np.stack([regimes[v.after].before[last, :, 0] for v in variants], axis=-1)
    expected = np.stack([regimes[v.after].laws.belief[last, :, 0] for v in variants], axis=-1)
    periodic = max(float(regime.leaked.max()) for regime in regimes.values())
    return max(worst, periodic + evidence_excess(seen.past, settled) + 2 * log_odds_apart(seen.belief, expected))


def _of(history: History, after: Plan, lived: Plan, ahead: int, memory: int) -> BoolArray:
    """[interval of the stretch] the moments that were lived under a plan, as far back as the change tells of them."""
    mine = np.array([history.plans[n] is lived for n in history.in_force.tolist()], np.bool_)
    if not history.complete:
        mine[: max(0, len(mine) - memory)] = False
    return np.concatenate([mine, np.full(ahead, lived is after)])


def _ends(history: History, kind_of: Mapping[Plan, HouseholdKind]) -> FloatArray:
    """[interval, lo and hi] what each release of the history told about one household."""
    found = np.zeros((len(history), 2))
    for number in set(history.in_force.tolist()):
        plan = history.plans[number]
        loss = losses(plan.zone, plan.noise, kind_of[plan])
        mine = (history.in_force == number) & history.measured
        found[mine] = _cycle(loss, history.first, len(history), plan.zone.intervals_per_day)[mine]
    return found


def _cycle(loss: Loss, first: int, count: int, day: int) -> FloatArray:
    at = (first + np.arange(count)) % day
    return np.stack([-loss.minus[at], loss.plus[at]], axis=-1)


def _variants(zone: Zone, history: History, ahead: int, memory: int) -> Iterator[_Variant]:
    """No change of the clocks, or one in any day near the change of plan."""
    day = zone.intervals_per_day
    yield from (_Variant(shift, shift, 0) for shift in zone.slot_shifts)
    for at, before, after in zone.slot_changes:
        for midnight in range(-(-history.first // day) * day, history.end + ahead, day):
            if abs(midnight - history.end) <= memory:
                yield _Variant(before, after, midnight + at - history.first)


def _steps(model: Chains, variant: _Variant, time: IntArray) -> FloatArray:
    """The transitions of the stretch [interval, from, to] as the clocks of a variant have them."""
    shift = np.where(np.arange(len(time)) < variant.at, variant.before, variant.after)
    if variant.before == variant.after:
        shift = np.full(len(time), variant.before)
    day = len(model.period)
    return np.asarray(log_steps(model, day)[(time + shift) % day][..., 0])
