"""Closing an interval: what counts is decided once, and from then on there is one demand or a refusal."""

import errno
import io
import os
import shutil
import tempfile
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.landing_processes import barrier, children, keep_closing
from tests.support.landing_processes import killed_everywhere as killed
from tests.support.sample_landings import (
    BY_HAND,
    HONEST,
    METERS,
    ROWS,
    START_S,
    STEP_S,
    Row,
    a_landing,
    by_hand,
    close_and_aggregate,
    demand_of,
    files_in,
    leave,
    lines,
    reading_rows,
    readings,
)

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.aggregation.job import aggregate_landing, close_intervals
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import (
    IntervalManifest,
    close_interval,
    is_closing,
    late_files,
    manifest_of,
)
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pinned_table
from murmurate.service.landing.readings_file import READINGS_SCHEMA, new_run_name, part_name
from murmurate.service.storage.object_store import FolderStore

pytestmark = pytest.mark.usefixtures("quick_disk")


@pytest.fixture
def sample_landing(tmp_path):
    """A landing with readings in it, its meter table, and the files of readings."""
    landing, table = a_landing(tmp_path)
    return landing, table, leave(landing, START_S, ROWS)


def test_closing_again_changes_nothing_whatever_has_happened_meanwhile(sample_landing):
    landing, table, paths = sample_landing
    assert manifest_of(landing, START_S) is None
    first = close_interval(landing, START_S, table.version)
    before = files_in(landing.root / "_closed")
    leave(landing, START_S, [Row(0, 2999)], "late")
    paths[0].unlink()
    assert close_interval(landing, START_S, "another table") == first == manifest_of(landing, START_S)
    assert first.table_version == table.version
    assert files_in(landing.root / "_closed") == before


def test_a_closing_is_read_as_it_was_written_and_refused_where_it_cannot_be(sample_landing):
    landing, table, _ = sample_landing
    first = close_interval(landing, START_S, table.version)
    place = next((landing.root / "_closed").glob("*.json"))
    assert IntervalManifest.read(FolderStore(place.parent), place.name) == first
    for damage in (b"", b"[]", first.to_json()[:-20], first.to_json().replace(b'"sha256"', b'"sha512"')):
        place.write_bytes(damage)
        with pytest.raises(
            ReadingError, match="must be the manifest of an interval; it decides what counts, so restore it"
        ):
            close_and_aggregate(landing, table)
    place.write_bytes(first.to_json().replace(b'"murmurate_manifest": 1', b'"murmurate_manifest": 2'))
    with pytest.raises(ReadingError, match="is 2: must be format 1"):
        close_interval(landing, START_S, table.version)


def test_two_that_close_at_once_get_the_same_closing(tmp_path):
    landing, _ = a_landing(tmp_path)
    together, shared = barrier(2), 0
    with children(*[(keep_closing, landing.root, together)] * 2) as closers:
        for number in range(40):
            start_s = START_S + number * STEP_S
            leave(landing, start_s, [Row(0, 5, start_s)], "a")
            for at in (0, 1) if number % 2 else (1, 0):
                closers[at].send(start_s, f"version of closer {at}")
            leave(landing, start_s, [Row(0, 6, start_s)], "b")
            first, second = (closer.receive() for closer in closers)
            assert first == second == manifest_of(landing, start_s).to_json()
            shared += b"closer 1" in first
    assert 0 < shared < 40, "one of them was always first: this shows nothing"
    assert not [path for path in (landing.root / "_closed").iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_file_that_is_cut_off_anywhere_is_unfinished_and_does_not_count(sample_landing):
    landing, table, paths = sample_landing
    whole = pa.BufferOutputStream()
    pq.write_table(reading_rows([Row(0, 2999)]), whole)
    data = whole.getvalue().to_pybytes()
    cut = [paths[0].with_name(f"cut-{length:05d}.parquet") for length in range(len(data))]
    for length, path in enumerate(cut):
        path.write_bytes(data[:length])
    closing = close_interval(landing, START_S, table.version)
    assert closing.unfinished == tuple(path.relative_to(landing.root).as_posix() for path in cut)
    assert {file.path for file in closing.files} == {path.relative_to(landing.root).as_posix() for path in paths}
    for path in cut:
        path.write_bytes(data)  # its writer has finished, too late
    assert demand_of(landing, table) == BY_HAND


def test_a_file_that_comes_late_never_counts_and_is_named(sample_landing):
    landing, table, _ = sample_landing
    closing = close_interval(landing, START_S, table.version)
    assert late_files(landing, closing) == []
    paths = leave(landing, START_S, [Row(0, 2999), Row(4, 1)], "late")
    assert demand_of(landing, table) == BY_HAND
    assert late_files(landing, closing) == sorted(path.relative_to(landing.root).as_posix() for path in paths)


def refused(landing, table, path, how):
    """Aggregation names the file, and gives no demand."""
    name = path.relative_to(landing.root).as_posix()
    with pytest.raises(ReadingError) as refusal:
        close_and_aggregate(landing, table)
    assert str(refusal.value) == f"{name} is {how}: must stay as it was when its interval was closed"


@pytest.mark.slow
def test_one_byte_that_has_changed_since_is_noticed_wherever_it_is(sample_landing):
    landing, table, paths = sample_landing
    close_interval(landing, START_S, table.version)
    for path in paths[:-1]:  # the last one is of unknown meters
        data = path.read_bytes()
        for place in {*range(0, len(data), 23), len(data) - 1}:
            flipped = bytearray(data)
            flipped[place] ^= 1
            path.write_bytes(flipped)
            refused(landing, table, path, "changed")
        path.write_bytes(data)
    assert demand_of(landing, table) == BY_HAND


def test_a_file_that_has_been_replaced_or_removed_since_is_noticed(sample_landing):
    landing, table, paths = sample_landing
    close_interval(landing, START_S, table.version)
    for path in paths:
        data = path.read_bytes()
        pq.write_table(reading_rows([Row(0, 77), Row(8, 77)]), path)
        refused(landing, table, path, "changed")
        path.unlink()
        refused(landing, table, path, "gone")
        path.write_bytes(data)
    assert demand_of(landing, table) == BY_HAND


def leave_imitation(landing, row_groups, describe):
    """A file with these row groups, under a name that says it is ours. `describe` makes the keys of its footer."""
    sink, groups = io.BytesIO(), []
    with pq.ParquetWriter(sink, READINGS_SCHEMA) as writer:
        for rows in row_groups:
            begin = sink.tell()
            writer.write_table(reading_rows(rows).cast(READINGS_SCHEMA))
            groups.append((begin, sha256(sink.getvalue()[begin:]).hexdigest()))
        writer.add_key_value_metadata({f"murmurate.{key}": value for key, value in describe(groups).items()})
    data = sink.getvalue()
    footer = data[len(data) - 8 - int.from_bytes(data[-8:-4], "little") :]
    name = f"{part_name(new_run_name(), 0)}-{len(data)}-{sha256(footer).hexdigest()}.parquet"
    path = landing.root / landing.readings_folder(START_S) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"interval_start_s": "x", "row_groups": "4 2 0 8 {0}"},
        {"interval_start_s": str(2**70), "row_groups": "4 2 0 8 {0}"},
        {"interval_start_s": str(START_S)},
        {"interval_start_s": str(START_S), "row_groups": b"\xff"},
        {"interval_start_s": str(START_S), "row_groups": "4 2 0 8"},
        {"interval_start_s": str(START_S), "row_groups": "4 2 0 8 x"},
        {"interval_start_s": str(START_S), "row_groups": "3 2 0 8 {0}"},
        {"interval_start_s": str(START_S), "row_groups": f"{2**70} 2 0 8 {{0}}"},
        {"interval_start_s": str(START_S), "row_groups": f"4 2 0 {2**70} {{0}}"},
        {"interval_start_s": str(START_S), "row_groups": f"4 {2**70} 0 8 {{0}}"},
        {"interval_start_s": str(START_S), "row_groups": "4 1 0 8 {0}"},
        {"interval_start_s": str(START_S), "row_groups": "4 2 0 7 {0}"},
        {"interval_start_s": str(START_S), "row_groups": "4 2 8 0 {0}"},
        {"interval_start_s": str(START_S), "row_groups": "4 2 0 8 {0}\n4 2 0 8 {0}"},
    ],
)
def test_a_file_that_imitates_ours_is_refused(tmp_path, forged):
    landing, table = a_landing(tmp_path)

    def describe(groups):
        ((_, digest),) = groups
        return {key: value.format(digest) if isinstance(value, str) else value for key, value in forged.items()}

    path = leave_imitation(landing, [[Row(0, 77), Row(8, 77)]], describe)
    refused(landing, table, path, "changed")


def describe_row_groups(said):
    """The keys of a footer that says of each row group how many readings of which meters it has."""

    def describe(groups):
        lines = (
            f"{begin} {count} {least} {greatest} {digest}"
            for (begin, digest), (count, least, greatest) in zip(groups, said, strict=True)
        )
        return {"interval_start_s": str(START_S), "row_groups": "\n".join(lines)}

    return describe


@pytest.mark.parametrize(
    ("meters", "said"),
    [
        ([[8, 0]], [(2, 0, 8)]),
        ([[0, 8]], [(1, 0, 0)]),
        ([[0], [7]], [(1, 0, 0), (1, 0, 0)]),
        ([[0], [8]], [(1, 8, 8), (1, 0, 0)]),
    ],
)
def test_row_groups_that_are_not_what_the_footer_says_are_refused(tmp_path, meters, said):
    landing, table = a_landing(tmp_path)
    row_groups = [[Row(meter, 77) for meter in some] for some in meters]
    path = leave_imitation(landing, row_groups, describe_row_groups(said))
    refused(landing, table, path, "changed")


@st.composite
def forged_row_groups(draw):
    """Rows of row groups, and how many readings of which meters the footer says are in each, in its order."""
    number = st.integers(-1, 9)
    rows = st.lists(st.builds(Row, number, st.integers(0, 900), st.just(START_S)), min_size=1, max_size=3)
    row_groups = draw(st.lists(rows, min_size=1, max_size=3))
    if draw(st.booleans()):
        ordered = iter(sorted(row for rows in row_groups for row in rows))
        row_groups = [[next(ordered) for _ in rows] for rows in row_groups]
    counts = [len(rows) for rows in row_groups]
    ends = [end(row.meter for row in rows) for rows in row_groups for end in (min, max)]
    any_ends = st.lists(number, min_size=len(ends), max_size=len(ends))
    said_counts = draw(st.just(counts) | st.permutations(counts) | st.lists(st.integers(0, 4), min_size=3, max_size=3))
    said_ends = draw(st.just(ends) | any_ends.map(sorted) | any_ends)
    return row_groups, [*zip(said_counts, said_ends[::2], said_ends[1::2], strict=False)]


@given(forged=forged_row_groups())
@settings(max_examples=10 * settings.default.max_examples)
def test_a_forged_file_has_the_same_demand_however_the_work_is_divided_or_none(forged):
    row_groups, said = forged
    with tempfile.TemporaryDirectory() as folder:
        landing, table = a_landing(Path(folder), shard_meters=2)
        leave_imitation(landing, row_groups, describe_row_groups(said))
        manifests, demands = close_intervals(landing, [START_S], table), []
        for min_tasks in (1, 2, 4):  # tasks of four shards, of two, of one
            with suppress(ReadingError):
                demands.append(lines(aggregate_landing(landing, table, manifests, min_tasks=min_tasks)[START_S]))
        assert all(demand == demands[0] for demand in demands)
        meters = [row.meter for rows in row_groups for row in rows]
        ranges = [(min(rows).meter, max(rows).meter) for rows in row_groups]
        is_ours = said == [(len(rows), *ends) for rows, ends in zip(row_groups, ranges, strict=True)]
        if is_ours and meters == sorted(meters) and all(one[1] < two[0] for one, two in pairwise(ranges)):
            assert demands == [by_hand(METERS, [row for rows in row_groups for row in rows])] * 3


@pytest.mark.slow
def test_files_that_are_there_twice_or_renamed_or_cut_otherwise_give_the_same_demand(tmp_path):
    rng = np.random.default_rng(2)
    for number in range(30):
        landing, table = a_landing(tmp_path / str(number))
        order = [ROWS[place] for place in rng.permutation(len(ROWS))]
        cuts = sorted(rng.integers(0, len(ROWS), size=3).tolist())
        for at, some in enumerate(np.split(np.arange(len(ROWS)), cuts)):
            leave(landing, START_S, [order[place] for place in some], f"{rng.integers(10**9)}-{at}")
        for path in list(landing.root.glob("interval=*/*/*.parquet")):
            if rng.integers(2):
                shutil.copy(path, path.with_name(f"{rng.integers(10**9)}-copy.parquet"))
            if rng.integers(2):
                path.rename(path.with_name(f"{rng.integers(10**9)}-renamed.parquet"))
        assert demand_of(landing, table) == BY_HAND


@pytest.mark.parametrize("shard_meters", [3, 1000])
def test_a_file_need_not_lie_in_the_folder_of_a_shard(tmp_path, shard_meters):
    landing, table = a_landing(tmp_path, shard_meters=shard_meters)
    folder = landing.interval_folder(START_S)
    for name, rows in {"a": ROWS[:5], "from/the head-end/b": ROWS[5:7], "as.parquet/spark writes": ROWS[7:]}.items():
        path = folder / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(reading_rows(rows), path)
    assert demand_of(landing, table) == BY_HAND


def test_a_folder_that_names_no_shard_is_refused_before_anything_is_decided(sample_landing):
    landing, table, paths = sample_landing
    place = landing.interval_folder(START_S) / "shard=first/a.parquet"
    place.parent.mkdir(exist_ok=True)
    paths[0].rename(place)
    for _ in range(2):
        with pytest.raises(ReadingError, match="in no shard: must lie in a folder such as shard=0") as refusal:
            close_intervals(landing, [START_S], table)
        assert place.relative_to(landing.root).as_posix() in str(refusal.value)
        assert manifest_of(landing, START_S) is None
    place.rename(paths[0])
    assert demand_of(landing, table) == BY_HAND


@pytest.mark.parametrize("data", [b"PAR1\0\0\0\0PAR1", b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1"])
def test_a_file_that_only_looks_like_readings_is_refused_before_anything_is_decided(sample_landing, data):
    landing, table, paths = sample_landing
    other = paths[0].with_name("b.parquet")
    other.write_bytes(data)
    with pytest.raises(MurmurateError, match=r"b\.parquet is unreadable"):
        close_intervals(landing, [START_S], table)
    assert manifest_of(landing, START_S) is None
    other.unlink()
    assert demand_of(landing, table) == BY_HAND


def test_an_interval_that_nobody_wrote_to_is_closed_and_all_its_meters_are_silent(tmp_path):
    landing, table = a_landing(tmp_path)
    assert demand_of(landing, table) == by_hand(METERS, [])
    leave(landing, START_S, ROWS)
    assert demand_of(landing, table) == by_hand(METERS, [])


def _close(number, root, version):
    close_interval(Landing.open(root), START_S + number * STEP_S, version)


@pytest.mark.slow
def test_a_closer_that_dies_at_any_touch_of_the_disk_leaves_nothing_in_the_way(tmp_path):
    landing, table = a_landing(tmp_path)
    many = range(1, 60)
    for number in many:
        assert append_readings(landing, START_S + number * STEP_S, readings(HONEST))
    died = killed(_close, landing.root, table.version)
    assert 10 < died < len(many)
    assert not append_readings(landing, START_S + died * STEP_S, readings(HONEST))
    closings = close_intervals(landing, [START_S + number * STEP_S for number in many], table)
    for start_s, demand in aggregate_landing(landing, table, closings).items():
        assert lines(demand) == by_hand(METERS, HONEST)
        assert is_closing(landing, start_s)


def test_a_closing_names_files_from_the_root_so_that_a_landing_can_be_moved(sample_landing):
    landing, table, _ = sample_landing
    assert demand_of(landing, table) == BY_HAND
    moved = Landing.open(landing.root.rename(landing.root.with_name("moved")))
    closing = manifest_of(moved, START_S)
    assert not any(Path(file.path).is_absolute() for file in closing.files)
    assert demand_of(moved, pinned_table(moved, closing.table_version)) == BY_HAND


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
