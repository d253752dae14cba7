"""`murmurate move`: a zone goes from one shard to another, its chain goes on, and every copy of the log holds."""

from dataclasses import replace

import pytest

from murmurate.public_log.tile import parse_tile
from murmurate.public_log.zone_line import parse_zone_line
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, Change, DesiredState
from murmurate.service.keyring import add_signing_key
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import PublisherContext
from tests.support.operator_cli import an_operator, open_zones, plan_zones, shard_zones, small_zone

RELEASE = "murmurate release --slot 0.02"


@pytest.fixture
def operator(tmp_path):
    """Zones a, b and c in one shard, an hour of releases."""
    with an_operator(tmp_path) as one:
        one.run("murmurate keys keys")
        plan_zones(one, "a", "b", "c")
        open_zones(one, "a", "b", "c")
        first = parse_tile(one.export("opened.tar")[0]).header.interval + 1
        for zone in ("a", "b"):
            one.store_demand(first, first + 20, zone=zone)
        assert "3 of 3 zones up to date" in one.run(RELEASE)
        yield one


def publish(operator, desired, *, new_key=False):
    """Publish as a command that was ended before its end."""
    both = Databases.from_dsns(state=operator.dsn("state"), log=operator.dsn("log"))
    if new_key:
        add_signing_key(operator.folder / "keys")
    context = PublisherContext.from_databases(both, operator.folder / "keys", 0.02)
    if new_key:
        (shard,) = desired
        key, newest = context.state.shards()[shard].key, context.keyring.newest_signer.public_key
        desired = {shard: replace(desired[shard], key_change=Change(key, newest))}
    outcome, failed = context.publish(desired)
    context.close()
    assert (outcome.up_to_date, failed) == (set(desired), set())


def verified(operator, name):
    shown = operator.run(f'murmurate verify {name} --key "$(cat operator.key)"')
    assert "Everything holds." in shown
    return shown


def test_moved_zones_go_on_in_their_new_shard_and_all_copies_hold(operator):
    operator.write("operator.key", parse_tile(operator.exported("opened.tar")[0]).header.key)
    (old,) = shard_zones(operator)
    new = old.replace("-0000", "-0001")
    assert f"b: in shard {new}, from the interval of " in operator.run("murmurate move b")
    assert shard_zones(operator) == {old: ("a", "c"), new: ("b",)}
    assert f"c: in shard {new}, from the interval of " in operator.run(f"murmurate move c {new}")
    assert shard_zones(operator) == {old: ("a",), new: ("b", "c")}
    assert f"b: in shard {new} already." in operator.run(f"murmurate move b {new}")
    assert "3 of 3 zones up to date" in operator.run(f"{RELEASE} --grace 0")
    before = operator.export("log.tar")
    verified(operator, "log.tar")
    for zone, shards in (("a", [old]), ("b", [old, new]), ("c", [old, new])):
        operator.run(f"murmurate export --zone {zone} {zone}.jsonl")
        lines = [parse_zone_line(line) for line in operator.lines(f"{zone}.jsonl") if "murmurate_zone" in line]
        assert list(dict.fromkeys(line.header.shard for line in lines)) == shards
        verified(operator, f"{zone}.jsonl")
    verified(operator, "log.tar b.jsonl a.jsonl")
    operator.run("murmurate rotate && mkdir folder && murmurate export folder")
    verified(operator, "folder log.tar")

    operator.lose("state")
    operator.create("state")
    assert "open already" in operator.run("murmurate open a.json b.json")
    assert "3 of 3 zones up to date" in operator.run(RELEASE)
    operator.lose("log")
    operator.create("log")
    assert "tiles restored to the log" in operator.run("murmurate repair")
    assert [tile for tile in operator.export("repaired.tar") if tile in before] == before
    verified(operator, "repaired.tar log.tar")


def test_a_change_of_plan_after_a_move_looks_at_what_was_released_before_it(operator):
    operator.write("half.toml", small_zone("b", promise="any 12 h: epsilon 3"))
    operator.write("wider.toml", small_zone("b", promise="any 24 h: epsilon 4"))
    operator.run("murmurate plan half.toml --out half.json && murmurate plan wider.toml --out wider.json")
    operator.run("murmurate move b")
    refused = operator.run("murmurate change half.json", status=2)
    assert "must keep 'any 24 h: epsilon 3' across the change" in refused
    assert "from the next interval on" in operator.run("murmurate change wider.json")
    operator.export("log.tar")
    assert "Everything holds." in operator.run("murmurate verify log.tar")


def test_a_move_that_was_begun_is_reported_and_finished(operator):
    (old,) = shard_zones(operator)
    new = old.replace("-0000", "-0001")
    publish(operator, {old: DesiredState(until=UNTIL_NO_INTERVAL, moves={"b": new})})
    assert f"b: blocked: has left shard {old}: murmurate move 'b' {new} finishes its move" in operator.run(
        RELEASE, status=1
    )
    assert f"is between shards {old} and {new}" in operator.run("murmurate rotate", status=2)
    assert f"murmurate move b {new} finishes its move" in operator.run("murmurate move b elsewhere", status=2)
    assert f"b: in shard {new}, from the interval of " in operator.run("murmurate move b")
    assert "3 of 3 zones up to date" in operator.run(RELEASE)
    operator.export("log.tar")
    assert "Everything holds." in operator.run("murmurate verify log.tar")


def test_a_move_that_would_break_a_rule_is_refused_and_nothing_is_published(operator):
    plan_zones(operator, "d")
    operator.run('murmurate open d.json --lead 3 --first "2026-01-01T00:00Z" && murmurate move b')
    by_zone = {zone: shard for shard, zones in shard_zones(operator).items() for zone in zones}
    before = operator.export("before.tar")
    refused = {
        "nowhere": "zone is nowhere: is not open; murmurate open plan.json opens it",
        "a nowhere": "shard is nowhere: is not open; without the name of a shard, murmurate move opens a new one",
        f"b {by_zone['a']}": "a zone does not come back to a shard that it has left",
        "b": f"is the last one of shard {by_zone['b']}: a shard cannot be empty",
        f"a {by_zone['d']}": f"must have intervals of 300 s and lead 60, as {by_zone['a']} has",
    }
    for arguments, reason in refused.items():
        assert reason in operator.run(f"murmurate move {arguments}", status=2)
    state = PostgresStateStore(operator.dsn("state"))
    (_, opening) = state.zones()["a"]
    many = {f"zone {n:04d}": (by_zone["b"], replace(opening, first=2**40)) for n in range(999)}
    state.store_openings({}, many)
    state.close()
    assert "is full: it has 1,000 zones" in operator.run(f"murmurate move a {by_zone['b']}", status=2)
    assert operator.export("after.tar") == before
    publish(operator, {by_zone["b"]: DesiredState(until=UNTIL_NO_INTERVAL)}, new_key=True)
    shown = operator.run(f"murmurate move a {by_zone['b']}", status=2)
    assert f"is signed by another key than {by_zone['a']}: finish a rotation with murmurate rotate" in shown
