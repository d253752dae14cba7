"""The commands of an operator and the shards that they make: where zones go, what is adopted, what is repaired."""

import json
from dataclasses import replace

import psycopg
import pytest

from murmurate.commands.repair import repair_log
from murmurate.public_log.tile import TileKind, parse_tile
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from tests.support.operator_cli import an_operator, open_zones, plan_zones, shard_zones
from tests.support.postgres_stores import SHARDS
from tests.support.sample_shards import FIRST, desire, open_zone


def ask(dsn, query):
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def contents(dsn):
    """Everything that a log holds: tiles, claims, documents."""
    return {
        "tiles": ask(dsn, "SELECT shard, seq, body FROM public_log.tile ORDER BY shard, seq"),
        "claims": ask(dsn, "SELECT zone, shard FROM public_log.claim ORDER BY zone"),
        "documents": ask(dsn, "SELECT digest, body FROM public_log.document ORDER BY digest"),
        "heads": ask(dsn, "SELECT * FROM public_log.head ORDER BY shard"),
    }


def tile_kinds(operator, shard):
    rows = [body for name, _, body in contents(operator.dsn("log"))["tiles"] if name == shard]
    return [parse_tile(body).header.kind for body in rows]


@pytest.fixture
def operator(tmp_path):
    with an_operator(tmp_path) as one:
        one.run("murmurate init")
        yield one


def test_zones_opened_together_share_a_shard_and_a_later_one_enters_it(operator):
    plan_zones(operator, "a", "b", "c", "d")
    open_zones(operator, "a", "b", "c")
    ((shard, zones),) = shard_zones(operator).items()
    assert zones == ("a", "b", "c")
    assert tile_kinds(operator, shard) == [TileKind.OPEN]
    assert "3 of 3 zones up to date" in operator.run("murmurate step release --slot 0.02")
    assert "d: open. First measured" in open_zones(operator, "d")
    assert shard_zones(operator) == {shard: ("a", "b", "c", "d")}
    kinds = tile_kinds(operator, shard)
    assert (kinds[0], kinds[-1]) == (TileKind.OPEN, TileKind.ZONES)
    assert set(kinds[1:-1]) == {TileKind.RELEASE}
    before = contents(operator.dsn("log"))
    assert "d: open already" in open_zones(operator, "d")
    assert contents(operator.dsn("log")) == before


def test_a_zone_that_begins_later_waits_for_its_interval_and_the_operator_is_told(operator):
    plan_zones(operator, "a", "b")
    open_zones(operator, "a")
    shown = operator.run("murmurate zone open b.json --lead 60")
    assert "b: enters shard" in shown
    assert "when the intervals before are released" in shown
    assert "2 of 2 zones up to date" in operator.run("murmurate step release --slot 0.02")


def test_another_lead_is_another_shard(operator):
    plan_zones(operator, "a", "b")
    open_zones(operator, "a")
    open_zones(operator, "b", lead=3)
    assert sorted(shard_zones(operator).values()) == [("a",), ("b",)]


def test_zone_1001_gets_a_second_shard(operator):
    plan_zones(operator, "zz")
    text = (operator.folder / "zz.json").read_text(encoding="utf-8")
    document = json.loads(text)
    open_zones(operator, "zz")
    ((shard, _),) = shard_zones(operator).items()
    state = PostgresStateStore(operator.dsn("state"))
    (_, opening) = state.zones()["zz"]
    assert opening.plan == document["digest"]
    state.store_openings({}, {f"zone {n:04d}": (shard, replace(opening, first=2**40)) for n in range(998)})
    state.close()
    plan_zones(operator, "y", "z")
    open_zones(operator, "y", "z")
    found = shard_zones(operator)
    assert found.pop(shard) == ("y", "zz")
    assert list(found.values()) == [("z",)]


def test_a_lost_state_adopts_its_shards_from_the_log(operator):
    plan_zones(operator, "a", "b", "c")
    open_zones(operator, "a", "b")
    operator.run("murmurate step release --slot 0.02")
    before, (shard,) = contents(operator.dsn("log")), shard_zones(operator)
    operator.lose("state")
    operator.create("state")
    assert "a: open already" in operator.run("murmurate zone open a.json")
    state = PostgresStateStore(operator.dsn("state"))
    assert {zone: where for zone, (where, _) in state.zones().items()} == {"a": shard, "b": shard}
    assert state.shards()[shard].lead == 60
    state.close()
    assert "2 of 2 zones up to date" in operator.run("murmurate step release --slot 0.02")
    after = contents(operator.dsn("log"))
    assert after["tiles"][: len(before["tiles"])] == before["tiles"]
    assert after["claims"] == before["claims"]
    open_zones(operator, "c")
    assert shard_zones(operator) == {shard: ("a", "b", "c")}


def test_a_lost_state_that_opens_a_new_zone_first_does_not_take_the_name_of_an_old_shard(operator):
    plan_zones(operator, "a", "b")
    open_zones(operator, "a")
    (old,) = shard_zones(operator)
    operator.lose("state")
    operator.create("state")
    open_zones(operator, "b")
    found = shard_zones(operator)
    assert found.pop(old) == ("a",)
    assert list(found.values()) == [("b",)]


def test_a_zone_that_another_operator_has_opened_is_refused(operator):
    plan_zones(operator, "a")
    open_zones(operator, "a")
    (shard,), before = shard_zones(operator), contents(operator.dsn("log"))
    operator.lose("state")
    operator.create("state")
    operator.run("murmurate init others")
    shown = operator.run("murmurate zone open a.json", status=2, MURMURATE_KEYS="others/keys")
    assert f"is in shard {shard} of this log already; its key is not among this publisher's keys" in shown
    assert contents(operator.dsn("log")) == before


def test_a_zone_that_another_shard_has_claimed_is_blocked_and_its_neighbour_is_opened(operator):
    """Two states opened it at the same time, each in a shard of its own: the log took the other claim."""
    plan_zones(operator, "a", "b")
    open_zones(operator, "b")
    (shard,) = shard_zones(operator)
    state, log = PostgresStateStore(operator.dsn("state")), PostgresLogStore(operator.dsn("log"))
    digest = json.loads((operator.folder / "a.json").read_text(encoding="utf-8"))["digest"]
    opening = replace(state.zones()["b"][1], plan=digest)
    state.store_openings({}, {"a": (shard, opening)})
    log.claim({"a": f"{shard[:8]}-0077"})
    state.close()
    log.close()
    shown = operator.run("murmurate zone open a.json", status=1)
    assert f"a: blocked: is in shard {shard[:8]}-0077: it cannot enter" in shown
    assert shard_zones(operator) == {shard: ("b",)}


def test_a_log_that_is_gone_is_restored_from_the_state(operator):
    plan_zones(operator, "a", "b")
    open_zones(operator, "a")
    operator.run("murmurate step release --slot 0.02")
    open_zones(operator, "b")
    operator.run("murmurate keys rotate && murmurate step release --slot 0.02")
    before = contents(operator.dsn("log"))
    operator.lose("log")
    operator.create("log")
    assert f"{len(before['tiles']):,} tiles restored to the log." in operator.run("murmurate log repair")
    assert contents(operator.dsn("log")) == before
    assert "The log has lost nothing" in operator.run("murmurate log repair")
    assert "2 of 2 zones up to date" in operator.run("murmurate step release --slot 0.02")


@pytest.mark.parametrize("copy", ["copy.tar", "copy.tar.gz", "folder"])
def test_a_log_that_is_gone_is_restored_from_a_copy(operator, copy):
    plan_zones(operator, "a", "b")
    open_zones(operator, "a")
    operator.run("murmurate step release --slot 0.02")
    open_zones(operator, "b")
    operator.run(f"mkdir -p folder && murmurate log export {copy}")
    before = contents(operator.dsn("log"))
    for store in ("state", "log"):
        operator.lose(store)
        operator.create(store)
    assert "tiles restored to the log." in operator.run(f"murmurate log repair --from {copy}")
    after = contents(operator.dsn("log"))
    assert [(s, n, bytes(b)) for s, n, b in after["tiles"]] == [(s, n, bytes(b)) for s, n, b in before["tiles"]]
    assert (after["claims"], after["heads"]) == (before["claims"], before["heads"])
    assert "a: open already" in operator.run("murmurate zone open a.json")
    assert "2 of 2 zones up to date" in operator.run("murmurate step release --slot 0.02")


def test_all_shards_of_a_log_are_repaired(stores):
    stores.store_demand(FIRST)
    stores.publish(FIRST)
    one, two, *_ = SHARDS
    entering = {"late": open_zone(first=FIRST)}
    zones = dict.fromkeys(SHARDS[two], open_zone()) | entering
    asked = {one: desire(FIRST + 3, SHARDS[one]), two: desire(FIRST + 2, zones)}
    assert stores.publisher().publish(asked, timeout_s=60).up_to_date == {one, two}
    before = contents(stores.log_dsn)
    with psycopg.connect(stores.log_dsn) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("TRUNCATE public_log.tile, public_log.head, public_log.claim")
        connection.execute("DELETE FROM public_log.document WHERE body LIKE '%murmurate_zones%'")
    assert repair_log(stores.state_dsn, stores.log_dsn) == 0
    assert contents(stores.log_dsn) == before
    assert stores.publish(FIRST + 3).blocked == {}
