"""Restarts, two services at once, killed processes: every interval is released once and correctly."""

from __future__ import annotations

import io
import random
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.running_service import BOUND_WH, HOMES, IMPUTED_WH, STEP_S, service_under_test
from tests.support.postgres_stores import released_kinds

FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC
SPEED = 300.0  # an interval takes 3 s, on a busy machine longer
INTERVALS = 24
KILL_AT = {5: 0, 9: 1, 13: 2, 17: 0, 21: 1}  # interval → process
RESTART_AT = 12
SILENT = {7, 8}  # intervals in which few meters report
ALL = "application/vnd.apache.parquet"


def body(start_s, energy):
    start = pa.array(np.full(len(energy), start_s * 10**6), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"meter": np.arange(len(energy)), "interval_start": start, "energy_wh": energy}), sink)
    return sink.getvalue()


class HeadEnd:
    """Sends a batch until one of the services acknowledges it."""

    def __init__(self, service, instances):
        self.service, self.instances, self.tokens = service, instances, {}

    def send(self, data):
        for attempt in range(100):
            one = self.instances[attempt % len(self.instances)]
            try:
                answer = self.post(one, data)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                return answer.json()
            assert answer.status_code in {401, 503}, answer.text
            time.sleep(0.02)
        raise AssertionError("no service has acknowledged")

    def post(self, one, data):
        if one.private not in self.tokens:
            form = {"grant_type": "client_credentials", "client_id": "head-end"}
            form |= {"client_secret": self.service.secrets["head-end"]}
            answer = httpx.post(f"http://127.0.0.1:{one.private}/auth/token", data=form)
            self.tokens[one.private] = answer.raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {self.tokens[one.private]}", "content-type": ALL}
        return httpx.post(f"http://127.0.0.1:{one.private}/readings", content=data, headers=headers, timeout=120)


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """Two services after a night of faults, and the demand that their meters reported."""
    rng, dice = np.random.default_rng(3), random.Random(3)  # noqa: S311
    with service_under_test(tmp_path_factory.mktemp("night"), FIRST_S, SPEED) as service:
        service.prepare()
        service.begin(in_s=9.0)
        instances = [service.instance(mqtt=False).start() for _ in range(2)]
        head_end, expected = HeadEnd(service, instances), {}
        restarting = threading.Thread(target=instances[0].restart)
        try:
            for number in range(INTERVALS):
                start_s = FIRST_S + number * STEP_S
                time.sleep(max(0.0, service.clock.wall_at(start_s + STEP_S) - time.time()))
                if number in KILL_AT:
                    instances[dice.randrange(2)].kill_a_process(KILL_AT[number])
                if number == RESTART_AT:
                    restarting.start()
                energy = rng.integers(0, 600, 500 if number in SILENT else HOMES)
                receipt = head_end.send(body(start_s, energy))
                assert (receipt["accepted"], receipt["late"]) == (len(energy), 0)
                silent = HOMES - len(energy)
                expected[start_s // STEP_S] = (int(energy.sum()) + silent * IMPUTED_WH, len(energy), silent)
        finally:
            if restarting.ident is not None:
                restarting.join()
        _until_decided(service, FIRST_S // STEP_S + INTERVALS - 1)
        yield service, instances, expected


def _until_decided(service, interval):
    end = time.monotonic() + 30 * service.slow
    query = "SELECT interval FROM public_log.head"
    while True:
        with psycopg.connect(service.log) as connection:
            if connection.execute(query).fetchone()[0] >= interval:
                return
        assert time.monotonic() < end, (service.root / "serve.log").read_text()[-3000:]
        time.sleep(0.1)


def test_every_interval_is_released_once_and_only_a_missed_quorum_is_a_forecast(night):
    service, _, expected = night
    released = [(interval, kind) for interval, kind in released_kinds(service.log, "harbour") if interval in expected]
    few = {FIRST_S // STEP_S + number for number in SILENT}
    assert released == [(interval, "fallback" if interval in few else "measured") for interval in sorted(expected)]


def test_the_demand_is_what_the_meters_reported_whatever_was_killed(night):
    service, _, expected = night
    few = {FIRST_S // STEP_S + number for number in SILENT}
    known = service.demand()
    assert {at: known[at] for at in expected if at not in few} == {
        at: one for at, one in expected.items() if at not in few
    }
    assert not few & known.keys()  # a demand without a quorum is not submitted
    assert all(energy <= HOMES * BOUND_WH for energy, _, _ in known.values())


def test_both_services_say_the_same_and_it_verifies(night):
    service, instances, _ = night
    for path in ("/zones/harbour/history.csv", "/openadr3/3.1.0/events", "/zones/harbour/log.jsonl", "/shards"):
        first, second = (httpx.get(one.url(path)) for one in instances)
        assert first.status_code == 200
        assert first.content == second.content
        assert first.headers.get("etag") == second.headers.get("etag")
    assert "Everything holds." in service.run("verify", instances[1].url("/shards"))


def test_a_service_that_is_told_to_stop_stops(night):
    service, instances, _ = night
    parts = instances[0].process_ids()
    assert len(parts) == 3
    instances[0].stop()
    with pytest.raises(httpx.TransportError):
        httpx.get(instances[0].url("/healthz"))
    assert '"crashed"' not in (service.root / "serve.log").read_text()


def test_parts_whose_service_was_killed_end_too(night):
    _, instances, _ = night
    parts = instances[1].process_ids()
    instances[1].process.kill()
    instances[1].process.wait(180)
    end = time.monotonic() + 180
    while any(Path(f"/proc/{pid}").exists() for pid in parts):
        assert time.monotonic() < end
        time.sleep(0.1)
    with pytest.raises(httpx.TransportError):
        httpx.get(instances[1].url("/healthz"))
