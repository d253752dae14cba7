"""The folder of static files: what was lost or damaged is written again, and its list names only what is there."""

from __future__ import annotations

import json
import logging
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Thread

import pytest
from tests.support.api_servers import FIRST, LEAD, NOW_S, SHARDS, plan_of, public_process
from tests.support.postgres_stores import ShardWriter
from tests.support.waiting import wait_until

from murmurate.operations.log_source import open_log_source
from murmurate.public_log.tile import parse_header, parse_tile
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.public_api import static_files
from murmurate.verification.verifier import check_log

pytestmark = pytest.mark.slow

DAY = "2025-10-25"  # complete
INTERVALS = 2 * 96


class PublicProcess:
    """A public API that writes static files, and a log of two shards that grows when it is told to."""

    def __init__(self, log_dsn, folder):
        self.log_dsn, self.folder = log_dsn, folder
        self.writers = [
            ShardWriter(log_dsn, {zone: plan_of(zone)}, shard=shard, first=FIRST) for zone, shard in SHARDS.items()
        ]
        for writer in self.writers:
            writer.write(INTERVALS, 400_000)

    @contextmanager
    def running(self):
        settings = {"timezone": "Europe/Zurich", "static_files": self.folder}
        with public_process(self.log_dsn, NOW_S - 86400, **settings):
            yield

    def grow(self):
        """Have the log grow by a tile of each shard, and wait until its files are there."""
        for writer in self.writers:
            writer.write(1, 400_000)
        self.wait_until_listed()

    def wait_until_listed(self):
        heads = sorted((writer.shard, writer.head.tile.header.seq) for writer in self.writers)
        assert wait_until(lambda: [(row["shard"], row["seq"]) for row in read_list(self.folder) or []] == heads)

    def path_of(self, kind):
        table = self.writers[0].head.table
        names = {
            "tile": f"tiles/{SHARDS['harbour']}/17",
            "empty tile": f"tiles/{SHARDS['old town']}/100",
            "table": f"documents/{table.digest}",
            "plan": f"documents/{table.rows[0].plan}",
            "plan for clients": f"plans/{table.rows[0].plan}.json",
            "prices": f"prices/{SHARDS['harbour']}/{price_name(FIRST + INTERVALS - 2)}",
            "day": f"zones/harbour/days/{DAY}.json",
            "list": "shards",
            "documents": "documents",
            "tiles": f"tiles/{SHARDS['old town']}",
        }
        return self.folder / names[kind]


@pytest.fixture
def process(log_dsn, tmp_path):
    process = PublicProcess(log_dsn, tmp_path / "static")
    yield process
    for writer in process.writers:
        writer.close()


def price_name(interval):
    return f"{datetime.fromtimestamp(interval * 900, UTC):%Y%m%dT%H%M%SZ}.json"


def read_list(folder):
    try:
        return json.loads((folder / "shards").read_bytes())
    except FileNotFoundError:
        return None


def files_under(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def missing_of_list(folder):
    """What the list names and is not there, as a reader finds it who reads the list first."""
    missing = []
    for row in read_list(folder) or []:
        for seq in range(row["seq"] + 1):
            try:
                tile = (folder / "tiles" / row["shard"] / str(seq)).read_bytes()
                header, _ = parse_header(tile.partition(b"\n")[0].decode())
                table = ZoneTable.from_json((folder / "documents" / header.table).read_text())
            except FileNotFoundError as error:
                missing.append(error.filename)
                continue
            missing += [zone.plan for zone in table.rows if not (folder / "documents" / zone.plan).exists()]
    return missing


def assert_verifies(process):
    report = check_log({"files": open_log_source(str(process.folder))})
    assert (report.is_valid, report.is_complete) == (True, True), report.findings
    assert report.tiles_by_source["files"] == sum(len(writer.heads) for writer in process.writers)


def test_a_folder_that_is_lost_is_written_again_and_its_list_never_names_what_is_not_there(process, tmp_path):
    with process.running():
        process.wait_until_listed()
        before, found, is_over = files_under(process.folder), [], Event()

        def read_all_the_time():
            while not is_over.is_set():
                found.extend(missing_of_list(process.folder))

        for _ in range(3):
            process.folder.rename(tmp_path / "gone")
            reader = Thread(target=read_all_the_time)
            reader.start()
            process.grow()
            is_over.set()
            reader.join()
            is_over.clear()
            shutil.rmtree(tmp_path / "gone")
        assert found == []
        assert_verifies(process)
        after = files_under(process.folder)
        kept = {path: data for path, data in before.items() if path.name != "shards" and path.parts[0] != "prices"}
        assert {path: after[path] for path in kept} == kept


@pytest.mark.parametrize(
    "kind", ["tile", "table", "plan", "plan for clients", "prices", "day", "list", "documents", "tiles"]
)
def test_a_file_that_is_lost_is_there_again_with_the_next_tile(kind, process):
    with process.running():
        process.wait_until_listed()
        assert wait_until(process.path_of("day").exists)
        path = process.path_of(kind)
        before = files_under(path) if path.is_dir() else path.read_bytes()
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        process.grow()
        assert wait_until(path.exists)
        process.wait_until_listed()
        if path.is_dir():
            assert files_under(path).items() >= before.items()
        elif kind != "list":
            assert path.read_bytes() == before
        assert missing_of_list(process.folder) == []
        assert_verifies(process)


def test_prices_of_a_shard_are_there_before_they_are_paid_and_leave_after_hours(process):
    folder, count = process.folder / "prices" / SHARDS["harbour"], static_files.KEPT_PRICES_S // 900 + 1 + LEAD
    with process.running():
        process.wait_until_listed()
        for _ in range(3):
            process.grow()
            last = process.writers[0].head.interval
            names = [price_name(interval) for interval in range(last + LEAD + 1 - count, last + LEAD + 1)]
            assert wait_until(lambda names=names: sorted(path.name for path in folder.iterdir()) == names)


def test_files_that_were_lost_while_the_process_was_away_are_written_at_its_start(process):
    with process.running():
        process.wait_until_listed()
    listed = read_list(process.folder)
    shutil.rmtree(process.folder / "documents")
    (process.folder / "tiles" / SHARDS["harbour"] / "3").unlink()
    (process.folder / "tiles" / SHARDS["harbour"] / "90").unlink()
    with process.running():
        assert wait_until(lambda: missing_of_list(process.folder) == [] and read_list(process.folder) == listed)
        assert_verifies(process)


def test_without_a_new_tile_what_was_lost_is_written_again_as_well(process, monkeypatch):
    monkeypatch.setattr(static_files, "LOOK_EVERY_S", 0.1)
    with process.running():
        process.wait_until_listed()
        shutil.rmtree(process.folder)
        process.wait_until_listed()
        assert missing_of_list(process.folder) == []
        assert_verifies(process)


@pytest.mark.parametrize("kind", ["tile", "empty tile", "table", "plan", "plan for clients", "prices", "day"])
def test_a_file_that_is_damaged_is_written_again(kind, process, monkeypatch):
    monkeypatch.setattr(static_files, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(static_files, "LOOK_EVERY_S", 0.1)
    with process.running():
        process.wait_until_listed()
        assert wait_until(process.path_of("day").exists)
        path = process.path_of(kind)
        before = path.read_bytes()
        middle = len(before) // 2
        path.write_bytes(b"" if kind == "empty tile" else before[:middle] + b"\0" + before[middle + 1 :])
        assert wait_until(lambda: path.read_bytes() == before)
        assert_verifies(process)


def test_a_signed_tile_that_is_not_the_logs_is_evidence_and_stays(process, monkeypatch, caplog):
    monkeypatch.setattr(static_files, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(static_files, "LOOK_EVERY_S", 0.1)
    other = other_tile(process.writers[0])
    with process.running(), caplog.at_level(logging.ERROR, static_files.__name__):
        process.wait_until_listed()
        path = process.folder / "tiles" / SHARDS["harbour"] / str(other.header.seq)
        path.write_bytes(other.to_bytes())
        assert wait_until(lambda: "file differs from the log" in caplog.text)
        assert path.read_bytes() == other.to_bytes()
        report = check_log({"files": open_log_source(str(process.folder)), "log": open_log_source(process.log_dsn)})
        assert [finding.rule for finding in report.findings] == ["two values"]


def other_tile(writer):
    """A second tile with the number of the last one, signed by the same key."""
    writer.head, last = writer.heads[-2], writer.head
    try:
        tile, _ = writer.draft(700_000)
    finally:
        writer.head = last
    assert (tile.header.seq, tile.hash != last.tile.hash) == (last.tile.header.seq, True)
    return parse_tile(tile.to_bytes())
