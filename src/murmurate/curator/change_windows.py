"""Windows that lie across a change of plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from murmurate.curator.history import History
from murmurate.curator.plan import Plan
from murmurate.curator.spending import kind_events
from murmurate.curator.zone import HouseholdKind
from murmurate.errors import PrivacyError
from murmurate.privacy.accountant import CurveAccountant, Event, PureAccountant
from murmurate.privacy.promise import WindowPromise

_MAX_LOOKS = 400  # compositions for one promise and one path, after which the change is refused


def refuse_windows(history: History, after: Plan, kind_of: Mapping[Plan, HouseholdKind]) -> None:
    """Raise PrivacyError unless every window across the change keeps its promise for one household."""
    plans = [*dict.fromkeys(history.plans[number] for number in history.in_force.tolist()), after]
    events = {plan: kind_events(plan.zone, plan.noise, kind_of[plan]) for plan in plans}
    promises = {promise for plan in plans for promise in plan.zone.promises if isinstance(promise, WindowPromise)}
    for promise in sorted(promises, key=str):
        _Windows(history, after, events, promise).refuse()


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows of one promise across the change: those with 1, 2, .., length - 1 intervals after it."""

    history: History
    after: Plan
    events: Mapping[Plan, list[Event]]  # [interval of the day] of one household
    promise: WindowPromise

    def refuse(self) -> None:
        """Raise PrivacyError if a window is too dear. Windows are looked at together, then in halves."""
        if not self.history.complete and len(self.history) < self.promise.intervals - 1:
            allowed = f"must show {self.promise.intervals - 1} intervals before the change for {str(self.promise)!r}"
            raise PrivacyError("log", f"{len(self.history)} intervals", allowed)
        looks = [(1, self._most_later())]
        for _ in range(_MAX_LOOKS):
            if not looks:
                return
            fewest, most = looks.pop()
            if fewest > most or self._cost(fewest, most) <= self._limit(most):
                continue
            if fewest == most:
                break
            middle = (fewest + most) // 2
            looks += [(fewest, middle), (middle + 1, most)]
        allowed = f"must keep {str(self.promise)!r} across the change; leave intervals unmeasured before it"
        raise PrivacyError("plan", f"of {self.after.zone.name}", allowed)

    def _most_later(self) -> int:
        """How many intervals after the change a window may have that also has a measured one before it."""
        (measured,) = self.history.measured.nonzero()
        return self.promise.intervals - (len(self.history) - int(measured[-1])) if len(measured) else 0

    def _limit(self, later: int) -> float:
        """The epsilon that a window with so many intervals after the change must keep; it falls as they grow more.

        That is the weakest promise of this length and delta among the plans that it has measured intervals of.
        """
        start = max(0, len(self.history) - (self.promise.intervals - later))
        met = set(self.history.in_force[start:][self.history.measured[start:]].tolist())
        length, delta = self.promise.intervals, self.promise.delta
        made = [
            other.epsilon
            for plan in (*(self.history.plans[number] for number in met), self.after)
            for other in plan.zone.promises
            if isinstance(other, WindowPromise) and (other.intervals, other.delta) == (length, delta)
        ]
        return float(max(made)) if made else math.inf

    def _cost(self, fewest: int, most: int) -> float:
        """An upper bound on the cost of any window with `fewest` to `most` intervals after the change; exact for one.

        What all of them share is composed as it is; of the rest each interval is one of several, so it is replaced by
        the envelope of them.
        """
        length, count = self.promise.intervals, len(self.history)
        shared = [*self._earlier(max(0, count - (length - most)), count), *self._later(0, fewest)]
        either = [
            *self._earlier(max(0, count - (length - fewest)), max(0, count - (length - most))),
            *self._later(fewest, most),
        ]
        curves = tuple(dict.fromkeys(curve for event in dict.fromkeys(either) for curve in event.curves))
        composed = Counter(shared)
        if curves and most > fewest:
            composed[Event(curves)] += most - fewest
        accountant = CurveAccountant() if self.promise.delta else PureAccountant()
        return accountant.epsilon(list(composed.items()), float(self.promise.delta))

    def _earlier(self, start: int, end: int) -> Iterable[Event]:
        day = self.after.zone.intervals_per_day
        for at in range(start, end):
            if self.history.measured[at]:
                yield self.events[self.history.plans[int(self.history.in_force[at])]][(self.history.first + at) % day]

    def _later(self, start: int, end: int) -> Iterable[Event]:
        day, first = self.after.zone.intervals_per_day, self.history.end
        return (self.events[self.after][(first + at) % day] for at in range(start, end))
