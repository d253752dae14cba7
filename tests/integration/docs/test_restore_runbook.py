"""docs/how-to/restore.md, followed word by word after real losses: no value changes, none is published twice."""

import json
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest
from tests.support.api_servers import plan_of
from tests.support.operator_cli import PAYING, an_operator, decided_kinds, documented_commands, made_plan, small_zone
from tests.support.postgres_cluster import clusters
from tests.support.postgres_stores import ShardWriter, mirror_shard

from murmurate.public_log.tile import NO_ROOT, ROW_LAYOUT, Tile, TileKind, parse_tile
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore

PAGE = "how-to/restore.md"
CORRECTED = 271_828_182
TWO_YEARS_AGO = 1_704_067_200 // 900  # 2024: older than what stays in the databases


def follow(operator, section, between=lambda _: None):
    """Type what a section of the runbook says; `between` happens after each command."""
    commands = documented_commands(PAGE, section)
    assert commands, section
    printed = []
    for line, succeeds in commands:
        printed.append(operator.run(line, status=0 if succeeds else 1))
        between(line)
    return printed


def header_line(tile):
    return tile.partition(b"\n")[0].decode()


def test_the_runbook_restores_every_loss(tmp_path):
    with an_operator(tmp_path) as operator:
        first = operator.open_and_find_first()
        operator.store_demand(first, first + 40)
        operator.run("murmurate step release --grace 4200 --slot 0.02")
        follow(operator, "Before")
        operator.run("murmurate step release --grace 1800 --slot 0.02")
        before = operator.export("before.tar")
        assert decided_kinds(before).count("measured") >= 15

        state_is_lost(operator, first)
        state_is_lost_without_a_backup(operator)
        log_has_lost_entries(operator)
        log_holds_an_unsigned_tile(operator)
        name_is_claimed_without_a_zone(operator)
        both_are_lost(operator)
        key_is_stolen(operator)

        assert operator.export("end.tar")[: len(before)] == before
        assert "Everything holds." in operator.run('murmurate log verify end.tar --key "$(cat operator.key)"')
        for secret in (PAYING, CORRECTED):
            assert str(secret) not in operator.shown
            assert f"{secret:x}" not in operator.shown


def state_is_lost(operator, first):
    """The demand is corrected in the meantime: whoever drew again would show the difference."""
    before = operator.exported("before.tar")
    operator.lose("state")
    operator.create("state")

    def correct(line):
        if line.startswith("pg_restore"):
            operator.store_demand(first, first + 40, CORRECTED)

    follow(operator, "The state is lost, or old", correct)
    after = operator.exported("after.tar")
    assert after[: len(before)] == before
    assert len(after) > len(before)
    assert set(decided_kinds(after[1:])) == {"measured"}


def state_is_lost_without_a_backup(operator):
    before = operator.export("before.tar")
    operator.lose("state")
    operator.create("state")
    opened, _ = follow(operator, "The state is lost and there is no backup")
    assert "open already" in opened
    assert operator.export("after.tar")[: len(before)] == before


def log_has_lost_entries(operator):
    before = operator.export("before.tar")
    printed = follow(operator, "The log has lost entries", lambda _: None)
    assert "repair it first" in printed[1]
    assert "murmurate log repair" in printed[1]
    assert "tiles restored" in printed[2]
    repaired = operator.exported("repaired.tar")
    assert repaired[: len(before)] == before
    assert len(repaired) - len(before) <= 1  # an interval may have ended while we worked


def log_holds_an_unsigned_tile(operator):
    """A role without the key adds the tile of a new key."""
    before = operator.export("before.tar")
    forged = forge_tile(parse_tile(before[-1]))
    with psycopg.connect(operator.dsn("log")) as connection:
        taken = connection.execute("SELECT public_log.append(%s::bytea[])", ([forged],)).fetchall()
    assert len(taken) == 1
    blocked, status, named, set_aside, *_ = follow(operator, "The log holds a tile that the key has not signed")
    number = len(before)
    assert f"log is not valid from tile {number} on: signature is of tile {number}" in blocked
    assert "murmurate log repair names it" in blocked
    assert f"signature is of tile {number}" in status
    assert "murmurate log repair names the tile; docs/how-to/restore.md says what to do" in status
    assert f"no reader accepts tile {number}: signature is of tile {number}" in named
    assert f"tile {number} set aside as evidence. The shard continues after tile {number - 1}." in set_aside
    assert operator.exported("after.tar")[:number] == before


def name_is_claimed_without_a_zone(operator):
    log = PostgresLogStore(operator.dsn("log"))
    log.claim({"old-town": "nowhere"})
    log.close()
    operator.write("old-town.json", made_plan(small_zone("old-town")))
    refused = operator.run("murmurate zone open old-town.json", status=2)
    assert "is claimed for shard nowhere, which is not open; see murmurate log repair" in refused
    named, unclaimed = follow(operator, "A name is claimed for a shard that does not have it")
    assert "zone old-town is claimed for shard nowhere, which has never had it." in named
    assert "old-town: its claim for shard nowhere is set aside as evidence." in unclaimed


def forge_tile(last):
    header = replace(
        last.header,
        seq=last.header.seq + 1,
        prev=last.hash,
        kind=TileKind.KEY,
        next_key="ab" * 32,
        count=0,
        root=NO_ROOT,
        row=ROW_LAYOUT,
        key=last.key_in_force,
    )
    return Tile(header, "00" * 64, last.rows[:0]).to_bytes()


def both_are_lost(operator):
    before = operator.export("copy.tar")
    for store in ("state", "log"):
        operator.run(f'pg_restore --clean --if-exists --dbname="$MURMURATE_{store.upper()}" backups/{store}.dump')
    follow(operator, "Both are lost")
    assert operator.export("after.tar")[: len(before)] == before


def key_is_stolen(operator):
    follow(operator, "A key is stolen")
    assert decided_kinds(operator.export("after.tar")).count("key") == 1


@pytest.mark.postgres_programs
def test_the_runbook_plays_a_failover_of_the_log(tmp_path):
    """The primary is killed for good right after a release: its synchronous replica has every tile."""
    with an_operator(tmp_path) as operator, clusters() as private:
        primary = private.new("log").start()
        replica = private.standby(primary, primary.port)
        operator.extra = {
            "MURMURATE_LOG": f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
            "?target_session_attrs=read-write",
            "REPLICA": f"postgresql://postgres@127.0.0.1:{replica.port}/postgres",
        }
        primary.wait_for_standby(is_synchronous=True)
        first = operator.open_and_find_first()
        operator.store_demand(first, first + 40)
        operator.run("murmurate step release --grace 4200 --slot 0.02")
        before = operator.export("before.tar")
        assert len(before) >= 5

        def switch_off(line):
            if "pg_stat_replication" in line:
                primary.kill()

        in_step, status, promoted, *_ = follow(operator, "The log fails over to a replica", switch_off)
        assert (in_step.strip(), promoted.strip()) == ("sync", "t")
        assert "out of reach" in status
        after = operator.exported("after.tar")
        assert after[: len(before)] == before
        assert len(after) > len(before)


def test_a_log_that_was_set_back_and_written_to_is_not_repaired_but_shown(tmp_path):
    """The one loss that nothing repairs: another state published into the old log."""
    with an_operator(tmp_path) as operator:
        first = operator.open_and_find_first()
        operator.store_demand(first, first + 40)
        for line, _ in documented_commands(PAGE, "Before"):
            operator.run(line)
        operator.run("murmurate step release --grace 4200 --slot 0.02")
        ours = operator.export("ours.tar")
        operator.run('pg_restore --clean --if-exists --dbname="$MURMURATE_LOG" backups/log.dump')
        seen, operator.names["state"] = operator.names["state"], f"{operator.names['state']}_other"
        operator.create("state")
        try:
            operator.run("murmurate zone open plan.json")
            operator.run("murmurate step release --grace 4800 --slot 0.02")
            theirs = operator.export("theirs.tar")
        finally:
            operator.lose("state")
            operator.names["state"] = seen
        assert theirs[0] == ours[0]
        printed = operator.run("murmurate log repair", status=1)
        assert header_line(ours[1]) in printed
        assert header_line(theirs[1]) in printed
        assert "two values" in printed
        assert operator.export("left.tar") == theirs
        convicted = operator.run("murmurate log verify ours.tar theirs.tar", status=1)
        assert "Proof of misbehaviour" in convicted
        assert json.loads((tmp_path / "misbehaviour-1.json").read_text())["headers"] == [
            header_line(ours[1]),
            header_line(theirs[1]),
        ]


@pytest.mark.slow
def test_a_lost_log_is_filled_from_the_archive_and_the_state(tmp_path):
    with an_operator(tmp_path) as operator:
        for store in ("state", "log"):
            migrate_database(operator.dsn(store), store)
        plan = plan_of("harbour")
        with closing(ShardWriter(operator.dsn("log"), {"harbour": plan}, first=TWO_YEARS_AGO)) as writer:
            writer.write(163, 400_000)
        mirror_shard(operator.dsn("state"), writer, {writer.terms["harbour"].plan_digest: plan})
        before = operator.export("before.tar")
        assert "deleted from the log" in operator.run("murmurate log archive archive")
        kept = operator.export("kept.tar")
        assert 1 < len(kept) < len(before)
        operator.run("murmurate log verify kept.tar", status=3)

        operator.lose("log")
        operator.create("log")
        restored, *_ = follow(operator, "The log is lost, and old tiles are archived")
        assert "163 tiles restored" in restored
        assert operator.exported("log.tar") == kept
        operator.run("murmurate log export whole.tar --archive archive")
        assert operator.exported("whole.tar") == before


def test_the_runbook_names_what_must_never_be_done():
    commands = [line for line, _ in documented_commands(PAGE)]
    for word in (
        "pg_dump",
        "pg_restore",
        "murmurate step release",
        "murmurate log repair",
        "murmurate zone open",
        "murmurate keys rotate",
    ):
        assert any(line.startswith(word) for line in commands), word
