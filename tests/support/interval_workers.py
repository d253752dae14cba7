"""A worker on real databases and a real landing, with a clock that a test sets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import psycopg
import pytest

from murmurate.operations.publishing import open_zones
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.keyring import create_keyring
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.types import Readings
from tests.support.operator_cli import STEP_S, small_zone
from tests.support.postgres_stores import released_kinds
from tests.support.recorded_log import recorded_log
from tests.support.waiting import wait_until

HOMES, GRACE_S, LEAD = 801, 60, 2
FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC


class SettableClock:
    """A clock that a test sets. `ahead_s` is how far the machine's own clock is wrong."""

    def __init__(self, now_s: float) -> None:
        self.now_s, self.ahead_s = float(now_s), 0.0

    def now(self) -> float:
        return self.now_s + self.ahead_s

    def wall_now(self) -> float:
        return time.time() + self.ahead_s

    def simulated_at(self, wall_s: float) -> float:
        return self.now_s + (wall_s - time.time())

    def wall_at(self, simulated_s: float) -> float:
        return time.time() + (simulated_s - self.now_s)


class WorkerSetup:
    """A worker with everything it needs."""

    def __init__(self, root: Path, state: str, log: str) -> None:
        self.root, self.state_dsn, self.log_dsn = root, state, log
        (root / "plan.json").write_text(make_plan(parse_zone(small_zone())).to_json())
        create_keyring(root / "keys")
        self.databases = Databases.from_dsns(state=state, log=log)
        open_zones(
            [root / "plan.json"],
            self.databases,
            root / "keys",
            lead_intervals=LEAD,
            first="2026-11-14T00:00Z",
        )
        self.landing = Landing.create(root / "landing", interval_s=STEP_S)
        self.write_meters()
        self.clock = SettableClock(FIRST_S)
        self.logged: list[Any] = []
        self.workers: list[IntervalWorker] = []
        self.worker = self.new_worker()

    def write_meters(self, bound_wh: int = 1000) -> None:
        rows = [f"{home},harbour,{bound_wh},100" for home in range(HOMES)]
        (self.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")

    def new_worker(self) -> IntervalWorker:
        context = PublisherContext.from_databases(self.databases, self.root / "keys", release_slot_s=0.01)
        made = IntervalWorker(
            landing=self.landing,
            meters=self.root / "meters.csv",
            context=context,
            ingest_store=IngestStore(self.state_dsn),
            clock=cast("ServiceClock", self.clock),
            grace_s=GRACE_S,
        )
        self.workers.append(made)
        return made

    def end(self, *workers: IntervalWorker) -> None:
        """Close the connections of workers as the ends of their processes do, and wait until the server sees it."""
        for worker in workers:
            worker.context.close()
        query = """
            SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
            WHERE l.locktype = 'advisory' AND d.datname = current_database()"""
        with psycopg.connect(self.state_dsn, autocommit=True) as connection:
            assert wait_until(lambda: connection.execute(query).fetchall() == [(0,)])

    def report(self, number: int, homes: int = HOMES) -> None:
        readings = Readings.from_columns(meter=np.arange(homes), energy_wh=np.full(homes, 200))
        assert append_readings(self.landing, FIRST_S + number * STEP_S, readings)

    def at(self, number: int, after_s: float) -> None:
        """Run the worker this many seconds after the end of an interval."""
        self.clock.now_s = FIRST_S + (number + 1) * STEP_S + after_s
        self.worker.run_once()

    def release(self, *numbers: int) -> None:
        """Have every home report these intervals, and run the worker at the deadline of each."""
        for number in numbers:
            self.report(number)
            self.at(number, GRACE_S)

    def events(self) -> list[str]:
        """The events that were logged."""
        return [event for event, _ in self.logged]

    def kinds(self) -> list[str]:
        return [kind for _, kind in released_kinds(self.log_dsn, "harbour")]

    def column(self, name: str) -> list[Any]:
        """A column of the demand in the state, by interval."""
        with psycopg.connect(self.state_dsn) as connection:
            query = f"SELECT {name} FROM confidential.demand ORDER BY interval"  # noqa: S608
            return [value for (value,) in connection.execute(query).fetchall()]

    def release_report(self) -> Any:
        return self.worker.context.state.heartbeats()[WORKER_HEARTBEAT][1]

    def count(self, table: str) -> int:
        with psycopg.connect(self.state_dsn) as connection:
            return len(connection.execute(f"SELECT FROM {table}".encode()).fetchall())


@pytest.fixture
def worker_setup(tmp_path: Path, state_dsn: str, log_dsn: str) -> Iterator[WorkerSetup]:
    made = WorkerSetup(tmp_path, state_dsn, log_dsn)
    with recorded_log(made.logged):
        yield made
    for worker in made.workers:
        worker.context.close()
        worker.ingest_store.close()
