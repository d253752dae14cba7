"""An evaluation of the user's own readings: what a file must have, and that nothing of the future is used."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tests.support.reading_dialects import write_imported

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.evaluation import evaluate_region
from murmurate.lab.evaluate.homes import Homes, draw_season
from murmurate.lab.evaluate.promised_noise import NoiseLaw, PromisedNoise
from murmurate.lab.evaluate.region import choose_sizes, region_of_readings
from murmurate.lab.evaluate.zone_pricing import Setting, Way
from murmurate.readings.imported_file import PastReadings, read_households

DAY = 96
FIRST_DAY = 20_454  # 2026-01-01
NAMES = tuple(f"m{n}" for n in range(210))
NOISE = PromisedNoise("any 24 h: epsilon 4, delta 1e-06", NoiseLaw.gaussian(11.69), 4.0)


@pytest.fixture(scope="module")
def energy_wh():
    """Readings of 210 homes on 37 days [interval, household]."""
    season = draw_season(np.random.default_rng(1), days=37)
    homes = Homes(np.random.Generator(np.random.SFC64(2)), 210)
    return np.array([homes.step(season, t) for t in range(season.intervals)])


def write_days(path, energy_wh, **columns):
    return write_imported(path, energy_wh, start_s=86_400 * FIRST_DAY, interval_s=900, **columns)


@pytest.mark.slow
def test_gaps_are_filled_and_meters_of_one_household_are_summed(energy_wh, tmp_path):
    """Every third household has a second meter, with a third of what it uses."""
    second = np.arange(0, 210, 3)
    part = energy_wh[:, second] // 3
    table = np.concatenate([energy_wh.copy(), part], axis=1).astype(np.float64)
    table[:, second] -= part
    owner = np.concatenate([np.arange(210), second])
    table[100, 210] = np.nan  # of the second meter of household 0: filled
    table[:500, 211] = np.nan  # of household 3: it is left out
    found = read_households(write_days(tmp_path / "r.parquet", table, household=[f"home {n}" for n in owner]))
    assert (found.days, found.households, found.left_out, found.first_day) == (37, 209, 1, FIRST_DAY)
    assert (found.filled, found.is_by_meter) == (1, False)
    expected = np.delete(energy_wh, 3, axis=1).astype(np.float32)
    same_time = np.delete(part[100 % DAY :: DAY, 0], 1)
    expected[100, 0] = table[100, 0] + same_time.mean(dtype=np.float32)
    assert found.energy_wh == pytest.approx(expected, rel=1e-5)


def test_days_are_those_of_the_clock_of_the_file(tmp_path):
    table = np.ones((36 * DAY, 200))
    start_s = 86_400 * FIRST_DAY - 3600  # midnight in Zurich
    path = write_imported(tmp_path / "r.parquet", table, start_s=start_s, interval_s=900, time_zone="Europe/Zurich")
    found = read_households(path)
    assert (found.days, found.first_day, found.is_by_meter) == (36, FIRST_DAY, True)


@pytest.mark.slow
def test_own_readings_are_evaluated(energy_wh):
    readings = PastReadings(energy_wh, FIRST_DAY * DAY, 900, NAMES, ())
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
        region_of_readings(PastReadings(energy, FIRST_DAY * DAY, 900, NAMES, ()), (100,), seed=1)
        for energy in (energy_wh, later)
    )
    ratio = changed.expected_wh / changed.expected_wh[0] * plain.expected_wh[0] / plain.expected_wh
    assert ratio == pytest.approx(np.ones_like(ratio), rel=1e-6)  # the last fit was on day 35
    assert_array_equal(plain.known.demand.mean_wh, changed.known.demand.mean_wh)


@pytest.mark.parametrize(
    ("shape", "change", "message"),
    [
        ((10 * DAY, 1), {}, "10 whole days long: must cover 35 days"),
        ((36 * DAY, 3), {}, "must have 200 of them"),
        ((0, 1), {}, "without readings"),
        ((36 * DAY, 2), {"meter_id": ["a", "a"]}, "several readings of one meter in an interval"),
        ((DAY, 2), {"meter_id": ["a", "a"], "household": ["x", "y"]}, "with several values of household for one meter"),
        ((DAY, 1), {"start_s": 60}, "--interval-minutes 15"),
        ((DAY, 1), {"kind": [None]}, "with empty cells"),
        (
            (DAY, 1),
            {"kind": [7]},
            "without the column kind of its type: must be .* that murmurate readings import .* writes",
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_what_they_must_have(tmp_path, shape, change, message):
    place = {"start_s": 0, "interval_s": 900} | change
    with pytest.raises(ReadingError, match=message):
        read_households(write_imported(tmp_path / "r.parquet", np.ones(shape), **place))


def test_a_reading_below_zero_counts_as_zero_and_is_counted(tmp_path):
    """Of each meter, before the meters of a household are added up."""
    table = np.full((DAY * 36, 400), 7.0)
    table[3, :3] = (-50, 7, -20)
    owner = [f"home {n // 2}" for n in range(400)]
    found = read_households(write_days(tmp_path / "r.parquet", table, household=owner))
    assert found.below_zero == 2
    assert found.energy_wh[3].tolist() == [7, 7] + [14] * 198
    assert (found.energy_wh[4:] == 14).all()


def test_a_foreign_file_is_refused_with_the_command_that_imports_it(tmp_path):
    (tmp_path / "r.csv").write_text("meter,kwh\n", encoding="utf-8")
    with pytest.raises(
        ReadingError, match=r"r.csv is not a Parquet file: must be .*murmurate readings import .*r.csv --out"
    ):
        read_households(tmp_path / "r.csv")


def test_zones_larger_than_the_file_are_refused():
    assert choose_sizes(210, (50, 210)) == (50, 210)
    with pytest.raises(ReadingError, match="must be at most 210"):
        choose_sizes(210, (100, 300))
