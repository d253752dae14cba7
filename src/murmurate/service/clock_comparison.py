"""The clock of a process compared with that of a database. Every comparison of a service is made here:

    private   state   it takes no reading while they differ: which one is late, and whose interval is over, is not known
    worker    state   it acts by the earlier of the two
    worker    log     it names the log's clock where that one keeps a release from being taken
    public    log     it calls no price current while they differ

Compared are the clocks of the machines, also where the time of the service is a simulated one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress

import psycopg
from prometheus_client.core import GaugeMetricFamily

from murmurate.service.clock import ServiceClock
from murmurate.service.storage.session import ClockReading, TransactionSource, read_clock

logger = logging.getLogger(__name__)

MAX_CLOCK_DIFFERENCE_S = 5.0  # more is a wrong clock
READ_PERIOD_S = 1.0


class ClockDifferenceError(Exception):
    """The clock of this process and that of a database differ, so the time is not known."""


class ClockComparison:
    """The clock of a process and that of a database, `state database` or `log`. Any thread may ask.

    Between two readings the database's clock is taken to advance as the monotonic clock does here, so a jump of this
    machine's clock is seen at once.
    """

    def __init__(self, database: str, clock: ServiceClock) -> None:
        self._database, self._clock = database, clock
        self._reading: ClockReading | None = None
        self._reported: str | None = None  # the fault that was last logged

    def note(self, reading: ClockReading | None) -> None:
        """Keep what the database's clock showed, and log it where the two begin or cease to differ."""
        self._reading = reading or self._reading
        self.log_change()

    def follow(self, database: TransactionSource, stopped: threading.Event) -> None:
        """Read the database's clock now, and then once a second in another thread."""

        def read() -> None:
            with suppress(psycopg.Error, OSError):  # out of reach: its clock is taken to advance
                self.note(read_clock(database))

        def read_again() -> None:
            while not stopped.wait(READ_PERIOD_S):
                read()

        read()
        threading.Thread(target=read_again, name="clock", daemon=True).start()

    @property
    def difference_s(self) -> float | None:
        """How far this machine's clock is ahead of the database's [s]; None: that one was never read.

        Of what the time of the answer leaves open it is the smallest difference: a slow answer is no wrong clock.
        """
        if self._reading is None:
            return None
        wall_s = self._clock.wall_now()
        return max(wall_s - self._reading.latest_s, min(0.0, wall_s - self._reading.earliest_s))

    @property
    def fault(self) -> str | None:
        """That the two clocks differ, and the remedy, as the end of a sentence; None: not that it is known."""
        difference_s = self.difference_s
        if difference_s is None or abs(difference_s) <= MAX_CLOCK_DIFFERENCE_S:
            return None
        side = "ahead of" if difference_s > 0 else "behind"
        return f"is {abs(difference_s):,.0f} s {side} the {self._database}'s: check NTP on both machines"

    def agreed_now(self) -> float:
        """The time of the service [s of UTC]. Raises ClockDifferenceError while the clocks differ."""
        now_s = self._clock.now()
        self.check()
        return now_s

    def check(self) -> None:
        """Raise ClockDifferenceError while the clocks differ."""
        if (fault := self.fault) is not None:
            raise ClockDifferenceError(f"the clock of this process {fault}")

    def bounded_now(self) -> float:
        """The time to act by [s of UTC]: the earlier clock counts, as an interval that is closed too early stays so."""
        now_s, wall_s = self._clock.now(), self._clock.wall_now()
        if self._reading is None or wall_s - self._reading.earliest_s <= MAX_CLOCK_DIFFERENCE_S:
            return now_s
        return self._clock.simulated_at(self._reading.earliest_s)

    def log_change(self) -> None:
        """Log it where the two clocks begin or cease to differ."""
        difference_s, fault = self.difference_s, self.fault
        if difference_s is None or (fault is None) == (self._reported is None):
            return
        self._reported = fault
        facts = {"ahead_s": round(difference_s, 1)}
        if fault is None:
            logger.info("clock agrees with the %s", self._database, extra=facts)
        elif difference_s > 0:
            logger.warning("clock ahead of the %s", self._database, extra=facts)
        else:
            logger.warning("clock behind the %s", self._database, extra=facts)


def clock_difference_metric(differences_s: Mapping[tuple[str, str], float | None]) -> GaugeMetricFamily:
    """How far clocks are ahead, by process and store (`state`, `log`). None: not known, without a sample."""
    metric = GaugeMetricFamily(
        "murmurate_clock_difference_seconds",
        "The clock of a process minus that of a database.",
        labels=("process", "store"),
    )
    for labels, difference_s in differences_s.items():
        if difference_s is not None:
            metric.add_metric(labels, round(difference_s, 1))
    return metric
