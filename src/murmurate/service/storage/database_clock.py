"""The clock of a database, as a client reads it."""

from __future__ import annotations

import time
from typing import NamedTuple

from murmurate.service.storage.session import TransactionSource


class ClockReading(NamedTuple):
    """What the clock of a database showed [s of UTC], at some time between two of this machine's monotonic clock."""

    shown_s: float
    asked_s: float
    answered_s: float

    @property
    def earliest_s(self) -> float:
        """The earliest time that this clock can show now [s of UTC]. It goes on as the monotonic clock does here."""
        return self.shown_s + time.monotonic() - self.answered_s

    @property
    def latest_s(self) -> float:
        """The latest time that this clock can show now [s of UTC]."""
        return self.shown_s + time.monotonic() - self.asked_s


def read_clock(database: TransactionSource) -> ClockReading:
    """Ask a database for its time. Raises psycopg.Error if it does not answer."""
    with database.transaction() as connection:
        asked_s = time.monotonic()
        (shown_s,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()[0]
        return ClockReading(shown_s, asked_s, time.monotonic())
