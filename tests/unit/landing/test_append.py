"""The landing: what is appended is there whole or not at all, is there for good, and only its owner can read it."""

import errno
import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.landing_processes import barrier, children, keep_appending, keep_closing
from tests.support.landing_processes import killed_everywhere as killed
from tests.support.sample_landings import (
    BY_HAND,
    HONEST,
    METERS,
    ROWS,
    SHARD_METERS,
    START_S,
    STEP_S,
    Meter,
    Row,
    a_landing,
    by_hand,
    demand_of,
    files_in,
    leave,
    readings,
)

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import close_interval, manifest_of
from murmurate.service.landing.layout import Landing, interval_name, parse_interval_name
from murmurate.service.storage import durable
from murmurate.service.storage.object_store import FolderStore

WRITERS, APPENDS, INTERVALS = 4, 50, 20


def visible(landing):
    return sorted(path for path in landing.root.glob("interval=*/**/*.parquet") if not path.name.startswith("."))


def test_the_oracle_is_right_about_the_landing_that_a_person_has_written_down():
    assert by_hand(METERS, ROWS) == BY_HAND


def test_a_landing_is_opened_again_as_what_it_was_made_for_and_as_nothing_else(tmp_path):
    made = Landing.create(tmp_path / "a" / "landing", interval_s=300, shard_meters=7)
    assert Landing.create(made.root, interval_s=300, shard_meters=7) == Landing.open(made.root) == made
    for other in ({"interval_s": 900, "shard_meters": 7}, {"interval_s": 300, "shard_meters": 8}):
        with pytest.raises(
            ReadingError, match="is a landing for 300 s and 7 meters a shard: must have the requested layout"
        ):
            Landing.create(made.root, **other)
    assert Landing.open(made.root) == made


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (None, "is not a folder for readings: it has no _layout.json; murmurate init creates one"),
        ("", "is unreadable: must name interval_s and shard_meters"),
        ("[]", "is unreadable"),
        ('{"murmurate_landing": 1, "interval_s": 900}', "is unreadable"),
        ('{"murmurate_landing": 2, "interval_s": 900, "shard_meters": 7}', "is 2: must be format 1"),
        ('{"murmurate_landing": 1, "interval_s": 7, "shard_meters": 7}', "must be whole minutes that divide a day"),
        ('{"murmurate_landing": 1, "interval_s": 900, "shard_meters": 0}', "must be at least 1"),
    ],
)
def test_a_folder_that_is_no_landing_is_refused(tmp_path, layout, says):
    if layout is not None:
        (tmp_path / "_layout.json").write_text(layout, encoding="utf-8")
    with pytest.raises(MurmurateError, match=says):
        Landing.open(tmp_path)


@given(interval_s=st.sampled_from([60, 300, 900, 3600, 86_400]), number=st.integers(0, 10**6))
def test_an_interval_has_one_name_and_a_name_one_interval(interval_s, number):
    start_s = number * interval_s
    assert parse_interval_name(interval_name(start_s)) == start_s
    landing = Landing(store=FolderStore(Path("landing")), interval_s=interval_s)
    assert landing.interval_folder(start_s).name == f"interval={interval_name(start_s)}"
    with pytest.raises(ReadingError, match="must begin an interval"):
        landing.interval_folder(start_s + 1)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("shards", [1, 4])
def test_an_append_is_one_file_in_order_of_the_meters_in_which_no_reading_is_lost(tmp_path, shards):
    landing, _ = a_landing(tmp_path)
    rows = [row for row in HONEST if shards > 1 or row.meter < SHARD_METERS]
    assert len({row.meter // SHARD_METERS for row in rows}) == shards
    assert append_readings(landing, START_S, readings(rows))
    (path,) = visible(landing)
    assert path.parent == (landing.shard_folder(START_S, 0) if shards == 1 else landing.interval_folder(START_S))
    table = pq.read_table(path, partitioning=None)
    found = list(zip(table["meter"].to_pylist(), table["energy_wh"].to_pylist(), strict=True))
    assert [meter for meter, _ in found] == sorted(meter for meter, _ in found)
    assert sorted(found) == sorted((row.meter, row.energy_wh) for row in rows)
    assert {int(when.timestamp()) for when in table["interval_start"].to_pylist()} == {START_S}


def test_the_name_of_a_file_does_not_confirm_what_is_in_it(tmp_path):
    landing, _ = a_landing(tmp_path)
    for _ in range(2):
        append_readings(landing, START_S, readings([Row(0, 250)]))
    digests = {path.name[-72:] for path in visible(landing)}
    assert len(digests) == 2


@pytest.mark.parametrize(("folder", "umask", "folders", "files"), [
    (0o700, 0, 0o700, 0o600),
    (0o775, 0, 0o700, 0o600),  # of a user's own group, by the umask of the user
    (0o2750, 0, 0o2700, 0o600),  # of a group that only reads
    (0o2770, 0o007, 0o2770, 0o660),  # that two users of services share
])  # fmt: skip
def test_only_its_owner_reads_what_is_in_a_landing_unless_its_group_shares_it(tmp_path, folder, umask, folders, files):
    before = os.umask(umask)
    try:
        tmp_path.chmod(folder)
        landing, table = a_landing(tmp_path)
        append_readings(landing, START_S, readings(HONEST))
        close_interval(landing, START_S, table.version)
    finally:
        os.umask(before)
    everything = [landing.root, *landing.root.rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in everything}
    assert modes == {(True, folders), (False, files)}


class Watched:
    """Every touch of the disk, in order: what was done, and to which inode."""

    def __init__(self, patch, after=lambda: None):
        self.touches, self.after = [], after
        for name, look in {"fsync": os.fstat, "mkdir": None, "replace": os.stat, "link": os.stat}.items():
            patch.setattr(os, name, self._watch(name, getattr(os, name), look))

    def _watch(self, name, real, look):
        def call(what, *more, **options):
            before = look(what) if look else None
            real(what, *more, **options)
            target = Path(what if name == "mkdir" else more[0]).parent.stat().st_ino if name != "fsync" else None
            self.touches.append((name, before and (before.st_ino, before.st_size), target))
            self.after()

        return call

    def synced(self, inode, among):
        return any(name == "fsync" and which[0] == inode for name, which, _ in among)


def test_a_file_is_on_the_disk_before_it_has_its_name_and_the_name_is_before_the_call_returns(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        watched = Watched(patch)
        landing, table = a_landing(tmp_path)
        append_readings(landing, START_S, readings(HONEST))
        close_interval(landing, START_S, table.version)
    kinds = [name for name, *_ in watched.touches]
    assert {"mkdir", "link", "fsync"} == set(kinds)
    for at, (name, which, folder) in enumerate(watched.touches):
        if name != "fsync":
            assert watched.synced(folder, watched.touches[at + 1 :]), f"the folder of a {name} may be lost"
        if name in {"replace", "link"}:
            assert ("fsync", which, None) in watched.touches[:at], f"what a {name} has named may be empty"


def test_at_no_moment_is_there_a_part_of_a_file(tmp_path, monkeypatch):
    seen = []

    def look():
        whole = [pq.read_metadata(path).num_rows for path in visible(landing)]
        seen.append(len(whole))

    def opened(*what, real=os.open):
        descriptor = real(*what)
        look()
        return descriptor

    landing, _ = a_landing(tmp_path)
    with monkeypatch.context() as patch:
        Watched(patch, after=look)
        patch.setattr(os, "open", opened)
        append_readings(landing, START_S, readings(HONEST))
    assert sorted(set(seen)) == [0, 1]


def test_of_many_that_write_once_one_has_written(tmp_path):
    start, won = threading.Barrier(8), []

    def write(number):
        start.wait()
        if durable.write_once(tmp_path / "once", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = won
    assert files_in(tmp_path) == {"once": b"%d" % winner}


def test_where_there_are_no_hard_links_and_no_folder_can_be_synced_a_landing_is_a_landing(tmp_path, monkeypatch):
    """As on a mounted object store."""

    def no_links(*_, **__):
        raise OSError(errno.EPERM, "no such thing here")

    def files_only(descriptor, real=os.fsync):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no such thing here")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_links)
        patch.setattr(os, "fsync", files_only)
        landing, table = a_landing(tmp_path)
        assert append_readings(landing, START_S, readings(HONEST))
        assert demand_of(landing, table) == by_hand(METERS, HONEST)
        assert not durable.write_once(landing.root / "_layout.json", b"")
    assert Landing.open(landing.root) == landing
    assert not list(landing.root.rglob(".*"))


@pytest.mark.usefixtures("quick_disk")
def test_what_is_written_over_is_the_old_or_the_new_and_leaves_no_litter(tmp_path):
    for text in (b"old", b"new"):
        durable.write_file(tmp_path / "file", text)
    assert files_in(tmp_path) == {"file": b"new"}


@pytest.mark.usefixtures("quick_disk")
def test_a_name_that_begins_with_a_dot_or_an_underscore_is_somebodys_workbench(tmp_path):
    landing, table = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    for name in (".b", "_b", "_temporary/0/b", ".hidden/b"):
        other = landing.shard_folder(START_S, 0) / f"{name}.parquet"
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_bytes(b"half a fi")
    closing = close_interval(landing, START_S, table.version)
    assert closing.unfinished == ()
    assert {Path(file.path).name for file in closing.files} == {"a.parquet"}
    assert demand_of(landing, table) == BY_HAND


@pytest.mark.usefixtures("quick_disk")
def test_nothing_is_appended_to_an_interval_that_is_closed(tmp_path):
    landing, table = a_landing(tmp_path)
    assert append_readings(landing, START_S, readings(HONEST))
    close_interval(landing, START_S, table.version)
    before = files_in(landing.root)
    assert not append_readings(landing, START_S, readings(HONEST))
    assert files_in(landing.root) == before
    assert append_readings(landing, START_S + STEP_S, readings(HONEST))


@pytest.mark.slow
def test_what_an_append_is_sure_of_is_in_the_closing_whoever_else_is_at_work(tmp_path):
    """Four writers and two closers, twenty intervals; every second one on a disk that never waits."""
    many = WRITERS * APPENDS
    meters = [Meter(number, "hill", 9) for number in range(2 * many)]
    landing, table = a_landing(tmp_path, meters, shard_meters=many)
    rng, sure_of, left_over = np.random.default_rng(), 0, 0
    together = barrier(2)
    works = [(keep_appending, landing.root, many)] * WRITERS + [(keep_closing, landing.root, together)] * 2
    with children(*works) as everybody:
        writers, closers = everybody[:WRITERS], everybody[WRITERS:]
        for number in range(INTERVALS):
            start_s, quick = START_S + number * STEP_S, number % 2 == 1
            for at, writer in enumerate(writers):
                writer.send(start_s, range(at * APPENDS, (at + 1) * APPENDS), quick)
            time.sleep(rng.uniform(0.005, 0.06 if quick else 0.3))
            for closer in closers:
                closer.send(start_s, table.version)
            first, second = (closer.receive() for closer in closers)
            assert first == second
            sure = {meter for writer in writers for meter in writer.receive()}
            closing = manifest_of(landing, start_s)
            assert closing.to_json() == first
            assert closing.unfinished == ()
            counted = {
                m for file in closing.files for m in pq.read_table(landing.root / file.path)["meter"].to_pylist()
            }
            assert sure | {meter + many for meter in sure} <= counted
            counts = demand_of(landing, table, start_s)["hill"]
            assert (counts.reported, counts.imputed) == (len(counted), 2 * many - len(counted))
            sure_of, left_over = sure_of + len(sure), left_over + many - len(sure)
    assert sure_of > INTERVALS, "the closers were too quick for this to show anything"
    assert left_over > INTERVALS, "the closers were too slow for this to show anything"


def _append(number, root):
    append_readings(Landing.open(root), START_S + number * STEP_S, readings(HONEST))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_disk")
def test_a_writer_that_dies_at_any_touch_of_the_disk_leaves_nothing_in_the_way(tmp_path):
    landing, table = a_landing(tmp_path)
    died = killed(_append, landing.root)
    assert died > 2 * 4, "a file to open, to sync, to name, and a folder to sync"
    for start_s in (START_S + n * STEP_S for n in range(1, died + 1)):
        assert append_readings(landing, start_s, readings(HONEST))
        assert demand_of(landing, table, start_s) == by_hand(METERS, HONEST)
        assert manifest_of(landing, start_s).unfinished == ()


@pytest.mark.usefixtures("quick_disk")
def test_a_landing_that_was_half_made_is_made(tmp_path):
    died = killed(_create, tmp_path)
    for n in range(1, died + 1):
        assert Landing.create(tmp_path / str(n), shard_meters=7).shard_meters == 7
    assert died > 0


def _create(number, folder):
    Landing.create(folder / str(number), shard_meters=7)


@pytest.mark.usefixtures("quick_disk")
def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    landing, _ = a_landing(tmp_path)

    def full(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            append_readings(landing, START_S, readings(HONEST))
    assert not list(landing.root.rglob(".*"))
