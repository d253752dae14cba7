"""The clock: which intervals are due, which are too late, and the beat on which everything leaves."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from murmurate.errors import MurmurateError
from murmurate.publication.wish import Opening, Wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the price of an interval is decided."""

    interval_s: int
    lead: int
    grace_s: int = 60  # how long after its end an interval waits for its readings

    def wish(self, now: float, opening: Opening | None = None) -> Wish:
        """What should be public by `now` [s of UTC].

        An interval is due when its grace is over, and too late for a price once the interval that pays it has begun.

        >>> Schedule(interval_s=900, lead=2).wish(now=9000 + 61)
        Wish(until=9, in_time_from=9, opening=None, plan=None, key=None)
        >>> Schedule(interval_s=900, lead=2).wish(now=9000 + 59).until
        8
        """
        due = int((now - self.grace_s) // self.interval_s) - 1
        too_late = int(now // self.interval_s) - self.lead
        return Wish(until=due, in_time_from=too_late + 1, opening=opening)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time of a service [s of UTC]: the wall clock, or the past played faster, as a demonstration does.

    >>> Clock(played_s=1000.0, real_s=5000.0, speed=60.0).at(5002.0)
    1120.0
    """

    played_s: float = 0.0
    real_s: float = 0.0
    speed: float = 1.0

    def at(self, real_s: float) -> float:
        return self.played_s + self.speed * (real_s - self.real_s)

    def now(self) -> float:
        return self.at(time.time())

    def real(self, played_s: float) -> float:
        """When the wall clock shows what this clock calls `played_s`."""
        return self.real_s + (played_s - self.played_s) / self.speed


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatClock:
    """Everything that is published leaves on a beat: the time it leaves does not tell how long it took to make."""

    beat_s: float = 0.25

    def wait(self) -> None:
        """Sleep until the next beat; one that is just missed is waited for in full."""
        now = time.time()
        time.sleep(max(0.0, (now // self.beat_s + 1) * self.beat_s - now))


def begin_of(text: str, interval_s: int, option: str) -> int:
    """When an interval begins [s of UTC] that a person names.

    >>> begin_of("2026-05-01T00:15Z", 900, "--first")
    1777594500
    """
    try:
        begins = datetime.fromisoformat(text)
    except ValueError:
        raise MurmurateError(option, text, "must be a time such as 2026-05-01T00:00Z") from None
    if begins.tzinfo is None or begins.timestamp() % interval_s:
        allowed = f"must name its time zone (2026-05-01T00:00Z) and begin an interval of {interval_s} s"
        raise MurmurateError(option, text, allowed)
    return int(begins.timestamp())
