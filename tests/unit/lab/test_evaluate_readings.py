"""An evaluation of the user's own readings: what a file must have, and that nothing of the future is used."""

import csv
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.evaluation import evaluate_region
from murmurate.lab.evaluate.homes import Homes, draw_season
from murmurate.lab.evaluate.promised_noise import NoiseLaw, PromisedNoise
from murmurate.lab.evaluate.readings_file import HouseholdReadings, _to_intervals, read_households
from murmurate.lab.evaluate.region import choose_sizes, region_of_readings
from murmurate.lab.evaluate.zone_pricing import Setting, Way

DAY = 96
FIRST_DAY = 20_454  # 2026-01-01
NOISE = PromisedNoise("any 24 h: epsilon 4, delta 1e-06", NoiseLaw.gaussian(11.69), 4.0)


@pytest.fixture(scope="module")
def energy_wh():
    """Readings of 210 homes on 37 days [interval, household]."""
    season = draw_season(np.random.default_rng(1), days=37)
    homes = Homes.draw(np.random.Generator(np.random.SFC64(2)), 210)
    return np.array([homes.step(season, t) for t in range(season.intervals)])


def write_parquet(path, energy_wh, **other):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    intervals, households = energy_wh.shape
    columns = {
        "interval": FIRST_DAY * DAY + np.repeat(np.arange(intervals), households),
        "household": np.tile([f"home {n}" for n in range(households)], intervals),
        "energy_wh": energy_wh.ravel(),
    }
    keep = ~np.isnan(columns["energy_wh"])
    table = {other.get(name, name): values[keep] for name, values in columns.items()}
    parquet.write_table(arrow.table(table), path)
    return path


@pytest.mark.slow
def test_readings_of_a_parquet_file_are_read_and_gaps_filled(energy_wh, tmp_path):
    table = energy_wh.astype(np.float64)
    table[100, 7] = np.nan  # one is missing: filled
    table[:500, 8] = np.nan  # many are: the household is left out
    found = read_households(write_parquet(tmp_path / "readings.parquet", table, household="meter"))
    assert (found.days, found.households, found.left_out, found.first_day) == (37, 209, 1, FIRST_DAY)
    order = [column for column in range(210) if column != 8]
    column = order.index(7)
    same_time = np.delete(energy_wh[100 % DAY :: DAY, 7], 1)
    assert found.energy_wh[100, column] == pytest.approx(same_time.mean(), rel=1e-5)
    expected = energy_wh[:, order]
    expected[100, column] = found.energy_wh[100, column]
    assert_array_equal(found.energy_wh, expected)


@pytest.mark.slow
def test_meters_of_one_household_are_read_as_their_sum(energy_wh, tmp_path):
    """Every third household has a second meter, with a third of what it uses."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    second = np.arange(0, 210, 3)
    part = energy_wh[:, second] // 3
    table = np.concatenate([energy_wh.copy(), part], axis=1).astype(np.float64)
    table[:, second] -= part
    owner = np.concatenate([np.arange(210), second])
    table[100, 210] = np.nan  # of the second meter of household 0: filled
    table[:500, 211] = np.nan  # of household 3: it is left out
    intervals, meters = table.shape
    keep = ~np.isnan(table.ravel())
    columns = {
        "interval": FIRST_DAY * DAY + np.repeat(np.arange(intervals), meters),
        "meter_id": np.tile([f"m{n}" for n in range(meters)], intervals),
        "household": np.tile([f"home {n}" for n in owner], intervals),
        "energy_wh": table.ravel(),
    }
    parquet.write_table(arrow.table({name: values[keep] for name, values in columns.items()}), tmp_path / "r.parquet")
    found = read_households(tmp_path / "r.parquet")
    assert (found.households, found.left_out, found.is_by_meter) == (209, 1, False)
    expected = np.delete(energy_wh, 3, axis=1).astype(np.float32)
    expected[100, 0] = found.energy_wh[100, 0]
    assert_array_equal(found.energy_wh, expected)
    assert found.energy_wh[100, 0] > table[100, 0]


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (["household"], [["960", "a", "5"], ["960", "a", "6"]], "several readings of one household in an interval"),
        (["meter"], [["960", "a", "5"], ["960", "a", "6"]], "several readings of one meter in an interval"),
        (
            ["meter", "household"],
            [["1", "a", "x", "5"], ["2", "a", "y", "6"]],
            "with several values of household for one meter",
        ),
    ],
)
def test_readings_of_two_meters_are_never_taken_for_one(header, rows, message, tmp_path):
    rows = [*rows, ["0", *rows[0][1:]], ["9600", *rows[0][1:]]]
    with pytest.raises(ReadingError, match=message):
        read_households(write_csv(tmp_path / "readings.csv", ["interval", *header, "energy_wh"], rows))


@pytest.mark.slow
def test_own_readings_are_evaluated(energy_wh):
    readings = HouseholdReadings(energy_wh, FIRST_DAY, 0)
    assert choose_sizes(readings.households, ()) == (100, 210)  # the size of the file is always one of them
    region = region_of_readings(readings, (100,), seed=1)
    found = evaluate_region(region, [NOISE], Setting())
    assert (found.counted_days, found.zones) == (9, {100: 2})
    error = {way: result.error for way, result in found.comparisons[100][0].results.items()}
    assert error[Way.EXACT] < error[Way.FORECAST] < error[Way.FLAT]
    assert error[Way.PRIVATE] < error[Way.NOISY_ECHO]


@pytest.mark.slow
def test_forecasts_know_nothing_of_later_weeks(energy_wh):
    later = energy_wh.copy()
    later[35 * DAY :] *= 3
    plain, changed = (
        region_of_readings(HouseholdReadings(energy, FIRST_DAY, 0), (100,), seed=1) for energy in (energy_wh, later)
    )
    ratio = changed.expected_wh / changed.expected_wh[0] * plain.expected_wh[0] / plain.expected_wh
    assert ratio == pytest.approx(np.ones_like(ratio), rel=1e-6)  # the last fit was on day 35
    assert_array_equal(plain.known.forecast.mean_wh, changed.known.forecast.mean_wh)


def write_csv(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        (["interval", "energy_wh"], [], "must have the columns interval"),
        (["interval", "household", "energy_wh"], [], "without readings"),
        (["interval", "household", "energy_wh"], [["1", "a", "x"]], "csv:2 is not readable"),
        (["interval", "household", "energy_wh"], [["1", "a"]], "csv:2 is not readable"),
        (["interval", "household", "energy_wh"], [["1", "a", "-5"]], "0 or more: use, without feed-in"),
        (["interval", "household", "energy_wh"], [["1", "a", "nan"]], "0 or more: use, without feed-in"),
        (["timestamp", "household", "energy_wh"], [["yesterday", "a", "5"]], "times that cannot be read"),
        (["timestamp", "household", "energy_wh"], [["2026-01-01T00:07:00", "a", "5"]], "on a quarter hour"),
        (["interval", "household", "energy_wh"], [["0", "a", "5"], ["960", "a", "5"]], "10 whole days long"),
        (["interval", "household", "energy_wh"], [["0", "a", "5"], ["9600", "a", "5"]], "must have 200 of them"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_what_they_must_have(tmp_path, header, rows, message):
    with pytest.raises(ReadingError, match=message):
        read_households(write_csv(tmp_path / "readings.csv", header, rows))


def test_zones_larger_than_the_file_are_refused():
    assert choose_sizes(210, (50, 210)) == (50, 210)
    with pytest.raises(ReadingError, match="must be at most 210"):
        choose_sizes(210, (100, 300))


def test_timestamps_are_quarter_hours_of_the_first_clock(tmp_path):
    zurich, later = timezone(timedelta(hours=1)), timezone(timedelta(hours=2))
    times = [
        "2026-01-01T00:00:00+01:00",
        "2026-01-01T00:30:00+01:00",
        datetime(2026, 1, 1, 1, 0, tzinfo=UTC),
        datetime(2026, 1, 1, 4, 0, tzinfo=later),
    ]
    assert times[0] == datetime(2026, 1, 1, tzinfo=zurich).isoformat()
    found = _to_intervals(tmp_path, times) - FIRST_DAY * DAY
    assert found.tolist() == [0, 2, 8, 12]
    assert _to_intervals(tmp_path, ["2026-01-01 00:15:00"]).tolist() == [FIRST_DAY * DAY + 1]
