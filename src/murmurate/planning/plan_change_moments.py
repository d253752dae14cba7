"""Check the leakage about moments before and after a change of plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.plan import Plan
from murmurate.planning.plan_history import PlanHistory
from murmurate.planning.privacy_cost import kind_losses
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.leakage import log_odds_distance, log_transitions, loss_ends, periodic_regime
from murmurate.privacy.leakage_over_time import (
    MAX_EVIDENCE,
    evidence_excess,
    mixing_time_days,
    shift_calendar,
    span_leakage,
)
from murmurate.privacy.promise import MomentPromise
from murmurate.units import BoolArray, FloatArray, IntArray


def check_moments_across_change(history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every moment near the change keeps the leakage that its plan promises."""
    past_plans = dict.fromkeys(history.plans[number] for number in history.plan_index.tolist())
    for plan in dict.fromkeys([*past_plans, after]):
        limits = [float(p.leakage) for p in plan.zone.promises if isinstance(p, MomentPromise)]
        if limits and not kind_of[plan].always_public:
            leaked = max(_max_leakage(history, after, kind_of, plan, model) for model in kind_of[plan].models)
            if not leaked <= min(limits):
                side = "after" if plan is after else "before"
                allowed = f"must be at most {min(limits):g} for moments {side} it; see how-to/publish"
                raise PrivacyError("leakage across the change", f"{leaked:.4g}", allowed)


class _ClockVariant(NamedTuple):
    """A possible course of the clocks during the span: one shift, then another from some interval on."""

    shift_before: int
    shift_after: int
    change_at: int  # interval of the span from which the second shift holds


def _max_leakage(
    history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind], plan: Plan, model: OccupancyChains
) -> float:
    """Return the largest leakage about any moment under `plan`. The attacker knows the habits `model`.

    Each column of the arrays is one variant of the clocks.
    """
    zone, day = plan.zone, plan.zone.intervals_per_day
    memory = 2 * mixing_time_days(model) * day
    ahead = 2 * memory  # a clock change within the memory no longer matters after that
    tail = kind_losses(after.zone, after.noise, kind_of[after])
    ends = np.concatenate([_history_losses(history, kind_of), _periodic_losses(tail, history.end, ahead, day)])
    variants = list(_clock_variants(zone, history, ahead, memory))
    regimes = {
        shift: periodic_regime(shift_calendar(model, shift), loss_ends(model, tail)) for shift in zone.slot_shifts
    }
    if any(np.isinf(regime.leakage).any() for regime in regimes.values()):
        return float("inf")
    time = np.arange(history.first, history.end + ahead)
    steps = np.stack([_log_transitions(model, variant, time) for variant in variants], axis=-1)
    first, last = time[0] % day, time[-1] % day
    belief = np.stack([regimes[v.shift_before].distributions.belief[first, :, 0] for v in variants], axis=-1)
    past = np.array([[-1.0], [1.0]]) * (0.0 if history.complete else MAX_EVIDENCE) * np.ones(len(variants))
    future = np.stack([regimes[v.shift_after].future_evidence[last, :, 0] for v in variants], axis=-1)
    span = span_leakage(
        belief, steps, ends[:, :, None] * np.ones(len(variants)), past_evidence=past, future_evidence=future
    )
    worst = float(span.leakage[_moments_under_plan(history, after, plan, ahead, memory)].max(initial=0.0))
    if plan is not after:
        return worst
    settled = np.stack([regimes[v.shift_after].past_evidence[last, :, 0] for v in variants], axis=-1)
    expected = np.stack([regimes[v.shift_after].distributions.belief[last, :, 0] for v in variants], axis=-1)
    periodic = max(float(regime.leakage.max()) for regime in regimes.values())
    return max(
        worst, periodic + evidence_excess(span.past_evidence, settled) + 2 * log_odds_distance(span.belief, expected)
    )


def _moments_under_plan(history: PlanHistory, after: Plan, plan: Plan, ahead: int, memory: int) -> BoolArray:
    """Return, for each interval of the span, whether it is under `plan` and late enough for the change to matter."""
    under_plan = np.array([history.plans[n] is plan for n in history.plan_index.tolist()], np.bool_)
    if not history.complete:
        under_plan[: max(0, len(under_plan) - memory)] = False
    return np.concatenate([under_plan, np.full(ahead, plan is after)])


def _history_losses(history: PlanHistory, kind_of: Mapping[Plan, HouseholdKind]) -> FloatArray:
    """Return the range of the log likelihood ratio of each release of the history [interval, lo and hi]."""
    losses = np.zeros((len(history), 2))
    for number in set(history.plan_index.tolist()):
        plan = history.plans[number]
        loss = kind_losses(plan.zone, plan.noise, kind_of[plan])
        measured = (history.plan_index == number) & history.measured
        losses[measured] = _periodic_losses(loss, history.first, len(history), plan.zone.intervals_per_day)[measured]
    return losses


def _periodic_losses(loss: FloatArray, first: int, count: int, day: int) -> FloatArray:
    at = (first + np.arange(count)) % day
    return np.stack([-loss[at], loss[at]], axis=-1)


def _clock_variants(zone: Zone, history: PlanHistory, ahead: int, memory: int) -> Iterator[_ClockVariant]:
    """Yield the variants without a clock change, and with one on each day near the change of plan."""
    day = zone.intervals_per_day
    yield from (_ClockVariant(shift, shift, 0) for shift in zone.slot_shifts)
    for at, before, after in zone.slot_changes:
        for midnight in range(-(-history.first // day) * day, history.end + ahead, day):
            if abs(midnight - history.end) <= memory:
                yield _ClockVariant(before, after, midnight + at - history.first)


def _log_transitions(model: OccupancyChains, variant: _ClockVariant, time: IntArray) -> FloatArray:
    """Return the log transitions of the span [interval, from, to] under a variant of the clocks."""
    shift = np.where(np.arange(len(time)) < variant.change_at, variant.shift_before, variant.shift_after)
    if variant.shift_before == variant.shift_after:
        shift = np.full(len(time), variant.shift_before)
    day = len(model.period)
    return np.asarray(log_transitions(model, day)[(time + shift) % day][..., 0])
