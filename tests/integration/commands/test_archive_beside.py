"""What else looks at the log, after old tiles were archived: closed zones, forged tiles, late readers, static files."""

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from zoneinfo import ZoneInfo

import httpx
import psycopg
import pytest

from murmurate.commands.archive import archive_tiles
from murmurate.commands.export import export_log
from murmurate.commands.repair import repair_log
from murmurate.commands.verify import verify_logs
from murmurate.operations.log_source import open_log_source
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.public_log.make_tile import change_key, release_interval
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import TileKind
from murmurate.public_log.tile_chain import check_follows
from murmurate.publisher.desired_state import Change, PlanChange, ZoneOpening
from murmurate.service.clock import ServiceClock
from murmurate.service.log_reader.follower import Follower
from murmurate.service.log_reader.log_queries import LogReader
from murmurate.service.log_reader.zone_view import PlanEnd, PlanTerms, ZoneViews
from murmurate.service.public_api import static_files
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.settings import ServiceSettings, ZoneDisplay
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.verification.verifier import check_log
from tests.support.api_servers import await_backfill, listening, plan_of
from tests.support.ports import free_port
from tests.support.postgres_stores import ShardWriter, mirror_shard
from tests.support.sample_shards import NEW_KEY, OLD_KEY

pytestmark = pytest.mark.slow

ZONE, LATE, SHARD = "harbour", "late", "quay"
FIRST = 1_767_225_600 // 900  # 2026-01-01 UTC: in the past by any clock
RELEASES, ARCHIVED_UNTIL, CLOSED_AFTER = 150, FIRST + 29, FIRST + 19
THIEF_KEY = Ed25519Signer(bytes([7]) * 32)


@pytest.fixture
def databases(log_dsn, state_dsn):
    return Databases.from_dsns(state=state_dsn, log=log_dsn)


@pytest.fixture
def writer(log_dsn):
    """A shard of 150 releases. A change of key, and a zone that enters and is closed, are within the first 30."""
    plan = plan_of(ZONE)
    made = ShardWriter(log_dsn, {ZONE: plan}, shard=SHARD, first=FIRST)
    made.write(9, 400_000)
    made.write(key_change=Change(OLD_KEY.public_key, NEW_KEY.public_key))
    its = made.terms[ZONE]
    made.log.claim({LATE: SHARD})
    made.take(LATE, plan, ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=FIRST))
    made.write(13, 400_000)
    made.write(closing=[LATE])
    del made.zones[LATE]
    made.write(RELEASES - 20, 400_000)
    assert made.head.interval == FIRST + RELEASES - 1
    assert [zone.last for zone in made.head.table.closed] == [CLOSED_AFTER]
    yield made
    made.close()


def archive_old(databases, folder):
    outcome = archive_tiles(databases, TileArchive(folder), (ARCHIVED_UNTIL + 1) * 900)
    assert (outcome.refused, outcome.dropped) == ({}, 30)


def smuggle_bodies(dsn, tiles):
    """Append tiles as the role of the publisher can: their headers fit, and nothing else is looked at."""
    with psycopg.connect(dsn) as log:
        for tile in tiles:
            assert log.execute("SELECT public_log.append(%s::bytea[])", ([tile.to_bytes()],)).fetchall()


def numbers(dsn):
    with psycopg.connect(dsn) as log:
        return [seq for (seq,) in log.execute("SELECT seq FROM public_log.tile ORDER BY seq")]


def test_a_zone_that_was_closed_in_the_archived_part_is_closed_for_every_reader(databases, writer, tmp_path):
    folder, tar, lines = tmp_path / "archive", tmp_path / "log.tar", tmp_path / "late.jsonl"
    archive_old(databases, folder)
    export_log(tar, databases.log.dsn)
    alone = check_log({"log": open_log_source(str(tar))})
    both = check_log({str(path): open_log_source(str(path)) for path in (folder, tar)})
    export_log(lines, databases.log.dsn, LATE, folder)
    of_zone = check_log({"zone": open_log_source(str(lines))})
    for report, is_complete in ((alone, False), (both, True), (of_zone, True)):
        assert (report.findings, report.is_complete) == ([], is_complete)
        assert report.zones[LATE].closed_after == CLOSED_AFTER
    assert both.zones[LATE].total_epsilon_micro == writer.head.table.closed[0].total_epsilon_micro
    with Reader(databases.log.dsn) as reader:
        assert reader.follower.broken == {}
        assert reader.views[LATE].closed.last == CLOSED_AFTER


def test_a_shard_that_has_ended_is_archived_and_verifies(databases, writer, tmp_path):
    writer.write(closing=[ZONE])
    assert not writer.head.table.rows
    archive_old(databases, tmp_path / "archive")
    report = check_log({name: open_log_source(name) for name in (str(tmp_path / "archive"), databases.log.dsn)})
    assert (report.findings, report.is_complete) == ([], True)
    assert report.zones[ZONE].closed_after == writer.head.interval


class Reader:
    """A reader that starts now."""

    def __init__(self, dsn):
        self.follower, self.archive = Follower(dsn), LogReader(dsn)
        self.views = ZoneViews(
            lambda _: ZoneDisplay(timezone=ZoneInfo("UTC")), PlanTerms(self.archive.read_documents).get
        )
        self.refresh()

    def refresh(self):
        for change in self.follower.refresh():
            self.views.put(change.view)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.follower.close()
        self.archive.close()


def forged_release(head):
    """A release that fits and that the key has not signed."""
    return replace(release_interval(head, head.tile.rows, NEW_KEY), signature="00" * 64)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_forged_tile_is_set_aside_after_an_archive(databases, writer, tmp_path, capsys, is_seen):
    if is_seen:
        mirror_shard(databases.state.dsn, writer, {writer.terms[ZONE].plan_digest: plan_of(ZONE)})
    archive_old(databases, tmp_path / "archive")
    before, last = numbers(databases.log.dsn), writer.head.tile.header.seq
    assert repair_log(databases.state.dsn, databases.log.dsn) == 0
    smuggle_bodies(databases.log.dsn, [forged_release(writer.head)])
    assert repair_log(databases.state.dsn, databases.log.dsn) == 1
    assert f"{SHARD}: no reader accepts tile {last + 1}: signature" in capsys.readouterr().out
    assert repair_log(databases.state.dsn, databases.log.dsn, set_aside=True) == 0
    assert f"tile {last + 1} set aside as evidence. The shard continues after tile {last}." in capsys.readouterr().out
    assert numbers(databases.log.dsn) == before
    writer.write(1, 400_000)
    with Reader(databases.log.dsn) as reader:
        assert reader.follower.broken == {}
        assert reader.views[ZONE].shard.head.tile.hash == writer.head.tile.hash
    with psycopg.connect(databases.log.dsn) as log, pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        log.execute("DELETE FROM public_log.tile WHERE seq = %s", (last,))


def test_a_late_reader_follows_the_keys_through_what_was_archived(databases, writer, tmp_path):
    archive_old(databases, tmp_path / "archive")
    with Reader(databases.log.dsn) as reader:
        assert reader.follower.broken == {}
        shard = reader.views[ZONE].shard
        assert (shard.opening_key, shard.head.tile.header.key) == (OLD_KEY.public_key, NEW_KEY.public_key)
        assert (shard.archived_seq, len(shard.kept_seqs)) == (33, 4)
        assert shard.head.tile.hash == writer.head.tile.hash


@pytest.mark.parametrize("forgery", ["of the archived change", "of a new change"])
def test_a_late_reader_believes_no_forged_key_tile(databases, writer, tmp_path, forgery):
    archive_old(databases, tmp_path / "archive")
    if forgery == "of the archived change":
        tile = next(head.tile for head in writer.heads if head.tile.header.kind is TileKind.KEY)
        body = replace(tile, signature="00" * 64).to_bytes()
        with psycopg.connect(databases.log.dsn) as log:
            log.execute("SET session_replication_role = replica")  # past the rules of the log
            log.execute("UPDATE public_log.tile SET body = %s WHERE seq = %s", (body, tile.header.seq))
    else:
        change = replace(change_key(writer.head, THIEF_KEY.public_key, NEW_KEY), signature="00" * 64)
        head, tiles = check_follows(writer.head, change, writer.head.table), [change]
        for _ in range(5):  # so many that the change is not among the recent tiles
            tiles.append(release_interval(head, writer.head.tile.rows, THIEF_KEY))
            head = check_follows(head, tiles[-1], head.table)
        smuggle_bodies(databases.log.dsn, tiles)
    with Reader(databases.log.dsn) as reader:
        assert list(reader.follower.broken) == [SHARD]
        assert ZONE not in reader.views


def test_a_reader_notes_an_archive_also_without_a_new_tile(databases, writer, tmp_path):
    with Reader(databases.log.dsn) as reader:
        assert reader.views[ZONE].shard.archived_seq == -1
        archive_old(databases, tmp_path / "archive")
        reader.refresh()
        assert reader.views[ZONE].shard.archived_seq == 33
        assert reader.views[ZONE].shard.head.tile.hash == writer.head.tile.hash


def test_plans_that_ended_in_the_archived_part_are_found_as_before(databases, log_dsn, tmp_path):
    plans = [plan_of(ZONE)]
    plans += [
        make_plan(parse_zone(json.loads(plans[0])["zone_file"].replace("epsilon 3", f"epsilon {number}"))).to_json()
        for number in (2, 1)
    ]
    terms = [ReleaseTerms.from_json(text) for text in plans]
    writer = ShardWriter(log_dsn, {ZONE: plans[0]}, shard=SHARD, first=FIRST)
    writer.write(6, 400_000)
    for (before, after), text in zip(pairwise(terms), plans[1:], strict=True):
        writer.log.publish_documents({after.plan_digest: compact_plan(text)})
        writer.take(ZONE, text, replace(writer.zones[ZONE], plan=after.plan_digest))
        change = PlanChange(before.plan_digest, after.plan_digest, after.currency, after.tick)
        writer.write(plan_changes={ZONE: change})
        writer.write(8, 400_000)
    writer.write(130, 400_000)
    writer.close()

    def ended():
        with Reader(log_dsn) as reader:
            view = reader.views[ZONE]
            return reader.archive.read_older_plans(view, FIRST), reader.archive.read_older_plans(view, FIRST + 9)

    expected = PlanEnd(terms[0].plan_digest, FIRST + 5), PlanEnd(terms[1].plan_digest, FIRST + 13)
    assert ended() == (expected, expected[1:])
    archive_old(databases, tmp_path / "archive")
    assert ended() == (expected, expected[1:])


@contextmanager
def public_process(dsn, **settings):
    clock = ServiceClock(simulated_s=(FIRST + RELEASES + 1) * 900 - 60, wall_s=time.time(), speed=1e-6)
    port = free_port()
    live_state = LiveState(dsn, ServiceSettings(public=f"127.0.0.1:{port}", clock=clock, **settings))
    with listening(public_app(live_state), port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        await_backfill(live_state)
        yield client
    live_state.close()


def wait_for_list(folder, holds):
    end = time.monotonic() + 180
    while True:
        try:
            (entry,) = json.loads((folder / "shards").read_bytes())
            if holds(entry):
                return
        except (FileNotFoundError, ValueError):
            pass
        assert time.monotonic() < end
        time.sleep(0.02)


def is_whole(entry):
    return "archived" not in entry


def test_static_files_of_archived_tiles_stay_and_come_back_from_the_archive(
    databases, writer, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(static_files, "LOOK_EVERY_S", 0.05)
    dsn, folder, archive = databases.log.dsn, tmp_path / "static", tmp_path / "archive"
    bodies = {head.tile.header.seq: head.tile.to_bytes() for head in writer.heads}
    tiles = folder / "tiles" / SHARD

    def written():
        return {int(path.name): path.read_bytes() for path in tiles.iterdir() if path.name.isdecimal()}

    with public_process(dsn, static_files=folder):
        wait_for_list(folder, is_whole)
    archive_old(databases, archive)
    with public_process(dsn, static_files=folder):  # the files have what the log has not
        wait_for_list(folder, is_whole)
        assert written() == bodies
        assert "tiles lost" not in caplog.messages
        table = folder / "documents" / writer.head.table.digest
        table.unlink()
        wait_for_list(folder, lambda entry: is_whole(entry) and table.exists())
        (tiles / "5").unlink()
        wait_for_list(folder, lambda entry: entry.get("archived") == {"seq": 33, "kept": [0, 9, 10, 23]})
        lost = [record for record in caplog.records if record.message == "tiles lost"]
        assert [(record.count, record.first) for record in lost] == [(1, 5)]
        assert "murmurate log archive" in lost[0].remedy
        report = check_log({"folder": open_log_source(str(folder))})
        assert (report.findings, report.is_complete) == ([], False)
    with public_process(dsn, static_files=folder, archive=archive):
        wait_for_list(folder, is_whole)
        assert written() == bodies
    report = check_log({"folder": open_log_source(str(folder))})
    assert (report.findings, report.is_complete, report.zones[LATE].closed_after) == ([], True, CLOSED_AFTER)


def test_new_static_files_begin_with_what_the_log_has_or_with_the_archive(databases, writer, tmp_path):
    archive_old(databases, tmp_path / "archive")
    documents = {writer.terms[ZONE].plan_digest, *(head.table.digest for head in writer.heads)}
    for name, settings, is_complete in (("part", {}, False), ("whole", {"archive": tmp_path / "archive"}, True)):
        folder = tmp_path / name
        with public_process(databases.log.dsn, static_files=folder, **settings):
            wait_for_list(folder, lambda _: True)
        assert {path.name for path in (folder / "documents").iterdir()} == documents
        report = check_log({"folder": open_log_source(str(folder))})
        assert (report.findings, report.is_complete) == ([], is_complete)


def test_the_daily_check_goes_on_after_an_archive(databases, writer, tmp_path):
    dsn, known, metrics = databases.log.dsn, tmp_path / "verified.json", tmp_path / "murmurate.prom"

    def check():
        return verify_logs([dsn], [], None, [], tmp_path, known=known, metrics=metrics)

    def make_whole():
        known.write_text(json.dumps(json.loads(known.read_text()) | {"whole_s": 0}))

    assert check() == 0
    archive_old(databases, tmp_path / "archive")
    for begin in (lambda: None, make_whole):
        begin()
        writer.write(1, 400_000)
        assert check() == 0
        assert "murmurate_verification_failed 0" in metrics.read_text()
        assert json.loads(known.read_text())["tiles"][SHARD][0] == writer.head.tile.header.seq

    early = writer.heads[3].tile
    known.write_text(json.dumps({"whole_s": 0, "tiles": {SHARD: [early.header.seq, early.hash]}}))
    assert check() == 3  # what is between was never checked
    known.unlink()
    assert check() == 3
    assert verify_logs([dsn, str(tmp_path / "archive")], [], None, [], tmp_path, known=known) == 0
    assert check() == 0
