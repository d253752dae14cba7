"""Restarts, two services at once, parts killed without a word: every interval is released, once, and rightly."""

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

from tests.road.town import BOUND_WH, HOMES, IMPUTED_WH, STEP_S, town

FIRST_S = 1_794_614_400  # 2026-11-14 00:00 UTC
SPEED = 600.0
INTERVALS = 24
KILL_AT = {5: 0, 9: 1, 13: 2, 17: 0, 21: 1}  # interval → part
RESTART_AT = 12
SILENT = {7, 8}  # intervals in which hardly anybody reports
ALL = "application/vnd.apache.parquet"


def body(start_s, energy):
    start = pa.array(np.full(len(energy), start_s * 10**6), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"meter": np.arange(len(energy)), "interval_start": start, "energy_wh": energy}), sink)
    return sink.getvalue()


class HeadEnd:
    """Sends until somebody has acknowledged."""

    def __init__(self, made, instances):
        self.made, self.instances, self.tokens = made, instances, {}

    def send(self, data):
        for attempt in range(100):
            one = self.instances[attempt % len(self.instances)]
            try:
                answer = self._post(one, data)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == 200:
                return answer.json()
            assert answer.status_code in {401, 503}, answer.text
            time.sleep(0.02)
        raise AssertionError("nobody has acknowledged")

    def _post(self, one, data):
        if one.private not in self.tokens:
            form = {"grant_type": "client_credentials", "client_id": "head-end"}
            form |= {"client_secret": self.made.secrets["head-end"]}
            answer = httpx.post(f"http://127.0.0.1:{one.private}/auth/token", data=form)
            self.tokens[one.private] = answer.raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {self.tokens[one.private]}", "content-type": ALL}
        return httpx.post(f"http://127.0.0.1:{one.private}/readings", content=data, headers=headers, timeout=30)


@pytest.fixture(scope="module")
def night(tmp_path_factory):
    """A town after a bad night: what its meters said, and the log."""
    rng, dice = np.random.default_rng(3), random.Random(3)  # noqa: S311
    with town(tmp_path_factory.mktemp("night"), FIRST_S, SPEED) as made:
        made.prepare()
        made.begin(in_s=9.0)
        instances = [made.instance(mqtt=False).start() for _ in range(2)]
        head_end, expected = HeadEnd(made, instances), {}
        for number in range(INTERVALS):
            start_s = FIRST_S + number * STEP_S
            time.sleep(max(0.0, made.clock.real(start_s + STEP_S) - time.time()))
            if number in KILL_AT:
                instances[dice.randrange(2)].kill_a_part(KILL_AT[number])
            if number == RESTART_AT:
                restarting = threading.Thread(target=instances[0].restart)
                restarting.start()
            energy = rng.integers(0, 600, 500 if number in SILENT else HOMES)
            assert head_end.send(body(start_s, energy))["accepted"] == len(energy)
            silent = HOMES - len(energy)
            expected[start_s // STEP_S] = (int(energy.sum()) + silent * IMPUTED_WH, len(energy), silent)
        restarting.join()
        _until_decided(made, FIRST_S // STEP_S + INTERVALS - 1)
        yield made, instances, expected


def _until_decided(made, interval):
    end = time.monotonic() + 30 * made.slow
    query = "SELECT interval FROM public_log.head"
    while True:
        with psycopg.connect(made.log) as connection:
            if connection.execute(query).fetchone()[0] >= interval:
                return
        assert time.monotonic() < end, (made.root / "serve.log").read_text()[-3000:]
        time.sleep(0.1)


def kinds(made):
    query = "SELECT (line::jsonb ->> 'interval')::bigint, line::jsonb ->> 'kind' FROM public_log.entry ORDER BY seq"
    with psycopg.connect(made.log) as connection:
        return connection.execute(query).fetchall()


def test_every_interval_is_released_once_and_only_a_missed_quorum_is_a_forecast(night):
    made, _, expected = night
    told = [(interval, kind) for interval, kind in kinds(made) if interval in expected and kind != "open"]
    few = {FIRST_S // STEP_S + number for number in SILENT}
    assert told == [(interval, "forecast" if interval in few else "measured") for interval in sorted(expected)]


def test_the_demand_is_what_the_meters_said_whatever_was_killed(night):
    made, _, expected = night
    few = {FIRST_S // STEP_S + number for number in SILENT}
    known = made.demand()
    assert {at: known[at] for at in expected if at not in few} == {
        at: one for at, one in expected.items() if at not in few
    }
    assert not few & known.keys()  # a demand without a quorum is not handed over
    assert all(energy <= HOMES * BOUND_WH for energy, _, _ in known.values())


def test_both_services_say_the_same_and_it_verifies(night):
    made, instances, _ = night
    for path in ("/zones/harbour/history.csv", "/openadr3/3.1.0/events", "/zones/harbour/log.jsonl"):
        first, second = (httpx.get(one.url(path)) for one in instances)
        assert first.status_code == 200
        assert first.content == second.content
        assert first.headers.get("etag") == second.headers.get("etag")
    assert "Everything holds." in made.run("verify", instances[1].url("/log.jsonl"))


def test_a_service_that_is_told_to_stop_stops(night):
    made, instances, _ = night
    parts = instances[0].parts()
    assert len(parts) == 3
    instances[0].stop()
    with pytest.raises(httpx.TransportError):
        httpx.get(instances[0].url("/healthz"))
    assert "Traceback" not in (made.root / "serve.log").read_text()


def test_parts_whose_service_was_killed_end_too(night):
    _, instances, _ = night
    parts = instances[1].parts()
    instances[1].process.kill()
    instances[1].process.wait(10)
    end = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in parts):
        assert time.monotonic() < end
        time.sleep(0.1)
    with pytest.raises(httpx.TransportError):
        httpx.get(instances[1].url("/healthz"))
