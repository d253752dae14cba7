"""Readiness is about the process; a zone whose log is broken says so itself, and comes back when it is mended."""

import time
from dataclasses import replace

import httpx
import psycopg
from tests.support.api_servers import STEP_S, await_backfill, listening, plan_of
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter

from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader import follower
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.settings import ServiceSettings

FIRST, PRICED = 1_900_000, 5


def await_status(client, path, status):
    end = time.monotonic() + 60
    while client.get(path).status_code != status:
        assert time.monotonic() < end, client.get(path).text
        time.sleep(0.05)


def test_one_broken_shard_leaves_the_process_ready_and_is_shown_again_once_mended(log_dsn, monkeypatch):
    monkeypatch.setattr(follower, "BROKEN_RETRY_S", 0.1)
    zones = {"harbour": "quay", "old town": "hill"}
    writers = {
        zone: ShardWriter(log_dsn, {zone: plan_of(zone)}, shard=shard, first=FIRST) for zone, shard in zones.items()
    }
    for writer in writers.values():
        writer.write(PRICED + 1)
    clock = ServiceClock(simulated_s=(FIRST + PRICED) * STEP_S, wall_s=time.time(), speed=1e-6)
    settings = ServiceSettings(public=f"127.0.0.1:{free_port()}", clock=clock)
    state = LiveState(log_dsn, settings)
    with (
        listening(public_app(state), settings.public_address[1]),
        httpx.Client(base_url=f"http://{settings.public}", trust_env=False, timeout=60) as client,
    ):
        await_backfill(state)
        for path in ("/readyz", "/readyz?zone=harbour", "/readyz?zone=old%20town"):
            assert client.get(path).status_code == 200, path
        assert client.get("/readyz?zone=nowhere").status_code == 404
        honest = writers["harbour"].draft().tile
        forged = replace(honest, rows=honest.rows.copy())
        forged.rows["price_ticks"][0] += 1
        writers["harbour"].smuggle(forged)
        await_status(client, "/readyz?zone=harbour", 503)
        assert [client.get(path).status_code for path in ("/readyz", "/healthz", "/readyz?zone=old%20town")] == [
            200
        ] * 3
        assert client.get("/zones/harbour/now").status_code == 200  # the last prices stay
        with psycopg.connect(log_dsn) as connection:
            connection.execute("SET session_replication_role = replica")  # past the rules of the log
            query = "UPDATE public_log.tile SET body = %s WHERE shard = 'quay' AND seq = %s"
            connection.execute(query, (honest.to_bytes(), honest.header.seq))
        await_status(client, "/readyz?zone=harbour", 200)
    state.close()
    for writer in writers.values():
        writer.close()
