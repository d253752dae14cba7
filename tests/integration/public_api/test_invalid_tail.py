"""A tile that the key has not signed is not served under an address that never changes. Readers go on without it."""

from dataclasses import replace

import psycopg
import pytest
from tests.support.api_servers import STEP_S, plan_of, public_process
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.commands.repair import repair_log

pytestmark = pytest.mark.slow

FIRST, PRICED = 1_900_000, 6


@pytest.fixture
def writer(log_dsn):
    made = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=FIRST)
    made.write(PRICED)
    yield made
    made.close()


@pytest.fixture
def served(writer, tmp_path):
    """A client of a service that also writes files, and what it has read of the log."""
    with public_process(writer.dsn, (FIRST + PRICED) * STEP_S, static_files=tmp_path / "static") as made:
        yield made


def test_readers_pass_over_an_unsigned_tile_and_go_on_when_it_is_set_aside(writer, served, state_dsn, tmp_path):
    client, live_state = served
    seq = writer.head.tile.header.seq + 1
    path, file = f"/tiles/quay/{seq}", tmp_path / "static" / "tiles" / "quay" / str(seq)
    before = client.get("/zones/harbour/log.jsonl").text
    forged = replace(writer.draft().tile, signature="00" * 64)
    with psycopg.connect(writer.dsn) as connection:
        taken = connection.execute("SELECT public_log.append(%s::bytea[])", ([forged.to_bytes()],)).fetchall()
    assert taken == [("quay",)]
    assert wait_until(lambda: live_state.broken_shards == 1)
    assert client.get(path).status_code == 404
    assert client.get("/zones/harbour/log.jsonl").text == before
    assert client.get("/zones/harbour/now").status_code == 200
    assert not file.exists()

    assert repair_log(state_dsn, writer.dsn) == 1
    assert repair_log(state_dsn, writer.dsn, set_aside=True) == 0
    writer.write()
    honest = writer.head.tile.to_bytes()
    assert honest != forged.to_bytes()
    assert wait_until(lambda: client.get(path).content == honest)
    assert wait_until(file.exists)
    assert file.read_bytes() == honest
    assert live_state.broken_shards == 0
