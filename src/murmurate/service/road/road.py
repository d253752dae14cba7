"""The road on a fixed clock: at its deadline an interval is closed and gathered, then every zone gets its release.

Any number of these may run for the same zones: the closing decides once, the demand is the same for all, and the log
takes one record. Whatever fails before the release, the release comes: from the plan's forecast.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from murmurate.errors import MurmurateError
from murmurate.publication.publisher import Outcome
from murmurate.service.clock import Clock
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.gathering.closing import close, forget, refuse_forgotten
from murmurate.service.gathering.handover import hand_over
from murmurate.service.gathering.job import Gathered, gather
from murmurate.service.gathering.layout import DAY_S, Landing, stamp
from murmurate.service.gathering.metertable import pin, pinned
from murmurate.service.office import Office
from murmurate.service.saying import Say

_FORGET_EVERY_S = 3600
_NONE_YET = -(2**62)


@dataclass(slots=True, kw_only=True)
class Road:
    """One curator at work."""

    landing: Landing
    meters: Path
    office: Office
    memory: DoorMemory
    clock: Clock
    say: Say
    grace_s: int = 60
    quorum: float = 0.9
    keep_days: float = 7.0
    patience_s: float = 30.0
    _gathered: int = field(default=_NONE_YET, init=False)  # the last interval that was tried
    _released: int = field(default=_NONE_YET, init=False)  # the last interval that every zone has decided
    _forgot_s: float = field(default=float(_NONE_YET), init=False)

    def turn(self) -> None:
        """Do what is due. Call it on every beat: most of the time there is nothing to do."""
        now = self.clock.now()
        due = int((now - self.grace_s) // self.landing.interval_s) - 1
        if due > self._gathered:
            self._gather(due)
        if due > self._released:
            self._release(due, now)
        if now - self._forgot_s > _FORGET_EVERY_S:
            self._forget(now)
            self._forgot_s = now

    def _gather(self, due: int) -> None:
        """Hand over the demand of each interval that may still get a price. What cannot be gathered is left to the
        forecast, and is not tried again: the deadline is over. Without the state there is no release either, so that
        is waited for: the error goes up, and the next turn tries again.
        """
        longest = max((opening.lead for opening in self.office.state.openings().values()), default=0)
        for interval in range(max(self._gathered + 1, due - max(longest, 1) + 1), due + 1):
            start_s = interval * self.landing.interval_s
            try:
                gathered = self._close_and_gather(start_s)
                aside = hand_over(self.office.state, self.landing.interval_s, gathered, self.quorum)
            except (MurmurateError, OSError) as error:
                self.say("not gathered", interval=stamp(start_s), why=_reason(error))
            else:
                self._tell(gathered[0], aside)
            self._gathered = interval
        self._gathered = due

    def _close_and_gather(self, start_s: int) -> list[Gathered]:
        """Under the meter table of now, unless somebody has closed the interval under another one."""
        table = pin(self.landing, self.meters)
        closing = close(self.landing, start_s, table.version, sharded=table.sharded)
        refuse_forgotten(closing)
        if closing.meters != table.version:
            table = pinned(self.landing, closing.meters)
        return gather(self.landing, table, [closing])

    def _tell(self, gathered: Gathered, aside: dict[str, str]) -> None:
        reported, imputed = int(gathered.demand.reported.sum()), int(gathered.demand.imputed.sum())
        counts = {"reported": reported, "silent": imputed, "unknown": gathered.unknown, "astray": gathered.astray}
        self.say("gathered", interval=stamp(gathered.start_s), **counts, aside=_first(aside))

    def _release(self, due: int, now: float) -> None:
        failed: set[str] = set()
        wishes, unplanned = self.office.due(now, self.grace_s)
        outcome = self.office.publisher().publish(wishes, patience_s=self.patience_s, failed=failed.add)
        outcome.aside |= unplanned
        self.say("released", until=due, **_counts(outcome), failed=sorted(failed), why=_first(outcome.aside))
        if not outcome.moved:
            self._released = due
        said = {"interval_s": self.landing.interval_s, "until": due, **_counts(outcome), "why": _first(outcome.aside)}
        self.office.state.beat("road", said)

    def _forget(self, now: float) -> None:
        """Delete what was released long ago: readings, demand, and which signed readings were taken."""
        before_s = int(now - self.keep_days * DAY_S)
        try:
            count = forget(self.landing, before_s)
        except (MurmurateError, OSError) as error:
            self.say("not forgotten", why=_reason(error))
            return
        before = before_s // self.landing.interval_s
        self.office.state.forget_demand(self._zones(), before)
        self.memory.forget(before_s)
        if count:
            self.say("forgotten", intervals=count)

    def _zones(self) -> Collection[str]:
        """Zones whose intervals are as long as the landing's."""
        state = self.office.state
        terms = {zone: state.terms(plan) for zone, plan in state.plans().items()}
        return [zone for zone, one in terms.items() if one is not None and one.interval_s == self.landing.interval_s]


def _counts(outcome: Outcome) -> dict[str, int]:
    return {"done": len(outcome.done), "aside": len(outcome.aside), "unfinished": len(outcome.moved)}


def _first(reasons: dict[str, str], most: int = 5) -> dict[str, str]:
    return dict(sorted(reasons.items())[:most])


def _reason(error: Exception) -> str:
    """Our own refusals name files, intervals and rules, never a reading."""
    return str(error) if isinstance(error, MurmurateError) else type(error).__name__
