"""What an import takes and what not: each reason with the place of its cell, and errors with a remedy."""

import json
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.green_button_feeds import one
from tests.support.reading_dialects import day_rows, half_hours, import_paths, run_import, time_rows, to_text, utc

from murmurate.errors import ReadingError
from murmurate.readings import cell_values as why
from murmurate.readings import merge
from murmurate.readings.cell_values import DateOrder, DecimalMark, EnergyUnit
from murmurate.readings.columns import ColumnNames
from murmurate.readings.imported_file import read_past_readings
from murmurate.readings.parquet import parse_parquet
from murmurate.service.ingest.meter_registry import MeterRegistry

HEADER = "meter_id,timestamp,kwh\n"


def import_text(folder, text, **options):
    return run_import(folder, text.encode(), **options)


def reasons(summary):
    return {each["reason"]: (each["count"], each["first"]) for each in summary.refused.to_document()}


def test_each_cell_that_is_not_taken_is_named_with_its_reason(tmp_path):
    rows = [
        "A,2025-01-01 00:00,0.25",
        "A,2025-01-01 00:30,Null",
        "A,2025-01-01 01:00,-0.1",
        "A,yesterday,0.1",
        "A,2025-01-01 02:10,0.1",
        ",2025-01-01 02:00,0.1",
        "A,2025-01-01 03:00",
        "A,2025-01-01 04:00,0.1",
        "A,2025-01-01 04:00,0.2",
        "A,2025-01-01 04:30,0.1",
        "A,2025-01-01 04:30,0.1",
        "A,2025-03-30 02:30,0.1",
        "A,2025-10-26 02:30,0.1",
    ]
    found, summary = import_text(tmp_path, HEADER + "\n".join(rows), source_length_s=1800)
    assert found == {
        ("A", utc("2024-12-31T23:00")): 250,
        ("A", utc("2025-01-01T00:00")): -100,
        ("A", utc("2025-01-01T03:30")): 100,
    }
    assert summary.repeated == 1
    assert reasons(summary) == {
        why.TWO_VALUES: (2, ["file-0.csv:9, kwh", "file-0.csv:10, kwh"]),
        why.MISSING: (1, ["file-0.csv:3, kwh"]),
        why.NOT_A_TIME: (1, ["file-0.csv:5, timestamp"]),
        why.OFF_GRID: (1, ["file-0.csv:6, kwh"]),
        why.NOT_A_METER: (1, ["file-0.csv:7"]),
        why.WRONG_WIDTH: (1, ["file-0.csv:8"]),
        why.NO_SUCH_TIME: (1, ["file-0.csv:13, timestamp"]),
        why.OCCURS_TWICE: (1, ["file-0.csv:14, kwh"]),
    }


def test_only_the_first_places_of_a_reason_are_kept_and_all_are_counted(tmp_path):
    rows = [f"A,2025-01-01 {n // 2:02}:{n % 2 * 30:02},x" for n in range(40)]
    _, summary = import_text(tmp_path, HEADER + "\n".join(["A,2025-01-02 00:00,1", "A,2025-01-02 00:30,1", *rows]))
    count, first = reasons(summary)[why.NOT_A_READING]
    assert (count, len(first)) == (40, 5)


def test_no_reason_holds_what_the_cell_said(tmp_path):
    text = HEADER + "A,2025-01-01 00:00,1\nA,2025-01-01 00:30,1\nA,2025-01-01 01:00,--77.123\nA,secret,0.1\n"
    _, summary = import_text(tmp_path, text)
    assert "77.123" not in json.dumps(summary.to_document())
    assert "secret" not in json.dumps(summary.to_document())


def test_finer_readings_become_sums_of_complete_intervals(tmp_path):
    rows = [f"A,2025-01-01T00:{minute:02}Z,1" for minute in (0, 5, 10, 15, 20, 30, 35, 40)]
    found, summary = import_text(tmp_path, "meter,time,Wh\n" + "\n".join(rows), minutes=15)
    assert found == {("A", utc("2025-01-01T00:00")): 3, ("A", utc("2025-01-01T00:30")): 3}
    assert reasons(summary) == {why.INCOMPLETE: (2, ["file-0.csv:5, Wh", "file-0.csv:6, Wh"])}


def test_intervals_that_do_not_fit_are_refused_with_the_option_to_change(tmp_path):
    text = to_text(time_rows(half_hours("2025-01-01T00:00", "2025-01-01T03:00"), time="zulu"))
    with pytest.raises(ReadingError, match=r"in intervals of 30 minutes.*--interval-minutes"):
        run_import(tmp_path, text, minutes=20)
    daily = HEADER + "A,2025-01-01,9\nA,2025-01-02,9\n"
    with pytest.raises(ReadingError, match=r"readings 1440 minutes apart: must be an hour or a part of it"):
        import_text(tmp_path, daily)


@pytest.mark.parametrize("day", ["30.03.2025", "26.10.2025"])
def test_48_numbered_columns_on_a_day_of_another_length_are_not_guessed(tmp_path, day):
    header = ["meter", "date", *(f"HH{n}" for n in range(1, 49))]
    found, summary = run_import(tmp_path, to_text([header, ["A", day, *["0.1"] * 48]]), unit=EnergyUnit.KWH)
    assert len(found) == 4  # 00:00 to 02:00
    assert reasons(summary)[why.DAY_LENGTH][0] == 44


def test_46_numbered_columns_on_the_day_that_is_shorter_are_taken(tmp_path):
    header = ["meter", "date", *(f"HH{n}" for n in range(1, 49))]
    found, summary = run_import(tmp_path, to_text([header, ["A", "2025-03-30", *["0.1"] * 46, "0", ""]]),
                                unit=EnergyUnit.KWH)  # fmt: skip
    assert len(found) == 46
    assert summary.refused.total == 0


def test_a_clock_column_of_an_hour_that_occurs_twice_is_not_guessed(tmp_path):
    header = ["meter", "date", *(f"{n // 2:02}:{n % 2 * 30:02}" for n in range(48))]
    found, summary = run_import(tmp_path, to_text([header, ["A", "2025-10-26", *["0.1"] * 48]]), unit=EnergyUnit.KWH)
    assert len(found) == 46
    assert reasons(summary) == {why.DAY_LENGTH: (2, ["file-0.csv:2, 02:00", "file-0.csv:2, 02:30"])}


def test_a_clock_column_of_the_hour_that_is_skipped_must_be_empty_or_zero(tmp_path):
    header = ["meter", "date", *(f"{n // 2:02}:{n % 2 * 30:02}" for n in range(48))]
    cells = [*["0.1"] * 4, "0", "0.3", *["0.1"] * 42]
    found, summary = run_import(tmp_path, to_text([header, ["A", "2025-03-30", *cells]]), unit=EnergyUnit.KWH)
    assert len(found) == 46
    assert reasons(summary) == {why.NO_SUCH_TIME: (1, ["file-0.csv:2, 02:30"])}


def test_low_carbon_london_is_read_as_published(tmp_path):
    text = (
        "LCLid,stdorToU,DateTime,KWH/hh (per half hour) \r\n"
        "MAC000002,Std,2012-10-12 00:30:00.0000000, 0.14 \r\n"
        "MAC000002,Std,2012-10-12 01:00:00.0000000,0\r\n"
        "MAC000002,Std,2012-10-12 01:30:00.0000000,Null\r\n"
    )
    found, summary = import_text(tmp_path, text, time_zone="UTC")
    assert found == {("MAC000002", utc("2012-10-12T00:30")): 140, ("MAC000002", utc("2012-10-12T01:00")): 0}
    assert summary.files[0]["unit"] == "kWh"
    assert reasons(summary) == {why.MISSING: (1, ["file-0.csv:4, KWH/hh (per half hour)"])}


def test_a_file_without_a_meter_column_is_a_meter_by_the_name_of_the_file(tmp_path):
    found, _ = import_text(tmp_path, "timestamp,kWh\n2025-01-01T00:00Z,1\n2025-01-01T00:30Z,1\n")
    assert {meter for meter, _ in found} == {"file-0"}


def test_day_and_hour_in_two_columns_and_ends_of_intervals(tmp_path):
    text = "home,date,hour,energy_kWh\nA,2025-01-01,1,0.5\nA,2025-01-01,24,0.7\nA,2025-01-01,2,0.6\n"
    found, _ = import_text(tmp_path, text, time_zone="UTC", minutes=60, is_end=True)
    assert found == {
        ("A", utc("2025-01-01T00:00")): 500,
        ("A", utc("2025-01-01T01:00")): 600,
        ("A", utc("2025-01-01T23:00")): 700,
    }


def test_files_of_several_lengths_join_and_the_finest_counts(tmp_path):
    hours = HEADER + "A,2025-01-01T00:00Z,0.4\nA,2025-01-01T01:00Z,0.4\n"
    quarters = HEADER + "A,2025-01-01T01:00Z,0.2\nA,2025-01-01T01:30Z,0.3\n"
    found, _ = run_import(tmp_path, hours.encode(), quarters.encode())
    assert [wh for _, wh in sorted(found.items())] == [200, 200, 200, 300]


def test_green_button_says_what_it_refuses(tmp_path):
    path = tmp_path / "feed.xml"
    path.write_bytes(one((0, 3600, 500), (3600, 900, 100), (5000, 3600, 1), meter="M1"))
    found, summary = import_paths([path], tmp_path, minutes=15)
    assert found == {("M1", 0): 125, ("M1", 900): 125, ("M1", 1800): 125, ("M1", 2700): 125, ("M1", 3600): 100}
    assert summary.refused.total == 1
    assert summary.files[0]["minutes"] == [15, 60]
    path.write_bytes(one((0, 900, 500), flowDirection=4))
    with pytest.raises(ReadingError, match="flowDirection is another"):
        import_paths([path], tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: must have a header and rows"),
        ("just words\nand more\n", "must be CSV with a header, Parquet or Green Button"),
        ("meter,timestamp,temperature\nA,2025-01-01T00:00Z,3\n", "--energy-column"),
        ("meter,timestamp,value\nA,2025-01-01T00:00Z,3\n", "--unit kWh or --unit Wh"),
        (HEADER + "A,2025-01-01T00:00Z,3\n", "--source-minutes 30"),
        (HEADER + 'A,2025-01-01T00:00Z,0.3\nA,2025-01-01T00:30Z,"0,3"\n', "--decimal point or --decimal comma"),
        (HEADER + "A,03/04/2025 00:00,3\nA,03/04/2025 00:30,3\n", "--dates dmy or --dates mdy"),
        (HEADER + "A,2025-01-01T00:00Z,x\nA,2025-01-01T00:30Z,x\n", "2 cells were refused with: not a reading"),
        ("meter,date,HH1,HH2,HH3\nA,2025-01-01,1,2,3\n", "must have meter_id, timestamp"),
        (f"meter,date,{','.join(f'HH{n}' for n in range(1, 38))}\n", "with 37 columns of intervals"),
        ("<feed/>", "must be one Atom feed"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_a_remedy(tmp_path, text, message):
    with pytest.raises(ReadingError) as caught:
        import_text(tmp_path, text)
    assert message in str(caught.value)


def test_times_without_an_offset_need_a_time_zone(tmp_path):
    with pytest.raises(ReadingError, match=r"offset of times from UTC is missing: .*--timezone"):
        import_text(tmp_path, HEADER + "A,2025-01-01 00:00,3\n", time_zone=None)


def test_options_decide_what_a_file_leaves_open(tmp_path):
    text = 'who,when,value\nA,03/04/2025 00:00,"1,5"\nA,03/04/2025 00:30,1.5\n'
    found, summary = import_text(
        tmp_path,
        text,
        unit=EnergyUnit.WH,
        decimal=DecimalMark.COMMA,
        date_order=DateOrder.MONTH_FIRST,
        names=ColumnNames("who", "when", "value"),
    )
    assert found == {("A", utc("2025-03-03T23:00")): 2}
    assert reasons(summary) == {why.NOT_A_READING: (1, ["file-0.csv:3, value"])}


def test_a_failed_import_leaves_nothing_behind(tmp_path):
    with pytest.raises(ReadingError):
        import_text(tmp_path, HEADER + "A,2025-01-01T00:00Z,x\nA,2025-01-01T00:30Z,x\n")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_outputs_are_what_ingest_evaluate_and_the_service_read(tmp_path):
    readings = half_hours("2025-10-25T22:00", "2025-10-26T23:00")
    run_import(tmp_path, to_text(day_rows(readings, by_clock=False)), minutes=15)
    path = tmp_path / "out" / "readings.parquet"
    batch, refused = parse_parquet(path.read_bytes(), interval_s=900)
    assert (len(batch), refused) == (2 * len(readings), {})
    schema = pq.read_schema(path)
    assert read_past_readings(path, 900, "town").names == ("A", "B")
    assert schema.field("timestamp").type == pa.timestamp("ms", "Europe/Zurich")
    registry = MeterRegistry.from_meter_table(tmp_path / "out" / "meters.csv")
    assert registry.count_by_zone() == {"town": 2}
    assert registry.find_rows(batch.meter).min() == 0


@pytest.mark.parametrize("last", ["00:00", "24:00"])
def test_clock_columns_that_name_the_ends_of_intervals_are_recognised(tmp_path, last):
    names = [f"{n // 2:02}:{n % 2 * 30:02}" for n in range(1, 48)] + [last]
    rows = [["meter", "date", *names], ["A", "2025-01-01", *(str(n) for n in range(48))]]
    found, _ = run_import(tmp_path, to_text(rows), unit=EnergyUnit.WH, time_zone="UTC")
    assert found == {("A", utc("2025-01-01T00:00") + 1800 * n): n for n in range(48)}


def test_an_interval_end_must_fit_and_may_be_local(tmp_path):
    rows = [
        "A,2025-10-26 01:30,2025-10-26 02:00,0.1",
        "A,2025-10-26 02:00,2025-10-26 02:30,0.2",
        "A,2025-10-26 02:30,2025-10-26 02:00,0.3",
        "A,2025-10-26 02:00,2025-10-26 02:30,0.4",
        "A,2025-10-26 02:30,2025-10-26 03:00,0.5",
        "A,2025-10-26 03:00,2025-10-26 04:00,0.6",
    ]
    found, summary = import_text(tmp_path, "meter,interval_start,interval_end,kWh\n" + "\n".join(rows))
    assert [wh for _, wh in sorted(found.items())] == [100, 200, 300, 400, 500]
    assert reasons(summary) == {why.WRONG_LENGTH: (1, ["file-0.csv:7, interval_end"])}


@pytest.mark.parametrize("content", [b"PK\3\4 a workbook", b"\x1f\x8b\x08 packed", b"PAR1 cut off"])
def test_packed_and_cut_files_are_refused_with_a_remedy(tmp_path, content):
    with pytest.raises(ReadingError, match=r"must be (unpacked|a whole Parquet file)"):
        run_import(tmp_path, content)


def test_a_parquet_file_may_have_other_columns_of_any_type(tmp_path):
    columns = {
        "meter_id": pa.array(["A", "A", None], pa.string()).dictionary_encode(),
        "tags": pa.array([[1], [2], []]),
        "DateTime": pa.array([0, 1_800_000, 0], pa.timestamp("ms")),
        "energy_wh": pa.array([1.5, None, 3.0]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    found, summary = import_paths([tmp_path / "a.parquet"], tmp_path, time_zone="UTC")
    assert found == {("A", 0): 2}
    assert reasons(summary) == {
        why.MISSING: (1, ["a.parquet:2, energy_wh"]),
        why.NOT_A_METER: (1, ["a.parquet:3"]),
    }


@pytest.mark.slow
def test_readings_beyond_what_is_kept_in_memory_go_through_the_spool(tmp_path, monkeypatch):
    monkeypatch.setattr(merge, "MAX_BUFFERED", 7)
    readings = half_hours("2025-10-25T22:00", "2025-10-27T23:00", meters=[f"M{n}" for n in range(70)])
    found, _ = run_import(tmp_path, to_text(time_rows(readings, time="local")))
    assert found == readings
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["meters.csv", "readings.parquet", "zone.toml"]


@pytest.mark.parametrize(("first", "stamps", "is_hinted"), [(30, False, True), (0, False, False), (30, True, False)])
@pytest.mark.parametrize("minutes", [15, 30])
def test_a_file_whose_days_begin_after_midnight_and_end_at_midnight_may_have_the_ends_of_intervals(
    tmp_path, first, stamps, is_hinted, minutes
):
    at = datetime(2025, 1, 1) + timedelta(minutes=first)  # noqa: DTZ001 - local
    rows = [f"A,{at + timedelta(minutes=30 * number):%Y-%m-%d %H:%M},0.1" for number in range(2 * 48)]
    _, summary = import_text(tmp_path, HEADER + "\n".join(rows), minutes=minutes, is_end=stamps)
    hints = [warning for warning in summary.warnings if "--stamps end" in warning]
    assert len(hints) == is_hinted
