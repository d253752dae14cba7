"""A public forecast: from a sample, a history or a profile, through its file, to the range of a zone."""

import json
from functools import cache

import numpy as np
import pytest
from tests.support.sample_forecasts import sample_forecast

from murmurate.errors import ModelError, MurmurateError
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.corrections import USUAL_SPREAD
from murmurate.prediction.forecast import Weather, fit_forecast
from murmurate.prediction.forecast_sources import forecast_from_history, forecast_from_table
from murmurate.prediction.public_forecast import SAMPLE_DELTA, PublicForecast

SLOTS, DAYS, HOMES = 24, 42, 60
WHEN = locate_intervals(np.arange(20_000 * SLOTS, (20_000 + DAYS) * SLOTS), SLOTS, 60)
RNG = np.random.default_rng(5)
COLD = 8 + 5 * np.sin(np.arange(DAYS * SLOTS) / 100)
WEATHER = Weather(15 - COLD)
LEVEL = (300 + 150 * np.sin(WHEN.slot * 2 * np.pi / SLOTS)) * (1 + 0.2 * (WHEN.day_type == 2)) + 9 * COLD
READINGS = np.rint(RNG.gamma(1.5, LEVEL[:, None] / 1.5, (DAYS * SLOTS, HOMES))).astype(np.int64)


@cache
def from_sample():
    return sample_forecast(READINGS, WHEN, WEATHER, time_zone="Europe/Zurich")


def test_a_forecast_of_a_sample_knows_demand_heat_and_what_is_cut_off():
    made = from_sample()
    expected = made.demand.demand_wh(WHEN, WEATHER)
    assert np.sqrt(np.mean((expected / LEVEL - 1) ** 2)) < 0.08
    assert made.demand.heat_wh_per_k.mean() == pytest.approx(9, abs=3)
    assert made.sample == (HOMES, 10**6, SAMPLE_DELTA)
    shown = [made.with_range(bound).clip_demand().demand_wh(WHEN, WEATHER).mean() for bound in (300, 650, 1000, 10**6)]
    clipped = [np.minimum(READINGS, bound).mean() for bound in (300, 650, 1000, 10**6)]
    assert np.allclose(shown, clipped, rtol=0.03)
    assert made.below == ((0, 1.0),)


def test_a_month_that_begins_after_the_fit_does_not_spoil_the_error():
    """Until it was seen on some days, a month is as the others: a fit to its first hours would be far off."""
    for days in (28, 29, 30, 31, 32, 34):
        kept = slice(0, days * SLOTS)
        made = fit_forecast(LEVEL[kept], WHEN[kept])
        expected = made.demand_wh(WHEN[days * SLOTS :])
        assert np.abs(expected / LEVEL[days * SLOTS :] - 1).max() < 0.6


def test_a_history_of_demand_gives_the_forecast_of_one_household():
    made = forecast_from_history(
        READINGS.sum(axis=1), WHEN, WEATHER, households=HOMES, source="a history", time_zone="UTC"
    )
    assert made.demand.mean_wh.mean() == pytest.approx(READINGS.mean(), rel=0.05)
    assert made.spread == USUAL_SPREAD
    assert made.with_range(700) is made


def test_a_profile_becomes_the_forecast_nearest_to_it():
    month, day_type, slot = np.indices((12, 3, SLOTS))
    table = 100.0 + 10 * day_type + slot + 5 * month * (slot // 6)
    made = forecast_from_table(table, source="a profile", time_zone="UTC")
    assert np.abs(made.demand.mean_wh / table - 1).max() < 1e-3
    assert made.error is None
    with pytest.raises(ModelError, match="12 months"):
        forecast_from_table(table[:11], source="a profile", time_zone="UTC")


def test_a_file_gives_the_same_forecast_and_the_same_file():
    made = from_sample()
    again = PublicForecast.from_json(made.to_json())
    assert again.to_json() == made.to_json()
    assert np.allclose(again.demand.mean_wh, made.demand.mean_wh, atol=0.01)
    assert PublicForecast.from_document(json.loads(made.to_json())).to_json() == made.to_json()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"murmurate_forecast": 1}, "of version 1"),
        ({"demand": {}}, "unreadable"),
        ({"above": []}, "both sides of a range"),
        ({"below": []}, "both sides of a range"),
        ({"below": [{"export_bound_wh": 0, "sun_share": 1.5}]}, "shares of the sun"),
        ({"sample": None}, "made from a sample without an epsilon"),
        ({"sample": {"households": 60, "epsilon": "0", "delta": "1e-6"}}, "that each of them has spent"),
        ({"sample": {"households": 60, "epsilon": "1", "delta": "0"}}, "that each of them has spent"),
        ({"sample": {"households": 60, "epsilon": "1"}}, "unreadable"),
        ({"sample": {"households": float("inf"), "epsilon": "1", "delta": "1e-6"}}, "unreadable"),
        ({"sample": [60, "1"]}, "unreadable"),
        ({"spread": [0.1, -1, 1]}, "0 or more"),
        ({"spread": "wide"}, "unreadable"),
        ({"holidays": ["tomorrow"]}, "unreadable"),
    ],
)
def test_what_is_no_forecast_is_refused(change, says):
    document = json.loads(from_sample().to_json()) | change
    with pytest.raises(MurmurateError, match=says):
        PublicForecast.from_json(json.dumps(document))
    with pytest.raises(ModelError, match="not JSON"):
        PublicForecast.from_json("{")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12, -1e12])
def test_numbers_that_are_none_are_refused(value):
    document = json.loads(from_sample().to_json())
    document["demand"]["day_wh"][0][0] = value
    with pytest.raises(ModelError, match="too large"):
        PublicForecast.from_document(document)


def test_a_bound_below_all_that_the_sample_knows_is_refused():
    with pytest.raises(ModelError, match="must be 300 or more"):
        from_sample().with_range(200)
