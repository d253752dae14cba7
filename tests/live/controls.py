"""Broken publishers. They suffer the same faults as the real one, and must be seen to fail: else the harness is blind.

Their log is a plain table that takes whatever it is given. Each draw has a name of its own, so that the same draw sent
twice is told from two draws for one interval: the second is what must never happen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg

from murmurate.curator.interval import protect
from murmurate.curator.terms import Terms
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from tests.live.kill_points import Fate

STATE_TABLES = """
CREATE SCHEMA naive;
CREATE TABLE naive.zone (zone text PRIMARY KEY);
CREATE TABLE naive.release (zone text, interval bigint, draw text, price_ticks bigint);
CREATE TABLE naive.ledger (zone text, interval bigint, draw text, price_ticks bigint, cost bigint, sent bool,
    PRIMARY KEY (zone, interval));
"""
LOG_TABLES = """
CREATE SCHEMA naive;
CREATE TABLE naive.entry (zone text, interval bigint, draw text, price_ticks bigint);
"""
_APPEND = "INSERT INTO naive.entry VALUES (%s, %s, %s, %s)"
_DEMAND = "SELECT energy_wh FROM confidential.demand WHERE zone = %s AND interval = %s"

Draw = tuple[str, int, str, int]


class Naive:
    """What the broken publishers share: two connections, and a walk over the zones."""

    def __init__(self, order: Mapping[str, Any], terms: Terms, fate: Fate) -> None:
        self.order, self.terms, self.fate = order, terms, fate

    def publish(self) -> None:
        """Until every interval is released as far as the own state knows; a failure begins anew."""
        end = time.monotonic() + self.order["patience_s"]
        while time.monotonic() < end:
            try:
                with (
                    psycopg.connect(self.order["state"], connect_timeout=2) as self.state,
                    psycopg.connect(self.order["log"], connect_timeout=2) as self.log,
                ):
                    while self.advance_all() and time.monotonic() < end:
                        pass
            except psycopg.Error as error:
                print("failed", type(error).__name__, error)  # noqa: T201 the output is searched
                time.sleep(self.order["pause_s"])
            else:
                return

    def advance_all(self) -> int:
        """One step for each zone; how many there were to take."""
        return sum(map(self.advance, self.order["zones"]))

    def advance(self, zone: str) -> bool:
        """Release the next interval of a zone; False where nothing is left."""
        raise NotImplementedError

    def next_interval(self, zone: str, table: str) -> int | None:
        """The interval after the last that the own state knows, None beyond the last wanted."""
        query = f"SELECT coalesce(max(interval) + 1, %s) FROM naive.{table} WHERE zone = %s"  # noqa: S608 two tables
        interval = self.state.execute(query, (self.order["first"], zone)).fetchone()[0]
        return interval if interval <= self.order["until"] else None

    def lock(self, zone: str) -> bool:
        query = "SELECT 1 FROM naive.zone WHERE zone = %s FOR UPDATE SKIP LOCKED"
        return self.state.execute(query, (zone,)).fetchone() is not None

    def draw(self, zone: str, interval: int) -> Draw:
        row = self.state.execute(_DEMAND, (zone, interval)).fetchone() or (0,)
        slot = self.terms.slot(interval)
        release = protect(
            np.array(row),
            scale_wh=self.terms.scale_wh[[slot]],
            core_wh=self.terms.core_wh[[slot]] if self.terms.law is NoiseLaw.HUBER else None,
            curve=self.terms.curve,
            noise=SystemNoise(),
            law=self.terms.law,
        )
        return zone, interval, uuid.uuid4().hex, int(release.price_ticks[0])

    def append(self, drawn: Draw) -> None:
        self.fate.pass_by("before append")
        self.log.execute(_APPEND, drawn)
        self.log.commit()
        self.fate.pass_by("after append")

    def save(self, drawn: Draw) -> None:
        self.fate.pass_by("before save")
        self.state.execute("INSERT INTO naive.release VALUES (%s, %s, %s, %s)", drawn)
        self.state.commit()
        self.fate.pass_by("after save")


class PublishBeforeCommit(Naive):
    """Locks its zone as it should, but publishes first and books afterwards: a crash between the two redraws."""

    def advance(self, zone: str) -> bool:
        interval = self.next_interval(zone, "release") if self.lock(zone) else None
        if interval is not None:
            drawn = self.draw(zone, interval)
            self.append(drawn)
            self.save(drawn)
        self.state.commit()
        return interval is not None


class CheckThenInsert(Naive):
    """Looks whether an interval is released, and if not, releases it: so does the publisher beside it."""

    def advance(self, zone: str) -> bool:
        interval = self.next_interval(zone, "release")
        self.state.commit()
        if interval is None:
            return False
        drawn = self.draw(zone, interval)
        self.save(drawn)
        self.append(drawn)
        return True


class StateOnly(Naive):
    """Unique key, debit and outbox in one transaction: flawless, until the database itself is set back or split."""

    def advance(self, zone: str) -> bool:
        if not self.lock(zone):
            self.state.rollback()
            return False
        interval = self.next_interval(zone, "ledger")
        if interval is not None:
            cost = int(self.terms.epsilon_micro[self.terms.slot(interval)])
            query = "INSERT INTO naive.ledger VALUES (%s, %s, %s, %s, %s, false)"
            self.state.execute(query, (*self.draw(zone, interval), cost))
            self.fate.pass_by("before save")
        self.state.commit()
        self.send(zone)
        return interval is not None

    def send(self, zone: str) -> None:
        query = "SELECT zone, interval, draw, price_ticks FROM naive.ledger WHERE zone = %s AND NOT sent"
        for drawn in self.state.execute(query, (zone,)).fetchall():
            self.append(drawn)
            query = "UPDATE naive.ledger SET sent = true WHERE zone = %s AND interval = %s"
            self.state.execute(query, drawn[:2])
        self.state.commit()


CONTROLS = {
    "publish before commit": PublishBeforeCommit,
    "check then insert": CheckThenInsert,
    "state only": StateOnly,
}
