"""The meter table: read from whatever an operator has, refused in words, and pinned so that it cannot change."""

import json
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.landing_processes import killed_everywhere as killed
from tests.support.sample_landings import (
    BY_HAND,
    METERS,
    ROWS,
    SHARD_METERS,
    START_S,
    STEP_S,
    Meter,
    close_and_aggregate,
    demand_of,
    file_of,
    folder_of,
    leave,
    meter_csv,
    meter_rows,
)

from murmurate.errors import MeterError
from murmurate.readings.meter_file import file_digest
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing import meter_table
from murmurate.service.landing.interval_manifest import manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import load_shards, pin_table, pinned_table, read_table
from murmurate.types import UNPROTECTED_KIND

pytestmark = pytest.mark.usefixtures("quick_disk")

HEAD = "meter,zone,bound_wh"


@pytest.fixture
def landing(tmp_path):
    made = Landing.create(tmp_path / "landing", shard_meters=SHARD_METERS)
    leave(made, START_S, ROWS)
    return made


def meters_of(table):
    """The meters of a pinned table, shard by shard."""
    found = []
    for number in table.shards:
        meters = load_shards(table.store, table.version, (number,)).meters
        assert set((meters.number // table.shard_meters).tolist()) == {number}
        imputed_wh = 0 * meters.number if meters.imputed_wh is None else meters.imputed_wh
        columns = (meters.number, meters.zone, meters.bound_wh, imputed_wh, meters.export_bound_wh)
        for n, zone, bound_wh, constant_wh, export_wh in zip(*(column.tolist() for column in columns), strict=True):
            found.append(Meter(n, table.zones[zone], bound_wh, constant_wh, export_bound_wh=export_wh))
    kept = pq.read_table(table.store.root / table.names[-1]).to_pylist()
    assert [row["meter"] for row in kept] == [meter.number for meter in found]
    return [m._replace(protected=row["protected"], kind=row["kind"]) for m, row in zip(found, kept, strict=True)]


def column(name, kind):
    """The table of the meters with a column of another type."""
    rows = meter_rows(METERS)
    return rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(kind))


def small_numbers():
    kinds = {"meter": pa.int16(), "zone": pa.string(), "bound_wh": pa.int32(), "imputed_wh": pa.uint32()}
    return meter_rows(METERS).cast(pa.schema(kinds | {"protected": pa.bool_(), "export_bound_wh": pa.uint8()}))


PACKED = {
    "as it is": lambda: meter_rows(METERS),
    "zones in a dictionary": lambda: column("zone", pa.dictionary(pa.int8(), pa.string())),
    "zones in a large dictionary": lambda: column("zone", pa.dictionary(pa.int32(), pa.large_string())),
    "large zones": lambda: column("zone", pa.large_string()),
    "small numbers": small_numbers,
    "columns in another order": lambda: meter_rows(METERS).select(
        ["protected", "bound_wh", "export_bound_wh", "zone", "imputed_wh", "meter"]
    ),
    "more columns": lambda: meter_rows(METERS).append_column("street", pa.array(["?"] * len(METERS))),
    "rows in another order": lambda: meter_rows(METERS[::-1]),
}


@pytest.mark.parametrize("how", PACKED)
@pytest.mark.parametrize("files", [0, 1, 3])
def test_a_parquet_table_is_read_however_it_is_packed_and_cut(tmp_path, landing, how, files):
    source, rows = tmp_path / "table", PACKED[how]()
    if files:
        source.mkdir()
        for at in range(files):
            pq.write_table(rows.slice(at * len(rows) // files, len(rows) // files), source / f"{9 - at}.parquet")
    else:
        pq.write_table(rows, source)
    table = pin_table(landing, source)
    assert meters_of(table) == list(METERS)
    assert (table.zones, table.shards, table.meters) == (("harbour", "hill", "mill"), (0, 1, 2), len(METERS))
    assert demand_of(landing, table) == BY_HAND


def test_a_csv_table_is_read_and_what_it_does_not_say_is_nothing_imputed_and_all_protected(tmp_path, landing):
    assert meters_of(pin_table(landing, meter_csv(tmp_path / "full.csv"))) == list(METERS)
    bare = tmp_path / "bare.csv"
    bare.write_text(f"{HEAD}\n" + "".join(f"{m.number},{m.zone},{m.bound_wh}\n" for m in METERS), encoding="utf-8")
    plain = [meter._replace(imputed_wh=0, protected=True, export_bound_wh=0) for meter in METERS]
    other = Landing.create(tmp_path / "other", shard_meters=SHARD_METERS)
    table = pin_table(other, bare)
    assert meters_of(table) == plain
    assert (
        load_shards(table.store, table.version, (0,)).meters.imputed_wh is None
    )  # silent meters count as a share, which is not 0
    bare.write_text(f"{HEAD}\n0,8001,5\n1,8002,5\n")  # zones may be numbers
    assert pin_table(Landing.create(tmp_path / "third"), bare).zones == ("8001", "8002")


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60)
def test_a_pinned_table_has_every_meter_once_in_the_shard_of_its_number(tmp_path_factory, data):
    numbers = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=20, unique=True))
    some = st.builds(
        Meter,
        st.just(0),
        st.sampled_from(["Zürich, 1", "hill", "a\nb", "🅰"]),
        st.integers(500, 2**40),
        st.integers(0, 500),
        kind=st.text().filter(lambda name: name != UNPROTECTED_KIND),
        household=st.none(),
        export_bound_wh=st.sampled_from([0, 0, 1, 2**40]),
    )
    meters = [data.draw(some)._replace(number=number, protected=number % 3 > 0) for number in numbers]
    folder = tmp_path_factory.mktemp("any")
    landing = Landing.create(folder / "landing", shard_meters=data.draw(st.integers(1, 30)))
    pq.write_table(meter_rows(meters), folder / "meters.parquet")
    table = pin_table(landing, folder / "meters.parquet")
    assert meters_of(table) == sorted(meters)
    assert table.meters == len(meters)
    assert table.shards == tuple(sorted({number // landing.shard_meters for number in numbers}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("meter,zone\n0,hill", "is without bound_wh: must have the columns meter, zone, bound_wh"),
        ("meter,bound_wh\n0,5", "is without zone: must have the columns"),
        ("zone,bound_wh\nhill,5", "is without meter: must have the columns"),
        (f"{HEAD}\n0,hill,5.0", "bound_wh is double: must be whole numbers throughout"),
        (f"{HEAD}\n0,hill,5\n1,hill,", "bound_wh is empty here and there: must be whole numbers throughout"),
        (f"{HEAD}\n,hill,5\n1,hill,5", "meter is empty here and there: must be whole numbers throughout"),
        (f"{HEAD}\n0,hill,many", "bound_wh is string: must be whole numbers throughout"),
        (f"{HEAD}\n0,hill,5\n3,hill,5\n0,hill,6", "must be in ascending order, each once"),
        (f"{HEAD}\n-1,hill,5", "meter[0] is -1: must be a number from 0 up"),
        (f"{HEAD}\n0,hill,5\n1,hill,0", "bound_wh[1] is 0: must be at least 1 Wh"),
        (f"{HEAD},imputed_wh\n0,hill,5,6", "imputed_wh[0] is 6: must lie between 0 and bound_wh"),
        (f"{HEAD},imputed_wh\n0,hill,5,-1", "imputed_wh[0] is -1: must lie between 0 and bound_wh"),
        (f"{HEAD},imputed_wh\n0,hill,5,0.5", "imputed_wh is double: must be whole numbers throughout"),
        (f"{HEAD},export_bound_wh\n0,hill,5,-1", "export_bound_wh[0] is -1: must be 0 Wh or more"),
        (f"{HEAD},export_bound_wh\n0,hill,5,", "export_bound_wh is empty here and there: must be whole numbers"),
        (f"{HEAD},protected\n0,hill,5,no", "protected is string: must be true or false throughout"),
        (f"{HEAD},protected\n0,hill,5,\n1,hill,5,true", "protected is empty here and there: must be true or false"),
        (f"{HEAD}\n0,hill", "is unreadable: must be Parquet, or CSV with as many cells in each row as in its header"),
        ("", "Arrow says: Empty CSV file"),
        (HEAD, "is empty: must have a row for each meter"),
        (f"{HEAD}\n0,,5\n1,hill,5", "zone is empty here and there: must be text throughout"),
        ("meter,meter,zone,bound_wh\n0,0,hill,5", "is with meter twice: must have the columns"),
        (f"{HEAD}\n0,hill,{2**62}", "times the number of meters must stay below 2**62 Wh"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_words_and_not_kept(tmp_path, landing, text, says):
    source = tmp_path / "meters.csv"
    source.write_text(text + "\n", encoding="utf-8") if text else source.touch()
    with pytest.raises(MeterError) as refusal:
        pin_table(landing, source)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not list(landing.root.glob("_meters/*"))


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({"zone": pa.array(["hill", None])}, "zone is empty here and there: must be text throughout"),
        ({"zone": pa.array(["hill", None]).dictionary_encode()}, "zone is empty here and there: must be text"),
        ({"zone": pa.array([4, 5])}, "zone is int64: must be text throughout"),
        ({"zone": pa.array([b"hill", b"hill"])}, "zone is binary: must be text throughout"),
        ({"bound_wh": pa.array([5.0, 6.0])}, "bound_wh is double: must be whole numbers throughout"),
        ({"bound_wh": pa.array([True, True])}, "bound_wh is bool: must be whole numbers throughout"),
        ({"meter": pa.array([0, 1], pa.uint64())}, "meter is uint64: must be whole numbers that fit in 64 bits"),
        ({"protected": pa.array([0, 1])}, "protected is int64: must be true or false throughout"),
    ],
)
def test_a_parquet_table_of_other_types_is_refused(tmp_path, landing, rows, says):
    plain = {"meter": pa.array([0, 1]), "zone": pa.array(["hill", "hill"]), "bound_wh": pa.array([5, 5])}
    pq.write_table(pa.table(plain | rows), tmp_path / "meters.parquet")
    with pytest.raises(MeterError) as refusal:
        pin_table(landing, tmp_path / "meters.parquet")
    assert says in str(refusal.value)


def test_what_is_no_table_at_all_is_refused(tmp_path, landing):
    junk, empty = tmp_path / "meters.parquet", tmp_path / "folder"
    empty.mkdir()
    for data in (b"PAR1 is not enough", b"PAR1\0\0\0\0PAR1"):
        junk.write_bytes(data)
        with pytest.raises(MeterError, match=r"meters\.parquet is unreadable"):
            pin_table(landing, junk)
    with pytest.raises(MeterError, match=r"must be a CSV or Parquet file, or a folder with \*\.parquet"):
        pin_table(landing, empty)
    with pytest.raises(FileNotFoundError):
        pin_table(landing, tmp_path / "nowhere.csv")


def test_a_parquet_table_with_texts_that_are_not_utf_8_is_refused(tmp_path, landing):
    damaged = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xe1("], pa.binary()).buffers())
    rows = {"meter": [0], "zone": ["hill"], "bound_wh": [5], "kind": damaged}
    pq.write_table(pa.table(rows), tmp_path / "meters.parquet")
    with pytest.raises(MeterError, match="unreadable"):
        pin_table(landing, tmp_path / "meters.parquet")


def test_numbers_with_wide_gaps_are_refused(tmp_path):
    """A file a shard: a table of serial numbers would make as many files as meters."""
    landing = Landing.create(tmp_path / "landing", shard_meters=1000)
    few, many = ([Meter(1000 * n, "hill", 5) for n in range(count)] for count in (64, 65))
    assert len(pin_table(landing, meter_csv(tmp_path / "few.csv", few)).shards) == 64
    with pytest.raises(MeterError, match="must be numbered from 0 up with few gaps: 65 meters lie in 65 shards"):
        pin_table(landing, meter_csv(tmp_path / "many.csv", many))


def test_an_interval_keeps_the_table_it_was_closed_under(tmp_path, landing):
    old = pin_table(landing, meter_csv(tmp_path / "meters.csv"))
    assert demand_of(landing, old) == BY_HAND
    halved = [METERS[0]._replace(bound_wh=METERS[0].bound_wh // 2), *METERS[1:]]
    new = pin_table(landing, meter_csv(tmp_path / "meters.csv", halved))
    assert new.version != old.version
    with pytest.raises(MeterError) as refusal:
        close_and_aggregate(landing, new)
    words = f"is {new.version[:12]}: must be {old.version[:12]}, under which interval 20250301T1200Z was closed"
    assert words in str(refusal.value)
    assert demand_of(landing, pinned_table(landing, manifest_of(landing, START_S).table_version)) == BY_HAND
    assert close_and_aggregate(landing, new, [START_S + STEP_S])[START_S + STEP_S].bounds == tuple(
        line.bounds for line in BY_HAND.values()
    )


def test_a_version_is_the_contents_of_the_operators_file_and_nothing_else(tmp_path, landing):
    first = pin_table(landing, meter_csv(tmp_path / "a.csv"))
    os.utime(tmp_path / "a.csv", (0, 0))
    assert pin_table(landing, (tmp_path / "a.csv").rename(tmp_path / "b.csv")) == first
    folder = tmp_path / "folder"
    folder.mkdir()
    versions = {first.version}
    for rows in ([METERS[:3], METERS[3:]], [METERS[:4], METERS[4:]], [METERS[3:], METERS[:3]]):
        for at, some in enumerate(rows):
            pq.write_table(meter_rows(some), folder / f"{at}.parquet")
        versions.add(pin_table(landing, folder).version)
    assert len(versions) == 4


def test_a_table_that_is_there_is_not_written_again(tmp_path, landing):
    table = pin_table(landing, meter_csv(tmp_path / "meters.csv"))
    before = {path: path.stat().st_mtime_ns for path in folder_of(table).iterdir()}
    assert {path.name.partition("-")[0] for path in before} == {
        "table.json",
        "households",
        *(f"shard={number}" for number in table.shards),
    }
    for path in before:
        size, _, digest = path.stem.partition("-")[2].partition("-")
        assert path.name == "table.json" or (int(size), digest) == (path.stat().st_size, file_digest(path))
    assert set(json.loads((folder_of(table) / "table.json").read_bytes())["zones"]) == {m.zone for m in METERS}
    assert pin_table(landing, tmp_path / "meters.csv") == table
    assert {path: path.stat().st_mtime_ns for path in folder_of(table).iterdir()} == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder_of(table).iterdir()} == {0o600}


def test_a_pinned_table_has_the_number_of_households_of_each_zone(tmp_path, landing):
    source = tmp_path / "meters.csv"
    rows = ["0,hill,5,h0", "1,hill,5,h0", "2,hill,5,h1", "3,dale,5,h2"]
    source.write_text("\n".join([f"{HEAD},household", *rows]), encoding="utf-8")
    table = pin_table(landing, source)
    assert dict(zip(table.zones, table.households, strict=True)) == {"dale": 1, "hill": 2}
    contents = json.loads((folder_of(table) / "table.json").read_bytes())
    del contents["households"]  # as an earlier version has pinned it
    (folder_of(table) / "table.json").write_text(json.dumps(contents), encoding="utf-8")
    meter_table.load_table.cache_clear()
    assert pin_table(landing, source) == table
    source.write_text("\n".join([HEAD, *(row[: row.rindex(",")] for row in rows)]), encoding="utf-8")
    assert pin_table(landing, source).households == (1, 3)  # each meter is one


def test_several_that_pin_a_table_at_once_pin_one(tmp_path, landing):
    source, start = meter_csv(tmp_path / "meters.csv"), threading.Barrier(4)

    def together(_):
        start.wait()
        return pin_table(landing, source)

    with ThreadPoolExecutor(4) as four:
        (table,) = set(four.map(together, range(4)))
    assert meters_of(table) == list(METERS)
    assert list((landing.root / "_meters").iterdir()) == [folder_of(table)]


def test_a_version_that_is_not_in_the_landing_is_asked_for(landing):
    with pytest.raises(MeterError, match="is not in this landing; give the meter table with --meters"):
        pinned_table(landing, "ab" * 32)


def _pin(number, folder, source):
    pin_table(Landing.open(folder / str(number)), source)


@pytest.mark.slow
def test_one_that_dies_at_any_touch_of_the_disk_while_it_pins_a_table_leaves_nothing_in_the_way(tmp_path):
    many = range(1, 120)
    for number in many:
        Landing.create(tmp_path / str(number), shard_meters=SHARD_METERS)
    source = meter_csv(tmp_path / "meters.csv")
    died = killed(_pin, tmp_path, source)
    assert 20 < died < len(many)
    for number in range(1, died + 2):
        landing = Landing.open(tmp_path / str(number))
        table = pin_table(landing, source)
        assert meters_of(table) == list(METERS)
        assert list(meter_table.find_table_damage(landing.store, table.version)) == []


TEXTS = ("zone", "id", "key", "kind", "household")


@pytest.mark.parametrize("how", ["csv", "string", "dictionary", "string_view"])
def test_no_text_has_32_bit_offsets_when_chunks_are_combined(tmp_path, monkeypatch, how):
    """2 GiB is where 32 bits end: a column of more text would be an error of Arrow, not of ours."""
    rows = meter_rows(METERS)
    for name in TEXTS:
        plain = pa.array([f"{name} {number}" for number in range(len(rows))])
        kind = {"dictionary": pa.dictionary(pa.int32(), pa.string()), "string_view": pa.string_view()}.get(how)
        column = plain.cast(kind) if kind else plain
        rows = rows.drop_columns(name) if name in rows.column_names else rows
        rows = rows.append_column(name, column)
    source = tmp_path / ("meters.csv" if how == "csv" else "meters.parquet")
    if how == "csv":
        pa_csv.write_csv(rows, source)
    else:
        pq.write_table(rows, source)
    seen = []

    def combine(parts, real=meter_table.pa.concat_tables):
        whole = real(parts)
        seen.append(whole.schema)
        return whole

    monkeypatch.setattr(meter_table.pa, "concat_tables", combine)
    table = read_table(source)
    for schema in (*seen, table.schema):
        assert {schema.field(name).type for name in TEXTS} == {pa.large_string()}


@pytest.mark.parametrize("broken", ["dictionary_encode", "fill_null"])
@pytest.mark.parametrize(
    "error", [pa.ArrowInvalid("offset overflow while concatenating"), pa.ArrowMemoryError("malloc")]
)
def test_what_arrow_cannot_do_with_a_table_is_an_error_of_ours_that_says_what_to_do(
    tmp_path, landing, monkeypatch, broken, error
):
    def fail(*_, **__):
        raise error

    source = meter_csv(tmp_path / "meters.csv", [meter._replace(kind="flat") for meter in METERS])
    monkeypatch.setattr(meter_table.pc, broken, fail)
    with pytest.raises(MeterError, match=r"meters\.csv is more than Arrow can handle: must fit in memory; shorten"):
        pin_table(landing, source)
    if broken == "dictionary_encode":
        with pytest.raises(MeterError, match="is more than Arrow can handle"):
            MeterRegistry.from_meter_table(source)


def test_a_folder_with_a_table_for_each_region_is_one_table(tmp_path, landing):
    """CSV and Parquet, columns in another order, texts packed otherwise."""
    folder = tmp_path / "regions"
    folder.mkdir()
    meter_csv(folder / "south.csv", METERS[:2])
    rows = meter_rows(METERS[2:4])
    pq.write_table(rows.select(rows.column_names[::-1]), folder / "north.parquet")
    rows = meter_rows(METERS[4:])
    zone = rows["zone"].cast(pa.dictionary(pa.int32(), pa.string()))
    pq.write_table(rows.set_column(rows.column_names.index("zone"), "zone", zone), folder / "west.parquet")
    (folder / "_draft.csv").write_text("no table")
    (folder / "README.md").write_text("no table either")
    table = pin_table(landing, folder)
    assert meters_of(table) == list(METERS)
    assert MeterRegistry.from_meter_table(folder).number.tolist() == [meter.number for meter in METERS]
    assert demand_of(landing, table) == BY_HAND
    meter_csv(folder / "south.csv", [METERS[0]._replace(bound_wh=1000), METERS[1]])
    assert pin_table(landing, folder).version != table.version


def test_a_region_that_does_not_fit_the_others_is_named(tmp_path, landing):
    folder = tmp_path / "regions"
    folder.mkdir()
    meter_csv(folder / "a.csv", METERS[:2])
    (folder / "b.csv").write_text("meter,zone,bound_wh\n7,hill,5\n")
    with pytest.raises(
        MeterError, match=r"b\.csv is with other columns: must have the columns meter, zone, bound_wh, "
    ):
        pin_table(landing, folder)
    meter_csv(folder / "b.csv", METERS[1:])
    with pytest.raises(MeterError, match="must be there once"):
        MeterRegistry.from_meter_table(folder)


@pytest.mark.parametrize("name", ["b.parq", "more/b.parquet"])
def test_the_version_of_a_folder_covers_every_file_that_is_read_from_it(tmp_path, landing, name):
    folder = tmp_path / "table"
    (folder / "more").mkdir(parents=True)
    pq.write_table(meter_rows(METERS[:3]), folder / "a.parquet")
    pq.write_table(meter_rows(METERS[3:]), folder / name)
    first = pin_table(landing, folder)
    pq.write_table(meter_rows([METERS[3]._replace(bound_wh=1, imputed_wh=0), *METERS[4:]]), folder / name)
    second = pin_table(landing, folder)
    assert first.meters == 3 or first.version != second.version  # either not read, or part of the version


def test_a_table_that_was_half_deleted_can_be_pinned_again(tmp_path, landing):
    table = pin_table(landing, meter_csv(tmp_path / "meters.csv"))
    file_of(table, 1).unlink()  # a purge that was killed in the middle of rmtree
    assert demand_of(landing, pin_table(landing, tmp_path / "meters.csv")) == BY_HAND


def test_a_pinned_table_that_was_changed_is_refused_and_gives_no_other_demand(tmp_path, landing):
    table = pin_table(landing, meter_csv(tmp_path / "meters.csv"))
    assert demand_of(landing, table) == BY_HAND
    path = file_of(table, 0)
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(2, "bound_wh", pc.divide(rows["bound_wh"], 2)), path)
    with pytest.raises(MeterError):
        demand_of(landing, table)
