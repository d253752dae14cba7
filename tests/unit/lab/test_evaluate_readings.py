"""An evaluation of the user's own readings: what a file must have, and that nothing of the future is used."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from research.foreign_world import region as foreign_region
from research.foreign_world.region import Season, simulate_world
from tests.support.reading_dialects import write_imported
from typer.testing import CliRunner

from murmurate.cli import app
from murmurate.errors import ReadingError
from murmurate.lab.evaluate.evaluation import evaluate_region, measure_ways
from murmurate.lab.evaluate.homes import Homes, draw_season
from murmurate.lab.evaluate.promised_noise import NoiseLaw, PromisedNoise
from murmurate.lab.evaluate.region import choose_sizes, region_of_readings
from murmurate.lab.evaluate.zone_pricing import Setting, Way, ZonePricing
from murmurate.prediction.forecast import USUAL_WEATHER, Weather
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


@pytest.fixture(scope="module")
def foreign():
    """Net readings of homes that no generator of ours made, a tenth with roofs, and their weather in summer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(foreign_region, "_OTHER_HOMES", 1)
        world = simulate_world(Season.summer, 5, zones=1, homes=200, days=40, sample=1)
    return world.zones[0].readings_wh(200, pv=True).astype(np.float32), Weather(*world.year.weather)


def measure_foreign(energy_wh, weather, **changes):
    """Return the region, and each way, of a zone of all homes."""
    readings = PastReadings(energy_wh, FIRST_DAY * DAY, 900, NAMES[:200], (), below_zero=1, **changes)
    region = region_of_readings(readings, (200,), 1, weather)
    pricing = ZonePricing(region, 200, Setting())
    law = NoiseLaw.gaussian(0.2)
    return region, measure_ways(pricing, tuple(Way), law, pricing.choose_bound(law), 1)


@pytest.mark.slow
def test_homes_that_feed_in_are_priced_at_their_net_load(foreign):
    energy_wh, weather = foreign
    region, found = measure_foreign(energy_wh, weather)
    truth = energy_wh[14 * DAY :].sum(axis=1)
    assert truth.min() < -0.3 * truth.max()  # at noon
    assert region.zones[200].sums_wh(5500)[:, 0] == pytest.approx(truth)
    assert region.zones[200].sums_wh(300)[:, 0] == pytest.approx(np.clip(energy_wh[14 * DAY :], -300, 300).sum(axis=1))
    assert (region.range_wh(700), replace(region, feeds_in=False).range_wh(700)) == (1400, 700)
    assert region.expected_sun_wh.min() < -50
    assert region.scale(region.zones[200]) == pytest.approx([200])
    priced = measure_foreign(energy_wh, USUAL_WEATHER)[1]
    for way in (Way.FORECAST, Way.REGIONAL_LOAD, Way.PRIVATE, Way.EXACT):
        assert found[way].error < 0.7 * priced[way].error  # it knows the sun
        assert 0 <= found[way].loss < found[Way.FLAT].loss
    assert found[Way.PRIVATE].error < found[Way.FLAT].error
    counted = energy_wh[28 * DAY :].sum(axis=1)
    off = counted[2:] - counted[:-2]
    assert found[Way.EXACT_ECHO].error == pytest.approx(rms(off) / np.maximum(counted, 0).mean(), rel=0.02)


def rms(values):
    return np.sqrt(np.mean(np.square(values, dtype=np.float64)))


@pytest.mark.slow
def test_homes_that_feed_in_more_than_they_use_need_the_irradiance(foreign):
    energy_wh, weather = foreign
    with pytest.raises(ReadingError, match=r"feed in more than they use: must come with the irradiance: --weather"):
        measure_foreign(energy_wh - 200, Weather(weather.temperature_c))


@pytest.mark.slow
def test_silent_households_count_as_expected_and_cost_little(foreign):
    """As in the service. The planted bug, that they count as nothing, makes a price much worse."""
    use_wh = np.maximum(foreign[0], 0)
    plain = measure_foreign(use_wh, foreign[1])[1][Way.PRIVATE].error
    silent = np.random.default_rng(3).random(use_wh.shape) < 0.06
    region, found = measure_foreign(use_wh, foreign[1], silent=silent)
    group = region.zones[200]
    assert_array_equal(group.silent[:, 0], silent[14 * DAY :].sum(axis=1))
    assert group.sums_wh(5500)[:, 0] == pytest.approx(use_wh[14 * DAY :].sum(axis=1))
    reported = np.where(silent, 0, np.minimum(use_wh, 700))[14 * DAY :].sum(axis=1)
    assert group.sums_wh(700)[:, 0] == pytest.approx(reported)
    assert found[Way.PRIVATE].error < 1.03 * plain
    forgotten = replace(region, zones={200: replace(group, silent=0 * group.silent)})
    pricing, law = ZonePricing(forgotten, 200, Setting()), NoiseLaw.gaussian(0.2)
    bug = measure_ways(pricing, (Way.PRIVATE,), law, pricing.choose_bound(law), 1)
    assert bug[Way.PRIVATE].error > 1.03 * found[Way.PRIVATE].error


@pytest.mark.slow
def test_the_page_says_what_was_done_to_the_readings(foreign, tmp_path):
    """A file on the clocks of Zurich, with weather in UTC, gaps and homes that feed in."""
    energy_wh, weather = foreign
    table = energy_wh.astype(np.float64)
    table = np.concatenate([table, table[:, :2]], axis=1)
    table[: 9 * DAY, 200] = np.nan
    table[40:60, 1] = np.nan
    start_s = 86_400 * FIRST_DAY - 3600
    file = write_imported(tmp_path / "r.parquet", table, start_s=start_s, interval_s=900, time_zone="Europe/Zurich")
    rows = [
        f"{datetime.fromtimestamp(start_s + 900 * t, UTC):%Y-%m-%dT%H:%MZ},{temperature:.2f},{irradiance:.1f}"
        for t, (temperature, irradiance) in enumerate(zip(*weather, strict=True))
    ]
    (tmp_path / "weather.csv").write_text("\n".join(["start,temperature_c,irradiance", *rows]), encoding="utf-8")
    command = ["evaluate", "--readings", str(file), "--weather", str(tmp_path / "weather.csv"), "--sizes", "100"]
    found = CliRunner().invoke(app, [*command, "--promise", "any 24 h: epsilon 4, delta 1e-6", "--out", str(tmp_path)])
    assert found.exit_code == 0, found.output
    page = " ".join((tmp_path / "index.html").read_text(encoding="utf-8").split())
    for words in (
        "1 households were left out: more than 20% of the readings of a meter are missing",
        "20 missing readings of the others were filled",
        "Forecasts know temperature and irradiance",
        "homes feed in, and the demand of a zone is its net load",
        "% of the mean import, which is the demand where it is above zero",
        "the noise is that of twice the bound",
        "forecast from exact sums of the file",
        "At 201 homes, the size of the file, the private price is",
        f"the machines cost {1320 / 201:.3f} EUR",
        "murmurate plan may say otherwise for the same homes",
    ):
        assert words in page, words
    assert "public forecast" not in page
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    size, own = results["sizes"]
    assert (size["homes"], own["homes"], own["zones"]) == (100, 201, 1)
    (promise,) = size["promises"]
    assert promise["export_bound_wh"] == promise["bound_wh"] > 0
    assert (size["running_cost"], results["source"]["left_out"], results["source"]["filled"]) == (13.2, 1, 20)
    assert {"forecast from exact sums of the file"} < {one["way"] for one in size["ways"]}
    late = ["start,temperature_c", *(row.rpartition(",")[0] for row in rows[1:])]
    (tmp_path / "weather.csv").write_text("\n".join(late), encoding="utf-8")
    refused = CliRunner().invoke(app, command)
    assert "must cover every interval of the readings" in str(refused.exception)


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
    table[: 8 * DAY, 211] = np.nan  # of household 3: it is left out
    table[DAY : 8 * DAY, 6] = np.nan  # of household 6, less than a fifth: it stays
    found = read_households(write_days(tmp_path / "r.parquet", table, household=[f"home {n}" for n in owner]))
    assert (found.days, found.households, found.left_out, found.first_day) == (37, 209, 1, FIRST_DAY)
    assert (found.filled, found.is_by_meter, found.below_zero) == (1 + 7 * DAY, False, 0)
    assert found.silent.sum(axis=0)[[0, 5]].tolist() == [1, 7 * DAY]  # a household without one of its meters
    assert (found.silent.sum(), found.silent[100, 0], found.silent[DAY, 5]) == (1 + 7 * DAY, True, True)
    expected = np.delete(energy_wh, 3, axis=1).astype(np.float32)
    same_time = np.delete(part[100 % DAY :: DAY, 0], 1)
    expected[100, 0] = table[100, 0] + same_time.mean(dtype=np.float32)
    kept = ~found.silent | (np.arange(209) == 0)
    assert found.energy_wh[kept] == pytest.approx(expected[kept], rel=1e-5)


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


def test_a_reading_below_zero_counts_as_it_is_and_is_counted(tmp_path):
    table = np.full((DAY * 36, 400), 7.0)
    table[3, :3] = (-50, 7, -20)
    owner = [f"home {n // 2}" for n in range(400)]
    found = read_households(write_days(tmp_path / "r.parquet", table, household=owner))
    assert found.below_zero == 2
    assert found.energy_wh[3].tolist() == [-43, -13] + [14] * 198
    assert (found.energy_wh[4:] == 14).all()


def test_a_foreign_file_is_refused_with_the_command_that_imports_it(tmp_path):
    (tmp_path / "r.csv").write_text("meter,kwh\n", encoding="utf-8")
    with pytest.raises(
        ReadingError, match=r"r.csv is not a Parquet file: must be .*murmurate readings import .*r.csv --out"
    ):
        read_households(tmp_path / "r.csv")


def test_zones_larger_than_the_file_are_refused():
    assert choose_sizes(210, (50, 210)) == (50, 210)
    assert choose_sizes(210, (50,)) == (50, 210)
    with pytest.raises(ReadingError, match="must be at most 210"):
        choose_sizes(210, (100, 300))
