"""A tile that the key has not signed is not served under an address that never changes. Readers go on without it."""

import time
from dataclasses import replace

import httpx
import psycopg
import pytest
from tests.support.api_servers import STEP_S, await_backfill, listening, plan_of
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter

from murmurate.commands.repair import repair_log
from murmurate.service.clock import ServiceClock
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.public_api.pages.routes import page_routes
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases

pytestmark = pytest.mark.slow

FIRST, PRICED = 1_900_000, 6
LIMIT_S = 120


@pytest.fixture
def writer(log_dsn):
    made = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST)
    made.write(PRICED)
    yield made
    made.close()


@pytest.fixture
def served(writer, tmp_path):
    """A client of a service that also writes files, and what it has read of the log."""
    clock = ServiceClock(simulated_s=(FIRST + PRICED) * STEP_S, wall_s=time.time(), speed=1e-6)
    settings = ServiceSettings(public=f"127.0.0.1:{free_port()}", clock=clock, static_files=tmp_path / "static")
    live_state = LiveState(writer.dsn, settings)
    with listening(public_app(live_state, page_routes(live_state)), settings.public_address[1]):
        await_backfill(live_state)
        with httpx.Client(base_url=f"http://{settings.public}", trust_env=False, timeout=60) as client:
            yield client, live_state
    live_state.close()


def wait_until(holds):
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_readers_pass_over_an_unsigned_tile_and_go_on_when_it_is_set_aside(writer, served, state_dsn, tmp_path):
    client, live_state = served
    seq = writer.head.tile.header.seq + 1
    path, file = f"/tiles/quay/{seq}", tmp_path / "static" / "tiles" / "quay" / str(seq)
    before = client.get("/zones/harbour/log.jsonl").text
    forged = replace(writer.draft().tile, signature="00" * 64)
    with psycopg.connect(writer.dsn) as connection:
        taken = connection.execute("SELECT public_log.append(%s::bytea[])", ([forged.to_bytes()],)).fetchall()
    assert taken == [("quay",)]
    wait_until(lambda: live_state.broken_shards == 1)
    assert client.get(path).status_code == 404
    assert client.get("/zones/harbour/log.jsonl").text == before
    assert client.get("/zones/harbour/now").status_code == 200
    assert not file.exists()

    databases = Databases.from_dsns(state=state_dsn, log=writer.dsn)
    assert repair_log(databases) == 1
    assert repair_log(databases, set_aside=True) == 0
    writer.write()
    honest = writer.head.tile.to_bytes()
    assert honest != forged.to_bytes()
    wait_until(lambda: client.get(path).content == honest)
    wait_until(file.exists)
    assert file.read_bytes() == honest
    assert live_state.broken_shards == 0
