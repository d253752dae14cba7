"""Restarts, two services at once, killed processes: every interval is released once and correctly."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.e2e.harbour import (
    BOUND_WH,
    HOMES,
    IMPUTED_WH,
    NIGHT_S,
    SETTINGS,
    STEP_S,
    await_interval,
    demand_by_interval,
    harbour_operator,
)
from tests.support.postgres_stores import released_kinds
from tests.support.request_bodies import readings_parquet
from tests.support.running_service import PARTS, HeadEnd
from tests.support.waiting import wait_until

SPEED = 300.0  # an interval takes 3 s, on a busy machine longer
INTERVALS = 24
KILL_AT = {5: 0, 9: 1, 13: 2, 17: 0, 21: 1}  # interval → part
RESTART_AT = 12
SILENT = {7, 8}  # intervals in which few meters report
PARQUET = "application/vnd.apache.parquet"


def send(head_end, services, energy, start_s):
    """Send a batch until one of the services acknowledges it."""
    body = readings_parquet(range(len(energy)), start_s, energy)
    for attempt in range(100):
        try:
            answer = head_end.post(services[attempt % len(services)], body, PARQUET)
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code in {401, 503}, answer.text
        time.sleep(0.02)
    raise AssertionError("no service has acknowledged")


def restart(service):
    assert service.stop() == 0
    service.start()
    service.wait_for(service.is_ready)


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """Two services after a night of faults, and the demand that their meters reported."""
    rng, dice = np.random.default_rng(3), random.Random(3)  # noqa: S311
    with harbour_operator(tmp_path_factory.mktemp("night"), speed=SPEED, in_s=9.0) as operator:
        services = [operator.start_service(SETTINGS) for _ in range(2)]
        expected = {}
        restarting = threading.Thread(target=restart, args=services[:1])
        with closing(HeadEnd(operator)) as head_end, ExitStack() as stack:
            stack.callback(lambda: restarting.ident is None or restarting.join())
            for number in range(INTERVALS):
                start_s = NIGHT_S + number * STEP_S
                time.sleep(max(0.0, operator.clock.wall_at(start_s + STEP_S) - time.time()))
                if number in KILL_AT:
                    services[dice.randrange(2)].kill_part(PARTS[KILL_AT[number]])
                if number == RESTART_AT:
                    restarting.start()
                energy = rng.integers(0, 600, 500 if number in SILENT else HOMES)
                receipt = send(head_end, services, energy, start_s)
                assert (receipt["accepted"], receipt["late"]) == (len(energy), 0)
                silent = HOMES - len(energy)
                expected[start_s // STEP_S] = (int(energy.sum()) + silent * IMPUTED_WH, len(energy), silent)
        await_interval(operator, services[0], NIGHT_S // STEP_S + INTERVALS - 1)
        yield operator, services, expected


def test_every_interval_is_released_once_and_only_a_missed_quorum_is_a_forecast(night):
    operator, _, expected = night
    rows = released_kinds(operator.dsn("log"), "harbour")
    few = {NIGHT_S // STEP_S + number for number in SILENT}
    assert [(interval, kind) for interval, kind in rows if interval in expected] == [
        (interval, "fallback" if interval in few else "measured") for interval in sorted(expected)
    ]


def test_the_demand_is_what_the_meters_reported_after_every_kill(night):
    operator, _, expected = night
    few = {NIGHT_S // STEP_S + number for number in SILENT}
    known = demand_by_interval(operator)
    measured = expected.keys() - few
    assert {at: known[at] for at in measured} == {at: expected[at] for at in measured}
    assert not few & known.keys()  # a demand without a quorum is not submitted
    assert all(energy <= HOMES * BOUND_WH for energy, _, _ in known.values())


def test_both_services_say_the_same_and_it_verifies(night):
    operator, services, _ = night
    for path in ("/zones/harbour/history.csv", "/openadr3/3.1.0/events", "/zones/harbour/log.jsonl", "/shards"):
        first, second = (httpx.get(service.url(path)) for service in services)
        assert first.status_code == 200
        assert first.content == second.content
        assert first.headers.get("etag") == second.headers.get("etag")
    assert "Everything holds." in operator.run(f"murmurate log verify {services[1].url('/shards')}")


def test_a_service_that_is_told_to_stop_stops(night):
    _, services, _ = night
    assert len(services[0].process_ids()) == 3
    assert services[0].stop() == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(services[0].url("/healthz"))
    assert not [service for service in services if '"crashed"' in service.log.read_text()]


def test_parts_whose_service_was_killed_end_too(night):
    _, services, _ = night
    parts = services[1].process_ids()
    services[1].kill()
    assert wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts))
    with pytest.raises(httpx.TransportError):
        httpx.get(services[1].url("/healthz"))
