"""The worker on its clock: when it closes, what it releases where something is missing, and when it purges."""

from __future__ import annotations

import json

import numpy as np
import psycopg
import pytest

from murmurate.commands.open import open_zones
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.keyring import create_keyring
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import is_closing, manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.state_store import WORKER_HEARTBEAT
from murmurate.service.worker import interval_worker
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.types import Readings
from tests.support.operator_cli import STEP_S, small_zone
from tests.support.recorded_log import recorded_log

HOMES, GRACE_S, LEAD = 801, 60, 2
FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC


class SettableClock:
    """A clock that a test sets."""

    def __init__(self, now_s):
        self.now_s = float(now_s)

    def now(self):
        return self.now_s


class WorkerSetup:
    """A worker with everything it needs."""

    def __init__(self, root, state, log):
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
            quiet=True,
        )
        self.landing = Landing.create(root / "landing", interval_s=STEP_S)
        self.write_meters()
        self.clock, self.logged, self.workers = SettableClock(FIRST_S), [], []
        self.worker = self.new_worker()

    def write_meters(self, bound_wh=1000):
        rows = [f"{home},harbour,{bound_wh},100" for home in range(HOMES)]
        (self.root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")

    def new_worker(self):
        context = PublisherContext.from_databases(self.databases, self.root / "keys", release_slot_s=0.01)
        made = IntervalWorker(
            landing=self.landing,
            meters=self.root / "meters.csv",
            context=context,
            ingest_store=IngestStore(self.state_dsn),
            clock=self.clock,
            grace_s=GRACE_S,
        )
        self.workers.append(made)
        return made

    def report(self, number, homes=HOMES):
        readings = Readings.from_columns(meter=np.arange(homes), energy_wh=np.full(homes, 200))
        assert append_readings(self.landing, FIRST_S + number * STEP_S, readings)

    def at(self, number, after_s):
        """Run the worker this many seconds after the end of an interval."""
        self.clock.now_s = FIRST_S + (number + 1) * STEP_S + after_s
        self.worker.run_once()

    def kinds(self):
        with psycopg.connect(self.log_dsn) as connection:
            rows = connection.execute("SELECT line FROM public_log.entry ORDER BY seq").fetchall()
        return [json.loads(line)["kind"] for (line,) in rows][1:]

    def count(self, table):
        with psycopg.connect(self.state_dsn) as connection:
            return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608


@pytest.fixture
def worker_setup(tmp_path, state_dsn, log_dsn):
    made = WorkerSetup(tmp_path, state_dsn, log_dsn)
    with recorded_log(made.logged):
        yield made
    for worker in made.workers:
        worker.context.close()
        worker.ingest_store.close()


def test_an_interval_is_closed_at_its_deadline_and_not_before(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S - 1)
    assert worker_setup.kinds() == []
    assert not is_closing(worker_setup.landing, FIRST_S)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["measured"]
    worker_setup.at(0, GRACE_S + 1)
    assert worker_setup.kinds() == ["measured"]


def test_a_missed_quorum_releases_the_forecast(worker_setup):
    worker_setup.report(0, homes=int(0.9 * HOMES) - 1)
    worker_setup.at(0, GRACE_S)
    worker_setup.report(1, homes=int(0.9 * HOMES) + 1)
    worker_setup.at(1, GRACE_S)
    assert worker_setup.kinds() == ["forecast", "measured"]
    assert "the quorum is 0.9" in str(worker_setup.logged)


@pytest.mark.parametrize("mishap", ["no table", "a broken table", "a table beyond the plan's bound", "a bad file"])
def test_a_broken_source_releases_the_forecast_and_the_next_interval_is_measured_again(worker_setup, mishap):
    worker_setup.report(0)
    table = (worker_setup.root / "meters.csv").read_bytes()
    if mishap == "no table":
        (worker_setup.root / "meters.csv").unlink()
    elif mishap == "a broken table":
        (worker_setup.root / "meters.csv").write_text("meter,zone\n1,harbour\n")
    elif mishap == "a table beyond the plan's bound":
        worker_setup.write_meters(bound_wh=5000)
    else:
        (worker_setup.landing.shard_folder(FIRST_S, 0) / "odd.parquet").write_bytes(b"PAR1" + bytes(20) + b"PAR1")
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["forecast"]
    (worker_setup.root / "meters.csv").write_bytes(table)
    worker_setup.report(1)
    worker_setup.at(1, GRACE_S)
    assert worker_setup.kinds() == ["forecast", "measured"]


def test_a_worker_that_was_down_catches_up_with_what_is_still_in_time(worker_setup):
    for number in range(6):
        worker_setup.report(number)
    worker_setup.at(0, GRACE_S)
    worker_setup.worker = worker_setup.new_worker()  # as after a restart
    worker_setup.at(5, GRACE_S)
    assert worker_setup.kinds() == ["measured", *["withheld"] * 4, "measured"]


def test_two_workers_release_once(worker_setup):
    worker_setup.report(0)
    other = worker_setup.new_worker()
    worker_setup.at(0, GRACE_S)
    other.run_once()
    assert worker_setup.kinds() == ["measured"]
    worker_setup.report(1)
    worker_setup.clock.now_s += STEP_S
    other.run_once()
    worker_setup.worker.run_once()
    assert worker_setup.kinds() == ["measured", "measured"]


def test_after_a_week_readings_demand_and_claims_are_gone_and_the_log_is_not(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    with worker_setup.worker.ingest_store.claim(np.array([1]), np.array([FIRST_S])) as first:
        assert first.all()
    assert (worker_setup.count("confidential.demand"), worker_setup.count("confidential.seen")) == (1, 1)
    worker_setup.clock.now_s = FIRST_S + 7 * 86_400 - 60
    worker_setup.worker._last_purge_s = float("-inf")
    worker_setup.worker._purge_old(worker_setup.clock.now())
    assert worker_setup.landing.interval_folder(FIRST_S).exists()
    assert worker_setup.count("confidential.demand") == 1
    worker_setup.clock.now_s += 61 + STEP_S
    worker_setup.worker._purge_old(worker_setup.clock.now())
    assert not worker_setup.landing.interval_folder(FIRST_S).exists()
    assert manifest_of(worker_setup.landing, FIRST_S).purged
    assert (worker_setup.count("confidential.demand"), worker_setup.count("confidential.seen")) == (0, 0)
    assert worker_setup.kinds() == ["measured"]


def test_the_worker_records_a_heartbeat(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    at_s, logged = worker_setup.worker.context.state.heartbeats()[WORKER_HEARTBEAT]
    assert at_s > 0
    assert logged["up_to_date"] == 1
    assert "energy" not in json.dumps(logged)


def test_a_state_that_is_away_for_a_moment_costs_no_price(worker_setup, monkeypatch):
    worker_setup.report(0)
    worker_setup.report(1)
    real, calls = interval_worker.submit_demand, []

    def away_at_first(*given):
        calls.append(given)
        if len(calls) == 1:
            raise psycopg.OperationalError("gone")
        return real(*given)

    monkeypatch.setattr(interval_worker, "submit_demand", away_at_first)
    with pytest.raises(psycopg.OperationalError):
        worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == []
    worker_setup.at(0, GRACE_S + 5)
    worker_setup.at(1, GRACE_S)
    assert worker_setup.kinds() == ["measured", "measured"]


def test_nothing_that_the_worker_logs_shows_a_demand(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    worker_setup.report(1, homes=10)  # also where the quorum is missed
    worker_setup.at(1, GRACE_S)
    assert {"aggregated", "released"} <= {event for event, _ in worker_setup.logged}
    logged = json.dumps([worker_setup.logged, worker_setup.worker.context.state.heartbeats()[WORKER_HEARTBEAT][1]])
    for homes in (HOMES, 10):
        demand_wh = homes * 200 + (HOMES - homes) * 100
        assert str(demand_wh) not in logged
        assert str(demand_wh / 1000) not in logged
