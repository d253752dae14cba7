"""The aggregation job: whatever the files and the order of the tasks, it gives the exact demand or a refusal."""

import itertools
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_landings import (
    BY_HAND,
    ROWS,
    SHARD_METERS,
    START_S,
    STEP_S,
    Meter,
    Row,
    a_landing,
    by_hand,
    close_and_aggregate,
    demand_of,
    in_households,
    leave,
    left_out,
    lines,
    reading_rows,
    readings,
)

from murmurate.errors import MeterError, ReadingError
from murmurate.service.aggregation import job
from murmurate.service.aggregation.job import (
    INTERVALS_PER_TASK,
    aggregate_landing,
    close_intervals,
    run_in_process,
)
from murmurate.service.landing import readings_file
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import manifest_of
from murmurate.service.landing.readings_file import encode_readings, new_run_name, part_name

pytestmark = pytest.mark.usefixtures("quick_disk")

EXTREME = [-(2**63), -1, 0, 2**63 - 1]
ENERGY = st.one_of(st.integers(-5, 4000), st.sampled_from(EXTREME))
FOLDER = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("landings")


@pytest.fixture
def sample_landing(tmp_path):
    return a_landing(tmp_path)


@st.composite
def meter_tables(draw):
    """Numbers with gaps, so that some shards of three are whole, some not, and some not there."""
    numbers = draw(st.sets(st.integers(0, 14), min_size=1, max_size=9))
    some = st.builds(
        Meter,
        st.just(0),
        st.sampled_from(["hill", "harbour", "mill"]),
        st.integers(500, 3000),
        st.integers(0, 500),
        kind=st.just(""),
        household=st.none(),
        export_bound_wh=draw(st.sampled_from([st.just(0), st.integers(0, 900)])),
    )
    return draw(in_households([draw(some)._replace(number=number) for number in sorted(numbers)]))


@st.composite
def files(draw, numbers, start_s, landed):
    """A file of readings: twice, clipped, negative, of unknown meters, with wrong clocks, with nulls."""
    when = st.sampled_from([start_s] * 5 + [start_s + STEP_S, start_s + 1, 0])
    who = st.one_of(st.sampled_from(numbers), st.integers(0, 20))
    rows = draw(st.lists(st.builds(Row, who, ENERGY, when), min_size=1, max_size=8))
    if numbers[0] < SHARD_METERS:  # a row without a meter lies in the first shard, if there is one
        holes = st.sampled_from([Row(None, 9, start_s), Row(numbers[0], None, start_s), Row(numbers[0], 9, None)])
        rows += draw(st.lists(holes, max_size=1))
    how = {"unit": draw(st.sampled_from(["s", "ms", "us"])), "row_group_size": draw(st.sampled_from([1, 2, None]))}
    if all(abs(row.energy_wh or 0) < 2**15 for row in rows):
        sizes = [pa.int16(), pa.int32(), pa.int64()]
        if all((row.energy_wh or 0) >= 0 for row in rows):
            sizes += [pa.uint16(), pa.uint32()]
        how["whole"] = draw(st.sampled_from(sizes))
    return landed, rows, how | {"in_shards": draw(st.booleans())}


@st.composite
def commits(draw, numbers, start_s):
    """Readings as a writer appends them, in any order, perhaps of many shards."""
    who = st.one_of(st.sampled_from(numbers), st.integers(0, 40))
    return draw(st.lists(st.builds(Row, who, ENERGY, st.just(start_s)), min_size=1, max_size=30))


@pytest.mark.slow
@given(data=st.data())
def test_every_landing_gives_what_a_person_writes_down_in_whatever_order_the_tasks_run(folder, data):
    meters = data.draw(meter_tables())
    numbers = [meter.number for meter in meters]
    starts_s = [START_S + n * STEP_S for n in range(data.draw(st.sampled_from([1, 2, INTERVALS_PER_TASK + 2])))]
    landing, table = a_landing(folder / str(next(FOLDER)), meters)
    written = {}
    for start_s in starts_s:
        some = [data.draw(files(numbers, start_s, f"{n}")) for n in range(data.draw(st.integers(0, 2)))]
        for name, rows, how in some:
            leave(landing, start_s, rows, name, **how)
        written[start_s] = [(rows, how["in_shards"]) for _, rows, how in some]
        for _ in range(data.draw(st.integers(0, 2))):
            rows = data.draw(commits(numbers, start_s))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(readings_file, "MIN_ROW_GROUP_READINGS", data.draw(st.integers(1, 9)))
                patch.setattr(readings_file, "_TAIL_BYTES", data.draw(st.sampled_from([8, 600, 65_536])))
                append_readings(landing, start_s, readings(rows))
            in_shards = len({row.meter // SHARD_METERS for row in rows}) == 1
            written[start_s].append((rows, in_shards))

    def in_any_order(jobs):
        return reversed([found for job in data.draw(st.permutations(jobs)) for found in run_in_process([job])])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings_file, "ROWS_PER_BATCH", data.draw(st.sampled_from([2, 3, 131_072])))
        patch.setattr(readings_file, "_TAIL_BYTES", data.draw(st.sampled_from([8, 600, 65_536])))
        patch.setattr(job, "MAX_SHARDS_PER_TASK", data.draw(st.integers(1, 8)))
        manifests = close_intervals(landing, starts_s, table)
        found = aggregate_landing(landing, table, manifests, in_any_order, data.draw(st.integers(1, 6)))
    for start_s, one in found.items():
        assert lines(one) == by_hand(meters, [row for rows, _ in written[start_s] for row in rows], start_s)
        counts = [
            left_out(meters, rows, start_s, SHARD_METERS, in_shards=in_shards) for rows, in_shards in written[start_s]
        ]
        expected_counts = tuple(map(sum, zip((0, 0, 0), *counts, strict=True)))
        assert (one.readings, one.wrong_interval, one.unknown_meter) == expected_counts


def test_a_task_reads_the_row_groups_of_its_meters_alone(tmp_path, monkeypatch):
    """A commit of readings of any meters is one file; each byte of it is read by one task, but for its footer."""
    meters = [Meter(number, "hill", 3000) for number in range(0, 64 * SHARD_METERS, 2)]
    landing, table = a_landing(tmp_path, meters)
    monkeypatch.setattr(readings_file, "MIN_ROW_GROUP_READINGS", 4)
    monkeypatch.setattr(readings_file, "_TAIL_BYTES", 8)
    rng = np.random.default_rng(1)
    rows = [Row(int(meter), 100) for meter in rng.permutation(64 * SHARD_METERS)]
    assert append_readings(landing, START_S, readings(rows))
    (manifest,) = close_intervals(landing, [START_S], table)
    (file,) = manifest.files
    read, real = [], readings_file._read_range

    def read_range(store, landed, begin, end):
        read.append((begin, end))
        return real(store, landed, begin, end)

    monkeypatch.setattr(readings_file, "_read_range", read_range)
    (one,) = aggregate_landing(landing, table, [manifest], min_tasks=8).values()
    assert lines(one) == by_hand(meters, rows)
    content = sorted(span for span in read if span[1] < file.bytes)
    assert len(content) > 8
    assert content[0][0] == 4
    assert all(before[1] == after[0] for before, after in itertools.pairwise(content)), "each once, and without a gap"


@pytest.mark.parametrize("shift_s", [0, STEP_S])
def test_readings_in_a_file_of_ours_count_in_the_interval_that_they_name(tmp_path, shift_s):
    """Another writer may have put them there."""
    meters = [Meter(number, "hill", 3000, 7) for number in (1, 2)]
    landing, table = a_landing(tmp_path, meters)
    rows = [Row(meter, 100 * meter, START_S + shift_s) for meter in (1, 2)]
    data, ending = encode_readings(START_S + shift_s, readings(rows), landing.shard_meters)
    assert landing.store.create(f"{landing.readings_folder(START_S)}/{part_name(new_run_name(), 0)}-{ending}", data)
    (manifest,) = close_intervals(landing, [START_S], table)
    (one,) = aggregate_landing(landing, table, [manifest]).values()
    assert lines(one) == by_hand(meters, rows)
    assert one.wrong_interval == (2 if shift_s else 0)


def test_times_as_spark_writes_them_are_read(sample_landing):
    landing, table = sample_landing
    for path in leave(landing, START_S, [*ROWS, Row(4, 60, None)]):
        pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    assert demand_of(landing, table) == BY_HAND


def test_columns_may_stand_in_any_order_and_among_others(sample_landing):
    landing, table = sample_landing
    for path in leave(landing, START_S, ROWS):
        rows = pq.read_table(path).select(["energy_wh", "interval_start", "meter"])
        pq.write_table(rows.add_column(1, "quality", pa.array(["good"] * len(rows))), path)
    assert demand_of(landing, table) == BY_HAND


def odd(name, values):
    """The readings with one column of another make."""
    rows = reading_rows([Row(0, 250), Row(1, 300)])
    return rows.set_column(rows.schema.names.index(name), name, values)


NAIVE = pa.array([START_S, START_S]).cast(pa.timestamp("s"))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (odd("energy_wh", pa.array([250.0, 300.0])), "is double: must be whole numbers that fit in 64 bits"),
        (odd("energy_wh", pa.array([250, 300], pa.uint64())), "is uint64: must be whole numbers that fit"),
        (odd("meter", pa.array([0, 1], pa.uint64())), "is uint64: must be whole numbers that fit in 64 bits"),
        (odd("meter", pa.array(["0", "1"])), "is string: must be whole numbers"),
        (odd("meter", pa.array([True, False])), "is bool: must be whole numbers"),
        (odd("interval_start", NAIVE), "is timestamp[ms]: must be a timestamp in UTC"),
        (odd("interval_start", NAIVE.cast(pa.timestamp("us", "Europe/Zurich"))), "must be a timestamp in UTC"),
        (odd("interval_start", pa.array([START_S, START_S])), "is int64: must be a timestamp in UTC"),
        (odd("interval_start", NAIVE.cast(pa.timestamp("ns", "UTC"))), "must be a timestamp in UTC, in s, ms or us"),
        (reading_rows([Row(0, 1)]).drop_columns(["energy_wh"]), "is without energy_wh: must have meter, interval_"),
        (reading_rows([Row(0, 1)]).append_column("meter", pa.array([1])), "is with meter twice: must have meter"),
    ],
)
def test_a_file_of_another_make_is_refused_by_its_name_before_anything_is_decided(sample_landing, rows, says):
    landing, table = sample_landing
    leave(landing, START_S, ROWS)
    path = landing.shard_folder(START_S, 0) / "odd.parquet"
    pq.write_table(rows, path)
    for _ in range(2):
        with pytest.raises(ReadingError) as refusal:
            close_and_aggregate(landing, table)
        assert path.relative_to(landing.root).as_posix() in str(refusal.value)
        assert says in str(refusal.value)
        assert manifest_of(landing, START_S) is None
    path.unlink()
    assert demand_of(landing, table) == BY_HAND


def test_a_meter_in_the_folder_of_another_shard_is_unknown_there(sample_landing):
    """It could otherwise count twice, once in each."""
    landing, table = sample_landing
    leave(landing, START_S, ROWS)
    folder = landing.shard_folder(START_S, 2)
    pq.write_table(reading_rows([Row(0, 2999), Row(4, 1)]), folder / "wrong_shard.parquet")
    (one,) = close_and_aggregate(landing, table).values()
    assert lines(one) == BY_HAND
    assert one.unknown_meter == 2 + 2


def test_a_task_that_is_lost_or_done_twice_is_noticed(sample_landing):
    landing, table = sample_landing
    leave(landing, START_S, ROWS)
    closings = close_intervals(landing, [START_S, START_S + STEP_S], table)

    def dropping(place):
        return lambda jobs: [found for at, found in enumerate(run_in_process(jobs)) if at != place]

    def doubling(place):
        return lambda jobs: [f for at, found in enumerate(run_in_process(jobs)) for f in [found] * (1 + (at == place))]

    for place in range(len(table.shards) * len(closings)):
        with pytest.raises(MeterError, match="shards is 2 of 3: must all be tallied: demand would be missing"):
            aggregate_landing(landing, table, closings, dropping(place))
        with pytest.raises(MeterError, match="must each be tallied once: one would have counted twice"):
            aggregate_landing(landing, table, closings, doubling(place))


def test_a_demand_says_nothing_of_a_reading_when_it_is_printed(sample_landing):
    landing, table = sample_landing
    leave(landing, START_S, [Row(0, 2718), Row(99, 2718)])
    (one,) = close_and_aggregate(landing, table).values()
    assert "2718" not in repr(one)
    assert "confidential" in repr(one)
