"""A forecast finds what is there: types of day, months, heating. Its error is that of days it has not seen."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.errors import ModelError
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast import CalendarForecast, Weather, fit_forecast, measure_residuals

DAYS, SLOTS = 90, 24
WHEN = locate_intervals(np.arange(20_000 * SLOTS, (20_000 + DAYS) * SLOTS), SLOTS)
RNG = np.random.default_rng(1)
TEMPERATURE = 5 + 6 * np.sin(np.arange(len(WHEN)) / 50) + RNG.normal(size=len(WHEN))
WEATHER = Weather(TEMPERATURE)
SHAPE = RNG.uniform(50, 150, (3, SLOTS))
MONTH = RNG.uniform(0, 20, 12)
HEAT = RNG.uniform(1, 3, 24)
DEMAND = SHAPE[WHEN.day_type, WHEN.slot] + MONTH[WHEN.month] + HEAT[WHEN.hour] * np.maximum(15 - TEMPERATURE, 0)


def test_what_was_made_by_its_own_rule_is_found_again():
    forecast = fit_forecast(DEMAND, WHEN, WEATHER)
    known = np.bincount(WHEN.month, minlength=12)[WHEN.month] >= 5 * SLOTS  # the last month has just begun
    assert 0.9 < known.mean() < 1
    assert np.allclose(forecast.demand_wh(WHEN, WEATHER)[known], DEMAND[known], rtol=1e-3)
    assert np.allclose(forecast.heat_wh_per_k, HEAT, rtol=1e-2)
    assert np.allclose(forecast.scaled(3).demand_wh(WHEN, WEATHER)[known], 3 * DEMAND[known], rtol=1e-3)
    unseen = measure_residuals(DEMAND[:, None], WHEN, WEATHER)
    assert np.sqrt(np.mean(unseen**2)) < 0.12  # a month that begins is not known yet


def test_without_a_temperature_it_is_taken_as_usual():
    forecast = fit_forecast(DEMAND, WHEN, WEATHER)
    error = forecast.demand_wh(WHEN) / DEMAND - 1
    assert abs(error.mean()) < 0.03
    assert error.std() > 0.01


def test_an_error_is_measured_on_days_that_the_fit_has_not_seen():
    noise = RNG.normal(size=len(WHEN))
    noisy = DEMAND * (1 + 0.1 * noise)
    seen = fit_forecast(noisy, WHEN, WEATHER).demand_wh(WHEN, WEATHER)
    unseen = measure_residuals(np.stack([noisy, 2 * noisy], axis=1), WHEN, WEATHER)
    assert np.sqrt(np.mean((noisy / seen - 1) ** 2)) < 0.1 < np.sqrt(np.mean(unseen**2))
    assert unseen.shape == ((DAYS - 28) * SLOTS, 2)
    assert np.allclose(unseen[:, 0], unseen[:, 1])


def test_months_that_were_never_seen_are_as_the_others():
    forecast = fit_forecast(DEMAND, WHEN, WEATHER)
    missing = sorted(set(range(12)) - set(WHEN.month.tolist()))
    assert missing
    assert np.allclose(forecast.usual_cold_k[missing], forecast.usual_cold_k[sorted(set(WHEN.month))].mean())


@settings(max_examples=30)
@given(factor=st.floats(0.1, 1e6))
def test_a_forecast_is_positive_however_cold_it_is(factor):
    level = CalendarForecast.of_day(np.full(SLOTS, factor))
    forecast = replace(level, heat_wh_per_k=np.full(24, -10 * factor))
    assert (forecast.demand_wh(WHEN, Weather(np.full(len(WHEN), -30.0))) > 0).all()


def test_wrong_shapes_and_short_histories_are_refused():
    with pytest.raises(ModelError, match="12 months"):
        CalendarForecast(np.zeros((3, 24)), np.zeros((11, 24)), np.zeros(24), np.zeros(12), 0.0)
    with pytest.raises(ModelError, match="five weeks"):
        measure_residuals(DEMAND[: 30 * SLOTS, None], WHEN[: 30 * SLOTS])
