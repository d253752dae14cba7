"""The worker on its clock: when it closes, what it releases where something is missing, and when it purges."""

from __future__ import annotations

import json

import numpy as np
import psycopg
import pytest

from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.landing.interval_manifest import is_closing, manifest_of
from murmurate.service.landing.layout import interval_name
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.worker import interval_worker
from tests.support.interval_workers import FIRST_S, GRACE_S, HOMES
from tests.support.operator_cli import STEP_S


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
    assert worker_setup.kinds() == ["fallback", "measured"]
    assert worker_setup.count("confidential.demand") == 1  # a demand without a quorum is not submitted
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
    assert worker_setup.kinds() == ["fallback"]
    (worker_setup.root / "meters.csv").write_bytes(table)
    worker_setup.report(1)
    worker_setup.at(1, GRACE_S)
    assert worker_setup.kinds() == ["fallback", "measured"]


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


def test_after_a_week_readings_demand_claims_and_registers_are_gone_and_the_log_is_not(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    store = worker_setup.worker.ingest_store
    with store.claim(np.array([1]), np.array([FIRST_S])) as first:
        assert first.all()
    points = [RegisterReading(FIRST_S + days * 86_400, 17_000) for days in (0, 1)]
    left, moving = RegisterState(points[0], points[0]), RegisterState(points[0], points[1])
    store.store_registers({1: left, 2: moving}, now_s=FIRST_S + 86_400)
    assert (worker_setup.count("confidential.demand"), worker_setup.count("confidential.seen")) == (1, 1)
    worker_setup.clock.now_s = FIRST_S + 7 * 86_400 - 60
    worker_setup.worker.purge(worker_setup.clock.now())
    assert worker_setup.landing.interval_folder(FIRST_S).exists()
    assert worker_setup.count("confidential.demand") == 1
    assert store.load_registers((1, 2)) == {1: left, 2: moving}
    worker_setup.clock.now_s += 61 + STEP_S
    worker_setup.worker.purge(worker_setup.clock.now())
    assert not worker_setup.landing.interval_folder(FIRST_S).exists()
    assert manifest_of(worker_setup.landing, FIRST_S).purged
    assert (worker_setup.count("confidential.demand"), worker_setup.count("confidential.seen")) == (0, 0)
    assert store.load_registers((1, 2)) == {2: moving}
    assert worker_setup.kinds() == ["measured"]


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


def test_nothing_that_the_worker_logs_or_reports_with_its_heartbeat_shows_a_demand(worker_setup):
    worker_setup.report(0)
    worker_setup.at(0, GRACE_S)
    worker_setup.report(1, homes=10)  # also where the quorum is missed
    worker_setup.at(1, GRACE_S)
    assert {"aggregated", "released"} <= {event for event, _ in worker_setup.logged}
    named = {facts["interval"] for _, facts in worker_setup.logged if "interval" in facts}  # a time, not a number
    assert named == {interval_name(FIRST_S + number * STEP_S) for number in (0, 1)}
    at_s, report = worker_setup.worker.context.state.heartbeats()[WORKER_HEARTBEAT]
    assert (at_s > 0, report["up_to_date"]) == (True, 1)
    logged = json.dumps([worker_setup.logged, report])
    assert "energy" not in logged
    for homes in (HOMES, 10):
        demand_wh = homes * 200 + (HOMES - homes) * 100
        assert str(demand_wh) not in logged
        assert str(demand_wh / 1000) not in logged
