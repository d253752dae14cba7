"""Laws of an import, for all readings: dialects agree, sums stay, local times are those of the clocks."""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.reading_dialects import (
    day_rows,
    green_button,
    import_paths,
    local,
    run_import,
    time_rows,
    to_text,
    utc,
    write_parquet,
)

from murmurate.readings.cell_values import NO_SUCH_TIME, Moment, place_local_time
from murmurate.readings.merge import MeterReadings, split_readings, sum_readings
from murmurate.time_zones import load_time_zone

CHANGES = {"autumn": "2025-10-25T22:00", "spring": "2025-03-29T23:00", "old autumn": "2011-10-29T22:00"}  # a day before
ENERGY = st.integers(-9999, 9999)


@st.composite
def whole_days(draw):
    """Readings of all half hours of two days, with a clock change in the first, and of one or two meters."""
    start = utc(draw(st.sampled_from(sorted(CHANGES.values()))))
    end = int((local(start).replace(fold=0) + timedelta(days=2)).timestamp())
    keys = [(meter, at) for meter in draw(st.sampled_from(["A", "AB"])) for at in range(start, end, 1800)]
    values = draw(st.lists(ENERGY, min_size=len(keys), max_size=len(keys)))
    return dict(zip(keys, values, strict=True))


@st.composite
def table_dialects(draw):
    """How a table is written: its rows, and separator and encoding of the text."""
    delimiter = draw(st.sampled_from([",", ";", "\t"]))
    style = {"unit": draw(st.sampled_from(["kWh", "Wh"])), "mark": draw(st.sampled_from([".", ","]))}
    encoding = draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"]))
    layout = draw(st.sampled_from(["local", "iso", "offset", "zulu", "unix", "clock", "numbered"]))

    def write(readings):
        if layout in {"clock", "numbered"}:
            rows = day_rows(readings, by_clock=layout == "clock", **style)
        else:
            rows = time_rows(readings, time=layout, **style)
        return to_text(rows, delimiter, encoding)

    return write


@pytest.mark.slow
@given(whole_days(), table_dialects())
def test_a_file_in_any_dialect_imports_to_the_same_readings(readings, write):
    with tempfile.TemporaryDirectory() as folder:
        found, summary = run_import(Path(folder), write(readings))
    assert found == readings
    assert summary.refused.total == 0


@pytest.mark.slow
@given(whole_days())
def test_parquet_and_green_button_import_to_the_same_readings(readings):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_parquet(folder / "a.parquet", readings)
        (folder / "b.xml").write_bytes(green_button(readings))
        assert import_paths([folder / "a.parquet"], folder, time_zone=None)[0] == readings
        assert import_paths([folder / "b.xml"], folder, time_zone=None)[0] == readings


@pytest.mark.slow
@given(whole_days(), st.sampled_from([5, 10, 15, 30, 60]))
def test_the_sum_of_each_meter_is_the_same_at_every_interval(readings, minutes):
    with tempfile.TemporaryDirectory() as folder:
        found, summary = run_import(Path(folder), to_text(time_rows(readings, time="zulu")), minutes=minutes)
    assert summary.refused.total == 0
    for meter in {name for name, _ in readings}:
        assert sum(wh for (name, _), wh in found.items() if name == meter) == sum(
            wh for (name, _), wh in readings.items() if name == meter
        )


@given(st.lists(ENERGY, min_size=1, max_size=20), st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_splitting_and_adding_up_again_changes_nothing(energy, parts):
    count = len(energy)
    readings = MeterReadings(
        np.zeros(count, np.int64), 3600 * np.arange(count), np.array(energy), -np.ones(count, np.int64)
    )
    split = split_readings(readings, parts, 3600 // parts)
    by_reading = split.energy_wh.reshape(count, parts)
    assert (by_reading.max(axis=1) - by_reading.min(axis=1) <= 1).all()
    again, left = sum_readings(split, parts, 3600)
    assert not left.any()
    assert [column.tolist() for column in again] == [column.tolist() for column in readings]


@given(
    st.integers(utc("2000-01-01T00:00") // 900, utc("2035-01-01T00:00") // 900),
    st.sampled_from(
        ["Europe/Zurich", "Europe/London", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]
    ),
)
def test_every_moment_is_one_of_the_meanings_of_its_local_time(quarter_hour, zone_name):
    zone, start_s = load_time_zone(zone_name), 900 * quarter_hour
    at = datetime.fromtimestamp(start_s, zone)
    moment = place_local_time(at.replace(tzinfo=None, fold=0), zone)
    assert isinstance(moment, Moment)
    assert start_s in {moment.start_s, moment.start_s + moment.later_s}
    assert (moment.start_s + moment.later_s == start_s) if at.fold else (moment.start_s == start_s)


@given(st.integers(2000, 2035), st.integers(0, 59))
def test_the_hour_that_clocks_skip_or_repeat_is_known(year, minute):
    zone = load_time_zone("Europe/Zurich")
    march, october = (max(day for day in range(25, 32) if datetime(year, month, day, tzinfo=UTC).weekday() == 6)
                      for month in (3, 10))  # fmt: skip
    assert place_local_time(datetime(year, 3, march, 2, minute), zone) is NO_SUCH_TIME  # noqa: DTZ001
    moment = place_local_time(datetime(year, 10, october, 2, minute), zone)  # noqa: DTZ001
    assert moment == Moment(int(datetime(year, 10, october, 0, minute, tzinfo=UTC).timestamp()), 3600)


@pytest.mark.parametrize("newest_first", [False, True])
def test_the_repeated_hour_of_a_local_file_is_taken_in_the_order_of_the_file(tmp_path, newest_first):
    readings = {("A", at): at // 1800 % 1000 for at in range(utc("2025-10-25T22:00"), utc("2025-10-26T22:00"), 1800)}
    header, *rows = time_rows(readings, time="local")
    found, summary = run_import(tmp_path, to_text([header, *(rows[::-1] if newest_first else rows)]))
    assert found == readings
    assert summary.refused.total == 0
