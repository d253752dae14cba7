"""`murmurate log archive` with real databases: what leaves them is in files that verify, and everything goes on."""

import multiprocessing
import os
import signal
from datetime import UTC, datetime

import psycopg
import pytest

from murmurate.commands import archive as archive_command
from murmurate.commands.archive import archive_tiles
from murmurate.commands.export import export_log
from murmurate.commands.repair import repair_log
from murmurate.commands.verify import EXIT_INCOMPLETE, verify_logs
from murmurate.errors import MurmurateError
from murmurate.operations.log_source import open_log_source
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import TileKind, parse_tile
from murmurate.publisher.desired_state import Change, ZoneOpening
from murmurate.publisher.protocol import catch_up
from murmurate.publisher.steps import SeenState
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.verification.verifier import check_log
from tests.support.api_servers import plan_of
from tests.support.postgres_stores import ShardWriter, checked_heads, mirror_shard
from tests.support.sample_shards import NEW_KEY, OLD_KEY

pytestmark = pytest.mark.slow

ZONE, SHARD = "harbour", "quay"
FIRST = 1_767_225_600 // 900  # 2026-01-01 UTC: in the past by any clock
WINDOW = 96  # intervals of the plan's longest promise, which stay
RELEASES = 160
ROTATION = Change(OLD_KEY.public_key, NEW_KEY.public_key)


@pytest.fixture(scope="module")
def plan():
    return plan_of(ZONE)


@pytest.fixture
def written(log_dsn, state_dsn, plan):
    """A shard of 160 releases with a zone that came later and a change of key, in both databases."""
    writer = ShardWriter(log_dsn, {ZONE: plan}, shard=SHARD, first=FIRST)
    writer.write(11, 400_000)
    writer.write(key_change=ROTATION)
    its = writer.terms[ZONE]
    writer.log.claim({"late": SHARD})
    writer.take("late", plan, ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=FIRST))
    writer.write(RELEASES - 10 + 1, 400_000)
    mirror_shard(state_dsn, writer, {writer.terms[ZONE].plan_digest: plan})
    yield writer
    writer.close()


@pytest.fixture
def databases(log_dsn, state_dsn):
    return Databases.from_dsns(state=state_dsn, log=log_dsn)


def numbers(dsn, table="public_log.tile"):
    with psycopg.connect(dsn) as connection:
        return [seq for (seq,) in connection.execute(f"SELECT seq FROM {table} ORDER BY seq")]  # noqa: S608


def archive_until(databases, folder, interval):
    """Archive the intervals up to one."""
    outcome = archive_tiles(databases, TileArchive(folder), (interval + 1) * 900)
    assert not outcome.refused
    return outcome


def whole_chain(folder):
    return [tile.read() for tile in TileArchive(folder).read_tiles(SHARD, 0, 10**6)]


def test_what_was_archived_left_both_databases_and_is_in_the_files_byte_for_byte(databases, written, tmp_path):
    folder = tmp_path / "archive"
    bodies = [head.tile.to_bytes() for head in written.heads]
    assert archive_until(databases, folder, FIRST + 29).tiles == 33  # 30 releases, open, key and zones
    assert archive_until(databases, folder, FIRST + 29).tiles == 0
    assert archive_until(databases, folder, FIRST + 39).tiles == 10
    assert whole_chain(folder) == bodies[:43]
    kept = [head.tile.header.seq for head in written.heads if head.tile.header.kind is not TileKind.RELEASE]
    assert numbers(databases.log.dsn) == [*kept, *range(43, len(bodies))]
    assert numbers(databases.state.dsn, "curator.tile") == [*range(43, len(bodies))]
    assert sorted(path.name for path in (folder / "tiles" / SHARD).iterdir()) == [
        "000000000000-000000000032.tar",
        "000000000033-000000000042.tar",
    ]


def test_what_a_plan_still_promises_about_stays_whatever_is_asked_for(databases, written, tmp_path):
    archive_until(databases, tmp_path / "archive", 10**9)
    first = min(seq for seq in numbers(databases.log.dsn) if written.heads[seq].tile.header.count)
    head = written.heads[-1].tile.header
    assert written.heads[first].interval == head.interval - head.lead - 1 - WINDOW


@pytest.mark.usefixtures("written")
def test_archive_and_export_verify_as_one_chain_and_an_export_alone_says_where_it_begins(databases, tmp_path):
    folder, tar = tmp_path / "archive", tmp_path / "log.tar"
    archive_until(databases, folder, FIRST + 29)
    export_log(tar, databases.log.dsn)
    for sources in ([folder, tar], [tar, folder]):
        report = check_log({str(path): open_log_source(str(path)) for path in sources})
        assert (report.findings, report.is_complete) == ([], True)
        assert report.zones[ZONE].records == RELEASES
    alone = check_log({"log": open_log_source(str(tar))})
    assert alone.findings == []
    assert not alone.is_complete
    (gap,) = alone.unchecked_beginnings.values()
    assert (gap.interval, gap.seq) == (FIRST + 30, 33)
    archived = check_log({"archive": open_log_source(str(folder))})
    assert (archived.findings, archived.is_complete, archived.zones[ZONE].records) == ([], True, 30)


@pytest.mark.parametrize("point", ["write_document", "write_tiles", "check", "drop", "drop_seen", "vacuum"])
def test_a_run_that_is_killed_anywhere_loses_nothing_and_the_next_one_finishes(databases, written, tmp_path, point):
    folder, bodies = tmp_path / "archive", [head.tile.to_bytes() for head in written.heads]
    for moment in ("before", "after"):
        child = multiprocessing.get_context("fork").Process(
            target=archive_and_die, args=(databases, folder, FIRST + (19 if moment == "before" else 29), point, moment)
        )
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL
        kept = {seq: bodies[seq] for seq in numbers(databases.log.dsn)}
        assert (kept | dict(enumerate(whole_chain(folder)))) == dict(enumerate(bodies))
        archive_until(databases, folder, FIRST + (19 if moment == "before" else 29))
    assert whole_chain(folder) == bodies[:33]
    assert numbers(databases.state.dsn, "curator.tile") == [*range(33, len(bodies))]
    assert numbers(databases.log.dsn) == [0, 11, 12, *range(33, len(bodies))]


def archive_and_die(databases, folder, interval, point, moment):
    """End this process by SIGKILL before or after a step."""

    def deadly(step):
        def call(*args, **named):
            if moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            step(*args, **named)
            return os.kill(os.getpid(), signal.SIGKILL)

        return call

    if point in {"write_document", "write_tiles"}:
        setattr(TileArchive, point, deadly(getattr(TileArchive, point)))
    elif point == "check":
        archiver = archive_command._ShardArchiver
        archiver._check_file = deadly(archiver._check_file)
    else:
        words = {"drop": "drop_archived", "drop_seen": "DELETE FROM curator", "vacuum": "VACUUM"}[point]
        execute = psycopg.Connection.execute
        dying = deadly(execute)

        def selective(self, query, *args, **named):
            return (dying if words in str(query) else execute)(self, query, *args, **named)

        psycopg.Connection.execute = selective
    archive_tiles(databases, TileArchive(folder), (interval + 1) * 900)


def test_a_new_state_takes_over_a_shard_whose_old_tiles_are_archived(databases, written, tmp_path):
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    log = PostgresLogStore(databases.log.dsn)
    tail = log.read({SHARD: -1})[SHARD]
    heads = catch_up(SeenState(None, None), tail, verify_signature)
    assert heads[0].interval == FIRST + 30
    assert heads[-1].tile.hash == written.heads[heads[-1].tile.header.seq].tile.hash
    assert heads[-1].totals.tolist() == written.heads[heads[-1].tile.header.seq].totals.tolist()
    log.close()


@pytest.mark.usefixtures("written")
def test_a_first_release_by_another_key_than_the_one_handed_on_is_not_believed(databases, tmp_path):
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    log = PostgresLogStore(databases.log.dsn)
    tail = log.read({SHARD: -1})[SHARD]
    without_rotation = tail._replace(kept=tuple(tile for tile in tail.kept if tile.header.kind is not TileKind.KEY))
    for bad in (without_rotation, tail._replace(kept=())):
        with pytest.raises(MurmurateError):
            catch_up(SeenState(None, None), bad, verify_signature)
    log.close()


def test_a_state_older_than_the_archive_is_blocked_with_a_reason(databases, written, tmp_path):
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    log = PostgresLogStore(databases.log.dsn)
    tail = log.read({SHARD: 5})[SHARD]
    with pytest.raises(MurmurateError, match="older than the archive"):
        catch_up(SeenState(written.heads[5], None), tail, verify_signature)
    log.close()


@pytest.mark.usefixtures("written")
def test_the_mirror_of_a_state_that_was_set_back_keeps_its_head(databases, tmp_path):
    with psycopg.connect(databases.state.dsn) as state:
        state.execute("DELETE FROM curator.tile WHERE seq > 20")
        state.execute("UPDATE curator.shard SET seq = 20")
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    assert numbers(databases.state.dsn, "curator.tile") == [20]


def test_the_archive_of_another_log_or_a_damaged_one_is_refused_and_nothing_is_deleted(databases, written, tmp_path):
    folder = tmp_path / "archive"
    archive_until(databases, folder, FIRST + 29)
    before = numbers(databases.log.dsn)
    outcome = archive_tiles(databases, TileArchive(tmp_path / "empty"), (FIRST + 40) * 900)
    assert "give the folder that has them" in outcome.refused[SHARD]
    (file,) = (folder / "tiles" / SHARD).iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:-20_000])
    assert "is damaged" in archive_tiles(databases, TileArchive(folder), (FIRST + 40) * 900).refused[SHARD]
    file.write_bytes(data)
    TileArchive(folder).write_tiles(SHARD, [(33, 0, written.heads[34].tile.to_bytes())])
    assert "differs from the log" in archive_tiles(databases, TileArchive(folder), (FIRST + 40) * 900).refused[SHARD]
    assert numbers(databases.log.dsn) == before


def test_a_tile_that_does_not_follow_is_not_archived(databases, written, tmp_path):
    body = bytearray(written.heads[5].tile.to_bytes())
    body[-40] ^= 1
    with psycopg.connect(databases.log.dsn) as log:
        log.execute("ALTER TABLE public_log.tile DISABLE TRIGGER USER")
        log.execute("UPDATE public_log.tile SET body = %s WHERE seq = 5", (bytes(body),))
        log.execute("ALTER TABLE public_log.tile ENABLE TRIGGER USER")
    before = numbers(databases.log.dsn)
    outcome = archive_tiles(databases, TileArchive(tmp_path / "archive"), (FIRST + 30) * 900)
    assert SHARD in outcome.refused
    assert numbers(databases.log.dsn) == before


def test_only_archived_tiles_can_be_deleted_also_by_the_owner(databases, written, tmp_path):
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    with psycopg.connect(databases.log.dsn, autocommit=True) as log:
        for statement in (
            "DELETE FROM public_log.tile WHERE seq = 33",
            "DELETE FROM public_log.tile",
            "UPDATE public_log.tile SET seq = seq",
            "TRUNCATE public_log.tile",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                log.execute(statement)
        for seq, value in ((40, "0" * 64), (10**6, "0" * 64), (written.heads[-1].tile.header.seq, "")):
            with pytest.raises(psycopg.errors.RaiseException):
                log.execute("SELECT public_log.drop_archived(%s, %s, %s)", (SHARD, seq, value))


@pytest.mark.usefixtures("written")
def test_two_runs_at_once_do_not_write_to_one_folder(databases, tmp_path):
    archive = TileArchive(tmp_path / "archive")
    with archive.locked(), pytest.raises(MurmurateError, match="another murmurate log archive"):
        archive_tiles(databases, archive, 0)


def lose_tiles(dsn, first):
    """A log that was set back: tiles from a number on are gone."""
    with psycopg.connect(dsn) as log:
        log.execute("ALTER TABLE public_log.tile DISABLE TRIGGER USER")
        log.execute("DELETE FROM public_log.tile WHERE seq >= %s", (first,))
        log.execute("ALTER TABLE public_log.tile ENABLE TRIGGER USER")
        row = log.execute("SELECT body FROM public_log.tile ORDER BY seq DESC LIMIT 1").fetchone()
        if row is None:
            log.execute("DELETE FROM public_log.head")
            log.execute("DELETE FROM public_log.archived")
            return
        tile = parse_tile(bytes(row[0]))
        log.execute(
            "UPDATE public_log.head SET seq = %s, hash = %s, key = %s, zones = %s, interval = %s",
            (tile.header.seq, tile.hash, tile.key_in_force, tile.header.table, tile.header.interval),
        )


def test_a_log_is_repaired_from_the_mirror_and_what_was_archived_from_the_archive(databases, written, tmp_path, capsys):
    folder, bodies = tmp_path / "archive", [head.tile.to_bytes() for head in written.heads]
    archive_until(databases, folder, FIRST + 29)
    kept = numbers(databases.log.dsn)
    lose_tiles(databases.log.dsn, 100)
    assert repair_log(databases.state.dsn, databases.log.dsn) == 0
    assert numbers(databases.log.dsn) == kept

    lose_tiles(databases.log.dsn, 0)
    with pytest.raises(MurmurateError, match="--from FOLDER"):
        repair_log(databases.state.dsn, databases.log.dsn)
    assert numbers(databases.log.dsn) == []
    assert repair_log(databases.state.dsn, databases.log.dsn, str(folder)) == 0
    assert f"{len(bodies):,} tiles restored" in capsys.readouterr().out
    assert [head.tile.to_bytes() for head in checked_heads(written.log, SHARD)] == bodies
    again = archive_until(databases, folder, FIRST + 29)
    assert (again.tiles, again.dropped) == (0, 30)
    assert numbers(databases.log.dsn) == kept


def test_a_copy_beyond_an_archived_log_is_taken(databases, written, tmp_path):
    """Both stores were set back: only a copy can tell what was public."""
    export_log(tmp_path / "copy.tar", databases.log.dsn)
    kept_until = 150
    with psycopg.connect(databases.state.dsn) as state:
        state.execute("DELETE FROM curator.tile WHERE seq >= %s", (kept_until,))
        state.execute("UPDATE curator.shard SET seq = %s", (kept_until - 1,))
    archive_until(databases, tmp_path / "archive", FIRST + 29)
    lose_tiles(databases.log.dsn, kept_until)
    assert repair_log(databases.state.dsn, databases.log.dsn, str(tmp_path / "copy.tar")) == 0
    assert numbers(databases.log.dsn)[-1] == written.heads[-1].tile.header.seq


def test_an_export_is_whole_with_the_archive_and_a_zone_needs_it(databases, written, tmp_path, capsys):
    before, folder = tmp_path / "before.tar", tmp_path / "archive"
    export_log(before, databases.log.dsn)
    archive_until(databases, folder, FIRST + 29)
    export_log(tmp_path / "part.tar", databases.log.dsn)
    assert "--archive FOLDER adds them" in capsys.readouterr().out
    export_log(tmp_path / "whole.tar", databases.log.dsn, archive=folder)
    assert (tmp_path / "whole.tar").read_bytes() == before.read_bytes()
    with pytest.raises(MurmurateError, match="--archive FOLDER"):
        export_log(tmp_path / "zone.jsonl", databases.log.dsn, ZONE)
    export_log(tmp_path / "zone.jsonl", databases.log.dsn, ZONE, folder)
    report = check_log({"zone": open_log_source(str(tmp_path / "zone.jsonl"))})
    assert (report.is_valid, report.is_complete, report.zones[ZONE].records) == (True, True, RELEASES)
    assert verify_logs([str(tmp_path / "part.tar")], [], None, [], tmp_path) == EXIT_INCOMPLETE
    shown = capsys.readouterr().out
    begins = datetime.fromtimestamp((FIRST + 30) * 900, UTC)
    assert f"was checked from tile 33 on, which is {begins:%Y-%m-%d %H:%M} UTC" in shown
    assert "but the first releases are missing." in shown
    assert written.heads
