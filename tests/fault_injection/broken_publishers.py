"""Broken publishers. They get the same faults as the real one, and the checks must find that they fail.

Their log is a plain table without checks. Each draw has an identifier, so that one draw sent twice differs from two
draws for one interval. The second must never happen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
import psycopg

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.release import protect
from tests.fault_injection.kill_points import KillPoint

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


class BrokenPublisher:
    """Shared by the broken publishers: two connections, and a loop over the zones."""

    def __init__(self, job: Mapping[str, Any], terms: ReleaseTerms, kill_point: KillPoint) -> None:
        self.job, self.terms, self.kill_point = job, terms, kill_point

    def publish(self) -> None:
        """Release every interval that the own state does not contain. After a failure, start again."""
        end = time.monotonic() + self.job["timeout_s"]
        while time.monotonic() < end:
            try:
                with (
                    psycopg.connect(self.job["state"], connect_timeout=2) as self.state,
                    psycopg.connect(self.job["log"], connect_timeout=2) as self.log,
                ):
                    while self.advance_all() and time.monotonic() < end:
                        pass
            except psycopg.Error as error:
                print("failed", type(error).__name__, error)  # noqa: T201 the output is searched
                time.sleep(self.job["pause_s"])
            else:
                return

    def advance_all(self) -> int:
        """Advance each zone by one step and return the number of steps."""
        return sum(map(self.advance, self.job["zones"]))

    def advance(self, zone: str) -> bool:
        """Release the next interval of a zone. Return False where none is left."""
        raise NotImplementedError

    def next_interval(self, zone: str, table: str) -> int | None:
        """Return the interval after the last one in the own state; None after the last desired one."""
        query = f"SELECT coalesce(max(interval) + 1, %s) FROM naive.{table} WHERE zone = %s"  # noqa: S608 two tables
        interval = self.state.execute(query, (self.job["first"], zone)).fetchone()[0]
        return interval if interval <= self.job["until"] else None

    def lock(self, zone: str) -> bool:
        query = "SELECT 1 FROM naive.zone WHERE zone = %s FOR UPDATE SKIP LOCKED"
        return self.state.execute(query, (zone,)).fetchone() is not None

    def draw(self, zone: str, interval: int) -> Draw:
        row = self.state.execute(_DEMAND, (zone, interval)).fetchone() or (0,)
        slot = self.terms.slot_of_day(interval)
        release = protect(
            np.array(row),
            scale_wh=self.terms.scale_wh[[slot]],
            core_wh=self.terms.core_wh[[slot]] if self.terms.distribution is NoiseDistribution.HUBER else None,
            curve=self.terms.curve,
            noise=SystemNoise(),
            distribution=self.terms.distribution,
        )
        return zone, interval, uuid.uuid4().hex, int(release.price_ticks[0])

    def append(self, drawn: Draw) -> None:
        self.kill_point.reach("before append")
        self.log.execute(_APPEND, drawn)
        self.log.commit()
        self.kill_point.reach("after append")

    def save(self, drawn: Draw) -> None:
        self.kill_point.reach("before save")
        self.state.execute("INSERT INTO naive.release VALUES (%s, %s, %s, %s)", drawn)
        self.state.commit()
        self.kill_point.reach("after save")


class PublishBeforeCommit(BrokenPublisher):
    """Locks its zone correctly, but publishes before it saves: after a crash between the two it draws again."""

    def advance(self, zone: str) -> bool:
        interval = self.next_interval(zone, "release") if self.lock(zone) else None
        if interval is not None:
            drawn = self.draw(zone, interval)
            self.append(drawn)
            self.save(drawn)
        self.state.commit()
        return interval is not None


class CheckThenInsert(BrokenPublisher):
    """Releases an interval that is not released yet, without a lock: another publisher does the same."""

    def advance(self, zone: str) -> bool:
        interval = self.next_interval(zone, "release")
        self.state.commit()
        if interval is None:
            return False
        drawn = self.draw(zone, interval)
        self.save(drawn)
        self.append(drawn)
        return True


class StateOnly(BrokenPublisher):
    """Unique key, debit and outbox in one transaction: correct, until the database itself is restored or split."""

    def advance(self, zone: str) -> bool:
        if not self.lock(zone):
            self.state.rollback()
            return False
        interval = self.next_interval(zone, "ledger")
        if interval is not None:
            cost = int(self.terms.epsilon_micro[self.terms.slot_of_day(interval)])
            query = "INSERT INTO naive.ledger VALUES (%s, %s, %s, %s, %s, false)"
            self.state.execute(query, (*self.draw(zone, interval), cost))
            self.kill_point.reach("before save")
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


BROKEN_PUBLISHERS = {
    "publish before commit": PublishBeforeCommit,
    "check then insert": CheckThenInsert,
    "state only": StateOnly,
}
