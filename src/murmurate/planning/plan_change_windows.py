"""Check the cost of the windows across a change of plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from murmurate.errors import PrivacyError
from murmurate.planning.plan import Plan
from murmurate.planning.plan_history import PlanHistory
from murmurate.planning.privacy_cost import kind_events
from murmurate.planning.zone import HouseholdKind
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent, PureDpAccountant
from murmurate.privacy.promise import WindowPromise

_MAX_COMPOSITIONS = 400  # compositions for one promise and one path; after that the change is rejected


def check_windows_across_change(history: PlanHistory, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every window across the change keeps its promise for one household."""
    plans = [*dict.fromkeys(history.plans[number] for number in history.plan_index.tolist()), after]
    events = {plan: kind_events(plan.zone, plan.noise, kind_of[plan]) for plan in plans}
    promises = {promise for plan in plans for promise in plan.zone.promises if isinstance(promise, WindowPromise)}
    for promise in sorted(promises, key=str):
        _WindowsAcrossChange(history, after, events, promise).check_costs()


@dataclass(frozen=True, slots=True)
class _WindowsAcrossChange:
    """The windows of one promise across the change: those with 1, 2, .., length - 1 intervals after it."""

    history: PlanHistory
    after: Plan
    events: Mapping[Plan, list[PrivacyEvent]]  # [interval of the day] of one household
    promise: WindowPromise

    def check_costs(self) -> None:
        """Raise PrivacyError if a window costs too much. All windows are bounded together, then by bisection."""
        if not self.history.complete and len(self.history) < self.promise.intervals - 1:
            allowed = f"must show {self.promise.intervals - 1} intervals before the change for {str(self.promise)!r}"
            raise PrivacyError("log", f"{len(self.history)} intervals", allowed)
        ranges = [(1, self._max_later())]
        for _ in range(_MAX_COMPOSITIONS):
            if not ranges:
                return
            min_later, max_later = ranges.pop()
            if min_later > max_later or self._max_cost(min_later, max_later) <= self._epsilon_limit(max_later):
                continue
            if min_later == max_later:
                break
            middle = (min_later + max_later) // 2
            ranges += [(min_later, middle), (middle + 1, max_later)]
        allowed = (
            f"must keep {str(self.promise)!r} across the change: first change to a plan with the present noise "
            "(--noise-of) that states what this noise keeps for such a stretch, or leave intervals unmeasured"
        )
        raise PrivacyError("plan", f"of {self.after.zone.name}", allowed)

    def _max_later(self) -> int:
        """Return the largest number of intervals after the change in a window with a measured interval before it."""
        (measured,) = self.history.measured.nonzero()
        return self.promise.intervals - (len(self.history) - int(measured[-1])) if len(measured) else 0

    def _epsilon_limit(self, later: int) -> float:
        """Return the epsilon limit of a window with `later` intervals after the change. It never grows with `later`.

        The limit is the weakest promise of this length and delta among the plans of the measured intervals.
        """
        start = max(0, len(self.history) - (self.promise.intervals - later))
        measured_plans = set(self.history.plan_index[start:][self.history.measured[start:]].tolist())
        length, delta = self.promise.intervals, self.promise.delta
        limits = [
            promise.epsilon
            for plan in (*(self.history.plans[number] for number in measured_plans), self.after)
            for promise in plan.zone.promises
            if isinstance(promise, WindowPromise) and (promise.intervals, promise.delta) == (length, delta)
        ]
        return float(max(limits)) if limits else math.inf

    def _max_cost(self, min_later: int, max_later: int) -> float:
        """Bound the cost of all windows with `min_later` to `max_later` intervals after the change.

        The bound is exact for a single window. The intervals that all windows share are composed directly. Each other
        interval differs between windows, so the envelope of the possible events replaces it.
        """
        length, count = self.promise.intervals, len(self.history)
        shared = [*self._events_before(max(0, count - (length - max_later)), count), *self._events_after(0, min_later)]
        either = [
            *self._events_before(max(0, count - (length - min_later)), max(0, count - (length - max_later))),
            *self._events_after(min_later, max_later),
        ]
        curves = tuple(dict.fromkeys(curve for event in dict.fromkeys(either) for curve in event.curves))
        composed = Counter(shared)
        if curves and max_later > min_later:
            composed[PrivacyEvent(curves)] += max_later - min_later
        accountant = PldAccountant() if self.promise.delta else PureDpAccountant()
        return accountant.epsilon(list(composed.items()), float(self.promise.delta))

    def _events_before(self, start: int, end: int) -> Iterable[PrivacyEvent]:
        day = self.after.zone.intervals_per_day
        for at in range(start, end):
            if self.history.measured[at]:
                yield self.events[self.history.plans[int(self.history.plan_index[at])]][(self.history.first + at) % day]

    def _events_after(self, start: int, end: int) -> Iterable[PrivacyEvent]:
        day, first = self.after.zone.intervals_per_day, self.history.end
        return (self.events[self.after][(first + at) % day] for at in range(start, end))
