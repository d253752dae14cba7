"""Purging: the readings are gone, and no other demand is computed from what lands there later."""

import os
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from tests.support.landing_processes import killed_everywhere as killed
from tests.support.sample_landings import (
    HONEST,
    METERS,
    ROWS,
    START_S,
    STEP_S,
    a_landing,
    by_hand,
    close_and_aggregate,
    demand_of,
    files_in,
    folder_of,
    leave,
    meter_csv,
    reading_rows,
    readings,
)

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.maintenance import purge_intervals
from murmurate.service.landing.meter_table import pin_table

pytestmark = pytest.mark.usefixtures("quick_disk")

STARTS_S = [START_S + number * STEP_S for number in range(6)]


def make_old(table):
    for path in folder_of(table).iterdir():
        os.utime(path, (0, 0))


@pytest.fixture
def sample_landing(tmp_path):
    """Six intervals; the first three are closed."""
    landing, table = a_landing(tmp_path)
    for start_s in STARTS_S:
        assert append_readings(landing, start_s, readings(HONEST))
    for start_s in STARTS_S[:3]:
        demand_of(landing, table, start_s)
    return landing, table


def refuses(landing, table, start_s):
    with pytest.raises(ReadingError, match="is purged: its readings were deleted; no demand can be computed from it"):
        close_and_aggregate(landing, table, [start_s])


@pytest.mark.parametrize("which", [1, 4])
def test_what_is_purged_is_gone_and_stays_purged_whether_it_was_closed_or_not(sample_landing, which):
    landing, table = sample_landing
    start_s = STARTS_S[which]
    assert purge_intervals(landing, start_s + STEP_S) == which + 1
    folder = landing.interval_folder(start_s)
    for again in range(3):
        assert not folder.exists()
        refuses(landing, table, start_s)
        assert not append_readings(landing, start_s, readings(HONEST))
        assert not folder.exists()
        leave(landing, start_s, ROWS, f"late-{again}")  # by a program that does not check
        refuses(landing, table, start_s)
        assert purge_intervals(landing, start_s + STEP_S) == 1


def test_intervals_from_the_limit_on_stay_as_they_are(sample_landing):
    landing, table = sample_landing
    kept = {start_s: files_in(landing.interval_folder(start_s)) for start_s in STARTS_S[2:]}
    decided = manifest_of(landing, STARTS_S[2])
    assert purge_intervals(landing, STARTS_S[2]) == 2
    assert {start_s: files_in(landing.interval_folder(start_s)) for start_s in landing.list_intervals()[0]} == kept
    assert manifest_of(landing, STARTS_S[2]) == decided
    for start_s in STARTS_S[2:]:
        assert demand_of(landing, table, start_s) == by_hand(METERS, HONEST)


def test_nothing_of_a_reading_stays(sample_landing):
    """Neither a file nor the digest of one, from which a guessed reading could be confirmed."""
    landing, _ = sample_landing
    digests = [file.sha256 for start_s in STARTS_S[:3] for file in manifest_of(landing, start_s).files]
    assert len(digests) == 3
    purge_intervals(landing, STARTS_S[-1] + STEP_S)
    left = files_in(landing.root)
    assert {name for name in left if not name.startswith(("_closed/", "_meters/"))} == {"_layout.json"}
    everything = b"".join(left.values()).decode(errors="replace")
    assert not [digest for digest in digests if digest in everything]
    assert "shard=" not in "".join(data.decode() for name, data in left.items() if name.startswith("_closed/"))


def test_old_meter_tables_go_when_no_interval_needs_them(tmp_path, sample_landing):
    landing, table = sample_landing
    other = [meter._replace(bound_wh=meter.bound_wh + 1) for meter in METERS]
    newer = pin_table(landing, meter_csv(tmp_path / "newer.csv", other))
    unused = pin_table(landing, meter_csv(tmp_path / "unused.csv", other[:3]))
    fresh = pin_table(landing, meter_csv(tmp_path / "fresh.csv", other[:2]))  # another process will close under it
    demand_of(landing, newer, STARTS_S[4])
    for each in (table, newer, unused):
        make_old(each)

    def tables():
        return {folder.name for folder in (landing.root / "_meters").iterdir()}

    purge_intervals(landing, STARTS_S[2])
    assert tables() == {table.version, newer.version, fresh.version}
    assert demand_of(landing, table, STARTS_S[2]) == by_hand(METERS, HONEST)
    purge_intervals(landing, STARTS_S[4])
    assert tables() == {newer.version, fresh.version}
    assert demand_of(landing, newer, STARTS_S[4]) == by_hand(other, HONEST)
    purge_intervals(landing, STARTS_S[4] + 1)
    assert tables() == {fresh.version}
    purge_intervals(landing, int(datetime.now(UTC).timestamp()) + 2)
    assert tables() == set()


def test_purging_an_empty_landing_purges_nothing(tmp_path):
    landing = Landing.create(tmp_path / "landing")
    assert purge_intervals(landing, START_S) == 0
    assert set(files_in(landing.root)) == {"_layout.json"}


def _purge(number, folder):
    purge_intervals(Landing.open(folder / str(number)), START_S + STEP_S)


@pytest.mark.slow
def test_a_purge_that_dies_at_any_touch_of_the_disk_is_finished_by_the_next(tmp_path):
    many = range(1, 100)
    for number in many:
        landing = Landing.create(tmp_path / str(number), shard_meters=3)
        for start_s in STARTS_S[:2]:
            leave(landing, start_s, [row._replace(start_s=start_s) for row in HONEST])
    died = killed(_purge, tmp_path)
    assert 20 < died < len(many)
    source = meter_csv(tmp_path / "meters.csv")
    for number in range(1, died + 2):
        landing = Landing.open(tmp_path / str(number))
        purge_intervals(landing, STARTS_S[1])
        assert landing.list_intervals()[0] == [STARTS_S[1]]
        assert not append_readings(landing, START_S, readings(HONEST))
        refuses(landing, pin_table(landing, source), START_S)
        assert demand_of(landing, pin_table(landing, source), STARTS_S[1]) == by_hand(METERS, HONEST)


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


def test_an_interval_that_nobody_wrote_to_does_not_keep_its_meter_table_for_ever(tmp_path):
    landing, table = a_landing(tmp_path)
    demand_of(landing, table)
    make_old(table)
    purge_intervals(landing, START_S + 1)
    assert not folder_of(table).exists()


@pytest.mark.parametrize("name", ["20250101T1216Z", "2025011T1200Z", "__HIVE_DEFAULT_PARTITION__"])
def test_a_folder_with_an_odd_name_keeps_no_other_from_being_purged_and_goes_when_it_is_old(tmp_path, name):
    landing, _ = a_landing(tmp_path)
    leave(landing, START_S, ROWS)
    odd = landing.root / f"interval={name}"
    (odd / "shard=0").mkdir(parents=True)
    pq.write_table(reading_rows(ROWS), odd / "shard=0" / "a.parquet")
    with pytest.raises(MurmurateError, match=name):
        purge_intervals(landing, START_S + 1)
    assert not landing.interval_folder(START_S).exists()
    for path in (odd / "shard=0" / "a.parquet", odd / "shard=0", odd):
        os.utime(path, (START_S, START_S))
    with pytest.raises(MurmurateError, match=name):
        purge_intervals(landing, START_S - 10)
    purge_intervals(landing, START_S + 1)
    assert not odd.exists()
