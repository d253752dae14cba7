"""The clock: which intervals are due, which are too late, and the slots in which releases are published."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from murmurate.errors import MurmurateError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSchedule:
    """When the price of an interval is decided."""

    interval_s: int
    lead_intervals: int
    grace_s: int = 60  # how long after its end an interval waits for its readings

    def due_interval(self, now: float) -> int:
        """The last interval that should be public by `now` [s of UTC]: its grace is over.

        >>> [ReleaseSchedule(interval_s=900, lead_intervals=2).due_interval(9000 + s) for s in (59, 61)]
        [8, 9]
        """
        return int((now - self.grace_s) // self.interval_s) - 1

    def first_in_time(self, now: float) -> int:
        """The first interval whose price is not too late: the interval that pays it has not begun.

        >>> ReleaseSchedule(interval_s=900, lead_intervals=2).first_in_time(9000 + 61)
        9
        """
        return int(now // self.interval_s) - self.lead_intervals + 1

    def next_change(self, now: float) -> float:
        """When another interval is due, or one comes too late [s of UTC]: until then the same prices are to be made.

        >>> ReleaseSchedule(interval_s=900, lead_intervals=2).next_change(9000 + 61)
        9900
        """
        return min((now - at) // self.interval_s * self.interval_s + self.interval_s + at for at in (0, self.grace_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceClock:
    """The time of a service [s of UTC]: the wall clock, or a simulated one that runs faster, as in the demo.

    >>> ServiceClock(simulated_s=1000.0, wall_s=5000.0, speed=60.0).simulated_at(5002.0)
    1120.0
    """

    simulated_s: float = 0.0
    wall_s: float = 0.0
    speed: float = 1.0

    def simulated_at(self, wall_s: float) -> float:
        return self.simulated_s + self.speed * (wall_s - self.wall_s)

    def now(self) -> float:
        return self.simulated_at(self.wall_now())

    def wall_now(self) -> float:
        """The clock of this machine [s of UTC]."""
        return time.time()

    def wall_at(self, simulated_s: float) -> float:
        """The time of the wall clock at which this clock shows `simulated_s` [s of UTC]."""
        return self.wall_s + (simulated_s - self.simulated_s) / self.speed


_MAX_LAST_SLEEP_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSlotClock:
    """Entries are published at the start of a slot, so that the time does not show how long it took to make them."""

    release_slot_s: float = 0.25

    def wait_for_slot(self) -> None:
        """Sleep until a slot begins.

        A process that has slept longer wakes up later by some microseconds. So the last sleep always has the same
        length, however long the entries took.
        """
        last_s = min(_MAX_LAST_SLEEP_S, self.release_slot_s / 4)
        now = time.time()
        slot = ((now + last_s) // self.release_slot_s + 1) * self.release_slot_s
        time.sleep(max(0.0, slot - last_s - now))
        time.sleep(max(0.0, slot - time.time()))


def parse_interval_start(text: str, interval_s: int, option: str) -> int:
    """When an interval begins [s of UTC] that a person names.

    >>> parse_interval_start("2026-05-01T00:15Z", 900, "--first")
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
