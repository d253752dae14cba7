"""Mishaps on disk: each is refused in words or healed, and none changes a demand."""

import errno
import os
import stat

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.sample_landings import (
    BY_HAND,
    HONEST,
    METERS,
    ROWS,
    START_S,
    Row,
    a_landing,
    close_and_aggregate,
    demand_of,
    leave,
    meter_rows,
    reading_rows,
    readings,
)

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import close_interval, manifest_of
from murmurate.service.landing.maintenance import purge_intervals
from murmurate.service.landing.meter_table import pin_table

pytestmark = pytest.mark.usefixtures("quick_disk")


def test_a_folder_that_cannot_be_read_is_refused_before_anything_is_decided(tmp_path, monkeypatch):
    landing, table = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    locked, real = landing.shard_folder(START_S, 0), os.scandir

    def scandir(path="."):
        if os.fspath(path) == str(locked):
            raise PermissionError(errno.EACCES, "Permission denied", str(locked))
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scandir)
        with pytest.raises((OSError, MurmurateError)):
            close_interval(landing, START_S, table.version)
    assert manifest_of(landing, START_S) is None


def test_a_file_whose_pages_are_damaged_is_refused_by_its_name(tmp_path):
    landing, table = a_landing(tmp_path)
    (path,) = leave(landing, START_S, [Row(0, value) for value in range(500)])
    data = bytearray(path.read_bytes())
    data[60:200] = bytes(byte ^ 0xFF for byte in data[60:200])
    path.write_bytes(data)
    with pytest.raises(ReadingError, match=r"a\.parquet is unreadable"):
        close_and_aggregate(landing, table)


@pytest.mark.parametrize("name", ["b.parq", "more/b.parquet"])
def test_the_version_of_a_folder_covers_every_file_that_is_read_from_it(tmp_path, name):
    landing, _ = a_landing(tmp_path)
    folder = tmp_path / "table"
    (folder / "more").mkdir(parents=True)
    pq.write_table(meter_rows(METERS[:3]), folder / "a.parquet")
    pq.write_table(meter_rows(METERS[3:]), folder / name)
    first = pin_table(landing, folder)
    pq.write_table(meter_rows([METERS[3]._replace(bound_wh=1, imputed_wh=0), *METERS[4:]]), folder / name)
    second = pin_table(landing, folder)
    assert first.meters == 3 or first.version != second.version  # either not read, or part of the version


def test_a_table_that_was_half_deleted_can_be_pinned_again(tmp_path):
    landing, table = a_landing(tmp_path)
    (table.folder / "shard=1.parquet").unlink()  # a purge that was killed in the middle of rmtree
    leave(landing, START_S, ROWS)
    assert demand_of(landing, pin_table(landing, tmp_path / "meters.csv")) == BY_HAND


def test_a_column_of_readings_that_is_there_twice_is_refused_in_words(tmp_path):
    landing, table = a_landing(tmp_path)
    folder = landing.shard_folder(START_S, 0)
    folder.mkdir(parents=True)
    pq.write_table(reading_rows([Row(0, 250)]).append_column("meter", pa.array([1])), folder / "a.parquet")
    with pytest.raises(ReadingError, match=r"a\.parquet"):
        close_and_aggregate(landing, table)


@pytest.mark.parametrize("name", ["20250101T1216Z", "2025011T1200Z", "__HIVE_DEFAULT_PARTITION__"])
def test_a_folder_with_an_odd_name_does_not_keep_the_others_from_being_purged(tmp_path, name):
    landing, _ = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    (landing.root / f"interval={name}").mkdir()
    with pytest.raises(MurmurateError, match=name):
        purge_intervals(landing, START_S + 1)
    assert not landing.interval_folder(START_S).exists()


@pytest.mark.parametrize("name", ["20250101T1216Z", "__HIVE_DEFAULT_PARTITION__"])
def test_readings_in_a_folder_with_an_odd_name_are_purged_when_they_are_old(tmp_path, name):
    landing, _ = a_landing(tmp_path)
    odd = landing.root / f"interval={name}"
    (odd / "shard=0").mkdir(parents=True)
    pq.write_table(reading_rows(ROWS), odd / "shard=0" / "a.parquet")
    for path in (odd / "shard=0" / "a.parquet", odd / "shard=0", odd):
        os.utime(path, (START_S, START_S))
    with pytest.raises(MurmurateError, match=name):
        purge_intervals(landing, START_S - 10)
    purge_intervals(landing, START_S + 1)
    assert not odd.exists()


@pytest.mark.slow
def test_whatever_lies_among_the_manifests_and_tables_old_readings_go(tmp_path):
    """Each file emptied, made a stranger, or turned into a folder: the interval is purged, and the next one can be."""
    landing, table = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    demand_of(landing, table)
    files = sorted(
        path for name in ("_closed", "_meters") for path in (landing.root / name).rglob("*") if path.is_file()
    )
    assert len(files) >= 4
    for path in files:
        for damage in (b"", b"[]", b'{"murmurate_manifest": 1}', None):
            leave(landing, START_S, ROWS)
            path.unlink(missing_ok=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if damage is None else path.write_bytes(damage)
            purge_intervals(landing, START_S + 1)
            assert not landing.interval_folder(START_S).exists()
            if path.is_dir():
                path.rmdir()


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


def test_an_interval_that_nobody_wrote_to_does_not_keep_its_meter_table_for_ever(tmp_path):
    landing, table = a_landing(tmp_path)
    demand_of(landing, table)
    os.utime(table.folder, (0, 0))
    purge_intervals(landing, START_S + 1)
    assert not table.folder.exists()


def test_a_pinned_table_that_was_changed_is_refused_and_gives_no_other_demand(tmp_path):
    landing, table = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    assert demand_of(landing, table) == BY_HAND
    path = table.folder / "shard=0.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(2, "bound_wh", pc.divide(rows["bound_wh"], 2)), path)
    with pytest.raises(MurmurateError):
        demand_of(landing, table)
