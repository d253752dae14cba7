"""`murmurate zone close`: a zone ends in the log for ever, its neighbours go on, and everyone can see that it ended."""

import json
from dataclasses import replace

import psycopg
import pytest

from murmurate.public_log.make_tile import change_zones
from murmurate.public_log.tile import sign_tile
from murmurate.public_log.tile_chain import close_zones
from murmurate.public_log.zone_table import ClosedZone, ZoneTable
from murmurate.publisher.steps import Offer
from murmurate.service.keyring import load_keyring
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from tests.support.api_servers import plan_of
from tests.support.operator_cli import an_operator, open_zones, plan_zones, shard_zones
from tests.support.postgres_stores import ShardWriter, checked_heads
from tests.support.sample_shards import OLD_KEY

pytestmark = pytest.mark.slow


@pytest.fixture
def operator(tmp_path):
    with an_operator(tmp_path) as one:
        one.stop_clock()
        one.run("murmurate init")
        plan_zones(one, "hill", "mill")
        open_zones(one, "hill", "mill")
        one.run("murmurate step release --slot 0.02")
        yield one


def heads_of(operator):
    (shard,) = shard_zones(operator)
    log = PostgresLogStore(operator.dsn("log"))
    heads = checked_heads(log, shard)
    log.close()
    return heads


def test_a_closed_zone_ends_its_neighbour_goes_on_and_the_log_verifies(operator):
    before = heads_of(operator)[-1]
    shown = operator.run("murmurate zone close hill")
    assert "hill: closed. Measured until " in shown
    assert "final total" in shown
    after = heads_of(operator)[-1]
    (closed,) = after.table.closed
    assert after.table.zones == ("mill",)
    assert (closed.zone, closed.last) == ("hill", before.interval)
    assert list(closed.totals.values()) == before.totals[:, before.table.position["hill"]].tolist()
    assert after.tile.header.extensions == {"closed": {"hill": closed.totals}}

    assert "hill: closed already" in operator.run("murmurate zone close hill")
    assert len(heads_of(operator)) == after.tile.header.seq + 1
    shown = json.loads(operator.run("murmurate step release --slot 0.02 --json"))
    assert (shown["zones"], shown["up_to_date"]) == (1, 1)
    operator.run("murmurate log export log.tar && murmurate log export hill.jsonl --zone hill")
    shown = operator.run("murmurate log verify log.tar")
    assert f"hill: closed after interval {closed.last}, final total" in shown
    assert "Everything holds." in shown
    shown = operator.run("murmurate log verify hill.jsonl")
    assert f"hill: closed after interval {closed.last}, final total" in shown
    assert len(operator.lines("hill.jsonl")) == after.tile.header.seq + 2  # with its plan
    zones = json.loads(operator.run("murmurate log verify log.tar --json"))["zones"]
    assert (zones["hill"]["closed_after"], zones["mill"]["closed_after"]) == (closed.last, None)


def test_a_closed_zone_is_never_opened_or_changed_again_also_where_the_state_is_lost(operator):
    operator.run("murmurate zone close hill")
    words = "zone is hill: was closed at "
    assert words in operator.run("murmurate zone open hill.json", status=2)
    assert "was closed, for ever" in operator.run("murmurate zone change hill.json", status=2)
    assert "is not open" in operator.run("murmurate client add feeder --zone hill", status=2)
    operator.lose("state")
    operator.create("state")
    assert words in operator.run("murmurate zone open hill.json", status=2)
    assert "mill: open already" in operator.run("murmurate zone open mill.json")
    assert "1 of 1 zone up to date" in operator.run("murmurate step release --slot 0.02")
    assert "hill: closed already" in operator.run("murmurate zone close hill")
    assert "cannot be closed" in operator.run("murmurate zone close valley", status=2)


def test_a_shard_ends_with_its_last_zone_and_a_new_zone_begins_another(operator):
    operator.run("murmurate zone close hill mill")
    (shard,) = shard_zones(operator)
    assert shard_zones(operator) == {shard: ()}
    length = len(heads_of(operator))
    assert "open one first" in operator.run("murmurate step release --slot 0.02", status=2)
    assert "open one first" in operator.run("murmurate keys rotate", status=2)
    state = PostgresStateStore(operator.dsn("state"))
    assert (state.zones(), state.shards(), state.closed_zones()) == ({}, {}, {"hill", "mill"})
    state.close()
    assert "Everything holds." in operator.run("murmurate log export log.tar && murmurate log verify log.tar")
    plan_zones(operator, "quay")
    open_zones(operator, "quay")
    operator.run("murmurate step release --slot 0.02 && murmurate keys rotate")
    found = shard_zones(operator)
    assert found.pop(shard) == ()
    assert list(found.values()) == [("quay",)]
    log = PostgresLogStore(operator.dsn("log"))
    assert len(checked_heads(log, shard)) == length
    log.close()
    assert "Everything holds." in operator.run("murmurate log export log.tar && murmurate log verify log.tar")


def test_a_log_that_is_gone_is_restored_with_the_zones_that_were_closed(operator):
    operator.run("murmurate zone close hill && murmurate log export before.tar")
    operator.lose("log")
    operator.create("log")
    assert "tiles restored" in operator.run("murmurate log repair")
    assert "was closed at" in operator.run("murmurate zone open hill.json", status=2)
    operator.run("murmurate log export after.tar && murmurate log verify before.tar after.tar")


def test_the_last_zone_of_a_shard_stays_open_while_another_waits_to_enter(operator):
    plan_zones(operator, "quay")
    operator.run("murmurate zone open quay.json --lead 60 --first 2039-01-01T00:00:00Z")
    shown = operator.run("murmurate zone close hill mill", status=2)
    assert "must wait until quay is open" in shown
    operator.run("murmurate zone close hill")


def test_the_log_itself_refuses_a_table_that_loses_reopens_or_changes_a_closed_zone(operator):
    operator.run("murmurate zone close hill")
    head = heads_of(operator)[-1]
    (hill,), (mill,) = head.table.closed, head.table.rows
    now = mill._replace(zone="hill", since=head.interval + 1)
    refused = {
        "lost": ZoneTable((mill,)),
        "reopened": ZoneTable((now, mill)),
        "open and closed": ZoneTable((now, mill), (hill,)),
        "another total": ZoneTable((mill,), (hill._replace(total_epsilon_micro=hill.total_epsilon_micro + 1),)),
        "left out": ZoneTable((), (hill,)),
        "closed in the past": ZoneTable((), (hill, close_zones(head, ["mill"])[0]._replace(last=head.interval - 1))),
        "never open": ZoneTable((mill,), (hill, hill._replace(zone="quay", last=head.interval))),
    }
    (signer,) = load_keyring(operator.folder / "keys").signers
    for name, table in refused.items():
        assert not _takes(operator, Offer(change_zones(head, table, signer), table)), name
    closing = ZoneTable((), (hill, *close_zones(head, ["mill"])))
    assert _takes(operator, Offer(change_zones(head, closing, signer), closing))


def test_a_shard_that_could_not_be_opened_is_opened_with_other_zones_and_never_with_closed_ones(log_dsn):
    writer = ShardWriter(log_dsn, {"harbour": plan_of("harbour")}, first=1_900_000)
    honest = writer.draft()
    (row,) = honest.table.rows
    closed = ClosedZone(*row._replace(zone="gone"), row.since - 1, 0, 0)
    for table in (
        ZoneTable((row._replace(zone="not claimed"),)),
        ZoneTable((row,), (closed,)),
        ZoneTable((), (closed,)),
    ):
        tile = sign_tile(replace(honest.tile.header, table=table.digest), OLD_KEY)
        writer.log.append({"quay": Offer(tile, table)})
        assert writer.log.heads() == {}
    writer.write()
    assert writer.log.heads() == {"quay": (0, honest.tile.hash)}
    writer.close()


def _takes(operator, offer):
    """Whether the log takes a tile. Signer and form are right: the function of the log alone decides."""
    log = PostgresLogStore(operator.dsn("log"))
    log.append({offer.tile.header.shard: offer})
    log.close()
    with psycopg.connect(operator.dsn("log")) as connection:
        rows = connection.execute("SELECT hash FROM public_log.head").fetchall()
    return rows == [(offer.tile.hash,)]
