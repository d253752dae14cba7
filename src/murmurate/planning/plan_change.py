"""Check a change of plan: the promises of each plan must hold under the actual sequence of plans.

Each plan is proven alone, as if it were always in force. Prices after a change also leak about moments before it, and
windows may contain intervals of both plans. So a change needs another proof, over all plans that still matter:

- every moment under a plan keeps the leakage that this plan promises, given all actual releases before and after it;
- every window across the change keeps each of its promises, or the weaker promise of the same length and delta that
  another plan in the window makes.

A plan that reads no meter releases nothing, so its window promises are about its own intervals alone. A window with
intervals under it costs what its measured intervals cost, and keeps the promises of the plans that measured them.

A household is matched between plans by its description, never by the name of its kind (`kind_paths`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.plan import Plan
from murmurate.planning.privacy_cost import kind_events, kind_losses
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent, PureDpAccountant
from murmurate.privacy.leakage import (
    evidence_excess,
    log_odds_distance,
    log_transitions,
    loss_ends,
    periodic_regime,
    span_leakage,
)
from murmurate.privacy.leakage_over_time import MAX_EVIDENCE, mixing_time_days, shift_calendar
from murmurate.privacy.promise import MomentPromise, Promise, WindowPromise, promise_epsilon
from murmurate.units import BoolArray, IntArray

_MAX_PATHS = 200
_MEMORY_MULTIPLE = 4  # mixing times: two that are checked, and two before them so that earlier releases do not matter
_MAX_COMPOSITIONS = 400  # compositions for one promise and one path; after that the change is rejected

KindPath = tuple[HouseholdKind, ...]  # the kind of one household under each plan


class PlanHistory:
    """The plan in force in each of the last intervals of a zone, oldest first. All of it is public."""

    def __init__(self, releases: Sequence[tuple[Plan, bool]], *, first: int, complete: bool) -> None:
        """Build the history from the plan of each interval and whether its release cost privacy."""
        self._releases = releases
        self.plans = tuple(dict.fromkeys(plan for plan, _ in releases))  # in the order of their first use
        self.first = first  # number of the first interval
        self.complete = complete  # whether nothing was released before `first`
        position = {plan: number for number, plan in enumerate(self.plans)}
        self.plan_index: IntArray = np.array([position[plan] for plan, _ in releases], np.int64)  # [interval]
        self.measured: BoolArray = np.array([cost for _, cost in releases], np.bool_)  # [interval]

    def __len__(self) -> int:
        return len(self._releases)

    @property
    def end(self) -> int:
        """The number of the first interval after the history."""
        return self.first + len(self)

    def last_intervals(self, intervals: int) -> PlanHistory:
        """Return the history of the newest `intervals` intervals."""
        cut = max(0, len(self) - intervals)
        return PlanHistory(self._releases[cut:], first=self.first + cut, complete=self.complete and cut == 0)


def lookback_intervals(plans: Sequence[Plan]) -> int:
    """Return how many intervals before a change the check must include."""
    windows = [p.intervals for plan in plans for p in plan.zone.promises if isinstance(p, WindowPromise)]
    days = [mixing_time_days(model) for plan in plans for kind in plan.zone.private_kinds for model in kind.models]
    moments = any(isinstance(promise, MomentPromise) for plan in plans for promise in plan.zone.promises)
    memory = _MEMORY_MULTIPLE * max(days, default=0) * plans[0].zone.intervals_per_day if moments else 0
    return max([*windows, memory, 1])


def check_plan_change(history: PlanHistory, after: Plan) -> None:
    """Raise PrivacyError unless every window and every moment across a change to `after` keeps its promise.

    `after` is in force from the interval after the end of `history` on, without end.
    """
    if not len(history):
        return
    before = history.plans[int(history.plan_index[-1])]
    day = before.zone.intervals_per_day
    if day != after.zone.intervals_per_day:
        allowed = f"must stay {day}: no proof covers windows with intervals of two lengths"
        raise PrivacyError("intervals_per_day", after.zone.intervals_per_day, allowed)
    # a household that is public on one side publishes its occupancy there; a moment promise does not cover that
    public_before, public_after = (
        [sum(kind.count for kind in plan.zone.kinds if kind.public[t]) for t in range(day)] for plan in (before, after)
    )
    promises = (*before.zone.promises, *after.zone.promises)
    if public_before != public_after and any(isinstance(promise, MomentPromise) for promise in promises):
        allowed = "must keep their number and hours if a moment is promised"
        raise PrivacyError("public households", "changed", allowed)
    recent = history.last_intervals(lookback_intervals([*history.plans, after]))
    plans = [*recent.plans, after]
    for path in kind_paths(plans):
        kind_of = dict(zip(plans, path, strict=True))
        check_windows_across_change(recent, after, kind_of)
        check_moments_across_change(recent, after, kind_of)


def kind_paths(plans: Sequence[Plan]) -> Iterator[KindPath]:
    """Yield every sequence of kinds that one household may have under these plans, in order.

    The names of the kinds are ignored. A household keeps its kind if the next plan has the same kind. A kind that the
    next plan does not have may become any of its kinds. A household that is always public stays always public.
    """
    paths: list[KindPath] = [(kind,) for kind in plans[0].zone.kinds]
    for before, after in pairwise(plans):
        pairs = list(product(before.zone.kinds, after.zone.kinds))
        same = [pair for pair in pairs if have_same_secret(*pair)]
        kept, met = {old for old, _ in same}, {new for _, new in same}
        possible = set(same)
        for old, new in pairs:
            if (old not in kept or new not in met) and old.always_public == new.always_public:
                possible.add((old, new))
        paths = [(*path, kind) for path, kind in product(paths, after.zone.kinds) if (path[-1], kind) in possible]
        if len(paths) > _MAX_PATHS:
            raise PrivacyError("households", f"{len(paths)} paths", f"must be at most {_MAX_PATHS} across these plans")
    yield from paths


def have_same_secret(first: HouseholdKind, second: HouseholdKind) -> bool:
    """Whether two kinds have the same bounds, habits and public hours. Count and name are ignored."""
    facts = [(kind.bound_wh, kind.export_bound_wh, kind.public, len(kind.models)) for kind in (first, second)]
    return facts[0] == facts[1] and all(
        np.array_equal(first_model.transition[first_model.period], second_model.transition[second_model.period])
        for first_model, second_model in zip(first.models, second.models, strict=True)
    )


def check_windows_across_change(history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every window across the change keeps its promise for one household."""
    if not after.reads_meters:  # the windows across it are those before it, which are proven, without some releases
        return
    plans = dict.fromkeys([*history.plans, after])
    events = {plan: kind_events(plan.zone, plan.noise, kind_of[plan]) for plan in plans}
    stated = [promise for plan in plans if plan.reads_meters for promise in plan.zone.promises]
    promises = {promise for promise in stated if isinstance(promise, WindowPromise)}
    for promise in sorted(promises, key=str):
        if not history.complete and len(history) < promise.intervals - 1:
            allowed = f"must show {promise.intervals - 1} intervals before the change for {str(promise)!r}"
            raise PrivacyError("log", f"{len(history)} intervals", allowed)
        if not _keeps_all_windows(history, after, events, promise):
            allowed = (
                f"must keep {str(promise)!r} across the change: first change to a plan with the present noise "
                "(--noise-of) that states what this noise keeps for such a stretch, or leave intervals unmeasured"
            )
            raise PrivacyError("plan", f"of {after.zone.name}", allowed)


def _keeps_all_windows(
    history: PlanHistory, after: Plan, events: Mapping[Plan, list[PrivacyEvent]], promise: WindowPromise
) -> bool:
    """Return whether the windows with 1, 2, .., length - 1 intervals after the change cost no more than they may.

    `events` are those of one household [interval of the day]. All windows are bounded together, then by bisection.
    """
    length, count, day = promise.intervals, len(history), after.zone.intervals_per_day
    accountant = PldAccountant() if promise.delta else PureDpAccountant()

    def events_between(start: int, end: int) -> Iterator[PrivacyEvent]:
        """Yield the events of intervals of the history and after it; number `count` is the first after it."""
        for at in range(max(0, start), end):
            if at >= count or history.measured[at]:
                plan = after if at >= count else history.plans[int(history.plan_index[at])]
                yield events[plan][(history.first + at) % day]

    def max_cost(min_later: int, max_later: int) -> float:
        """Bound the cost of all windows with `min_later` to `max_later` intervals after the change.

        The bound is exact for a single window. The intervals that all windows share are composed directly. Each other
        interval differs between windows, so the envelope of the possible events replaces it.
        """
        first_shared, first_of_any = count - (length - max_later), count - (length - min_later)
        composed = Counter(events_between(first_shared, count + min_later))
        either = [
            *events_between(first_of_any, max(0, first_shared)),
            *events_between(count + min_later, count + max_later),
        ]
        curves = tuple(dict.fromkeys(curve for event in dict.fromkeys(either) for curve in event.curves))
        if curves and max_later > min_later:
            composed[PrivacyEvent(curves)] += max_later - min_later
        return accountant.epsilon(list(composed.items()), float(promise.delta))

    (measured,) = history.measured.nonzero()  # windows without a measured interval before the change are proven
    ranges = [(1, length - (count - int(measured[-1])) if len(measured) else 0)]
    for _ in range(_MAX_COMPOSITIONS):
        if not ranges:
            return True
        min_later, max_later = ranges.pop()
        if min_later > max_later or max_cost(min_later, max_later) <= _epsilon_limit(
            history, after, promise, max_later
        ):
            continue
        if min_later == max_later:
            return False
        middle = (min_later + max_later) // 2
        ranges += [(min_later, middle), (middle + 1, max_later)]
    return False


def _epsilon_limit(history: PlanHistory, after: Plan, promise: WindowPromise, later: int) -> float:
    """Return the weakest promise of this length and delta among the plans of the measured intervals of a window.

    It never grows with the number `later` of intervals after the change.
    """
    start = max(0, len(history) - (promise.intervals - later))
    measured_plans = set(history.plan_index[start:][history.measured[start:]].tolist())
    kind = (promise.intervals, promise.delta)
    limits = [
        other.epsilon
        for plan in (*(history.plans[number] for number in measured_plans), after)
        for other in plan.zone.promises
        if isinstance(other, WindowPromise) and (other.intervals, other.delta) == kind
    ]
    return float(max(limits)) if limits else math.inf


def check_moments_across_change(history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every moment near the change keeps the leakage that its plan promises."""
    for plan in dict.fromkeys([*history.plans, after]):
        limits = [float(p.leakage) for p in plan.zone.promises if isinstance(p, MomentPromise)]
        if limits and not kind_of[plan].always_public:
            leaked = max(_max_leakage(history, after, kind_of, plan, model) for model in kind_of[plan].models)
            if not leaked <= min(limits):
                side = "after" if plan is after else "before"
                allowed = f"must be at most {min(limits):g} for moments {side} it; see how-to/publish"
                raise PrivacyError("leakage across the change", f"{leaked:.4g}", allowed)


def _max_leakage(
    history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind], plan: Plan, model: OccupancyChains
) -> float:
    """Return the largest leakage about any moment under `plan`. The attacker knows the habits `model`.

    Each column of the arrays is one variant of the clocks.
    """
    zone, day = plan.zone, plan.zone.intervals_per_day
    memory = 2 * mixing_time_days(model) * day
    ahead = 2 * memory  # a clock change within the memory no longer matters after that
    tail = kind_losses(after.zone, after.noise, kind_of[after]) * after.reads_meters
    regimes = {
        shift: periodic_regime(shift_calendar(model, shift), loss_ends(model, tail)) for shift in zone.slot_shifts
    }
    if any(np.isinf(regime.leakage).any() for regime in regimes.values()):
        return float("inf")
    time, position = np.arange(history.first, history.end + ahead), np.arange(len(history) + ahead)
    loss = np.concatenate([np.zeros(len(history)), tail[time[len(history) :] % day]])
    for number in set(history.plan_index.tolist()):
        past = history.plans[number]
        measured = np.flatnonzero((history.plan_index == number) & history.measured)
        loss[measured] = kind_losses(past.zone, past.noise, kind_of[past])[time[measured] % day]
    variants = list(_clock_variants(zone, history, ahead, memory))
    before, later = ([regimes[variant[side]] for variant in variants] for side in (0, 1))
    shifts = [np.where(position < change_at, *shift) for *shift, change_at in variants]
    steps = np.stack([log_transitions(model, day)[(time + shift) % day][..., 0] for shift in shifts], axis=-1)
    last, ones = time[-1] % day, np.ones(len(variants))
    span = span_leakage(
        np.stack([regime.belief[time[0] % day, :, 0] for regime in before], axis=-1),
        steps,
        np.stack([-loss, loss], axis=-1)[:, :, None] * ones,
        past_evidence=np.array([[-1.0], [1.0]]) * (0.0 if history.complete else MAX_EVIDENCE) * ones,
        future_evidence=np.stack([regime.future_evidence[last, :, 0] for regime in later], axis=-1),
    )
    under_plan = np.array([history.plans[number] is plan for number in history.plan_index.tolist()], np.bool_)
    if not history.complete:
        under_plan[: max(0, len(under_plan) - memory)] = False  # too early for the change to matter
    worst = float(span.leakage[np.concatenate([under_plan, np.full(ahead, plan is after)])].max(initial=0.0))
    if plan is not after:
        return worst
    settled = np.stack([regime.past_evidence[last, :, 0] for regime in later], axis=-1)
    expected = np.stack([regime.belief[last, :, 0] for regime in later], axis=-1)
    periodic = max(float(regime.leakage.max()) for regime in regimes.values())
    excess = evidence_excess(span.past_evidence[-1], settled)
    return max(worst, periodic + excess + 2 * log_odds_distance(span.belief[-1], expected))


def _clock_variants(zone: Zone, history: PlanHistory, ahead: int, memory: int) -> Iterator[tuple[int, int, int]]:
    """Yield possible courses of the clocks: a shift, another one, and the interval of the span from which it holds.

    They are those without a clock change, and with one on each day near the change of plan.
    """
    day = zone.intervals_per_day
    yield from ((shift, shift, 0) for shift in zone.slot_shifts)
    for at, before, after in zone.slot_changes:
        for midnight in range(-(-history.first // day) * day, history.end + ahead, day):
            if abs(midnight - history.end) <= memory:
                yield before, after, midnight + at - history.first


class Direction(StrEnum):
    """What becomes of a promise."""

    STRONGER = "stronger"
    WEAKER = "weaker"
    SAME = "same"
    NEW = "new"
    DROPPED = "dropped"


class PromiseChange(NamedTuple):
    """One promise before and after a change of plan."""

    before: Promise | None
    after: Promise | None
    direction: Direction

    @property
    def intervals_to_wait(self) -> int:
        """After the change, until each stretch that ends keeps the stronger promise: it may begin before the change."""
        if self.direction is not Direction.STRONGER or not isinstance(self.after, WindowPromise):
            return 0
        return self.after.intervals - 1


def find_promise_changes(before: Iterable[Promise], after: Iterable[Promise]) -> Iterator[PromiseChange]:
    """Yield what becomes of each promise. Windows are compared with those of the same length and delta.

    >>> from murmurate.privacy.promise import parse_promise
    >>> old, new = (parse_promise(f"any 24 h: epsilon {epsilon}, delta 1e-6", 96) for epsilon in (1, 2))
    >>> [change.direction.value for change in find_promise_changes([old], [new])]
    ['weaker']
    """
    old, new = (
        {(type(p), getattr(p, "intervals", None), getattr(p, "delta", None)): p for p in promises}
        for promises in (before, after)
    )
    for subject in dict.fromkeys([*old, *new]):
        was, now = old.get(subject), new.get(subject)
        if was is None or now is None:
            direction = Direction.NEW if was is None else Direction.DROPPED
        else:
            less, more = promise_epsilon(now) < promise_epsilon(was), promise_epsilon(now) > promise_epsilon(was)
            direction = Direction.STRONGER if less else Direction.WEAKER if more else Direction.SAME
        yield PromiseChange(was, now, direction)
