"""A forecast from noised demand: near the demand behind the noise, and its error is that beside the demand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.errors import ModelError
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast import USUAL_WEATHER, fit_forecasts, forecast_unseen
from murmurate.prediction.forecast_sources import (
    NoisedHistory,
    forecast_from_history,
    forecast_from_noised_history,
    measure_noised_error,
)

SLOTS, HOMES = 24, 512  # a power of two: shares are exact
NAMES = {"source": "a made log", "time_zone": "UTC"}


def calendar(days):
    return locate_intervals(np.arange(20_000 * SLOTS, (20_000 + days) * SLOTS), SLOTS)


def level_wh(when):
    """What is usual: a day, more on Sundays, and a season."""
    season = 1 + 0.1 * np.cos(when.month * np.pi / 6)
    return (300 + 120 * np.sin(when.slot * 2 * np.pi / SLOTS)) * (1 + 0.2 * (when.day_type == 2)) * season


def deviating(when, seed, size=0.05):
    """Demand that deviates for hours."""
    rng, keep, x = np.random.default_rng(seed), np.exp(-1 / 6), 0.0
    deviation = np.zeros(len(when))
    for at, fresh in enumerate(rng.normal(size=len(when))):
        x = keep * x + size * np.sqrt(1 - keep**2) * fresh
        deviation[at] = x
    return level_wh(when) * (1 + deviation)


def noised(demand_wh, relative, seed):
    """The history with Laplace noise whose standard deviation is a share of the mean demand."""
    sd = relative * demand_wh.mean()
    noise = np.random.default_rng(1000 + seed).laplace(0, sd / 2**0.5, len(demand_wh))
    return NoisedHistory(demand_wh=demand_wh + noise, noise_variance=np.full(len(noise), sd**2), households=HOMES)


@pytest.mark.slow
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), factor=st.floats(0.01, 1000))
def test_without_noise_and_gaps_it_is_the_forecast_of_a_history(seed, factor):
    when = calendar(40)
    demand = factor * deviating(when, seed)
    history = NoisedHistory(demand_wh=demand, noise_variance=np.zeros(len(when)), households=HOMES)
    made, error = forecast_from_noised_history(history, when, **NAMES)
    assert (
        made.to_json()
        == forecast_from_history(HOMES * demand, when, USUAL_WEATHER, households=HOMES, **NAMES).to_json()
    )
    assert error.measured
    assert error.error == pytest.approx(error.with_noise)


@pytest.mark.parametrize(("relative", "tolerance"), [(0.02, 0.003), (0.1, 0.01), (0.3, 0.04)])
def test_however_large_the_noise_the_error_is_that_beside_the_demand(relative, tolerance):
    when = calendar(98)
    demand = deviating(when, 1)
    history = noised(demand, relative, 1)
    expected = forecast_unseen(history.demand_wh[:, None], when)[:, 0]
    shown, true = (values[-len(expected) :] / expected - 1 for values in (history.demand_wh, demand))
    noise = history.noise_variance[-len(expected) :] / expected**2
    error = measure_noised_error(shown, noise, SLOTS)
    assert error.error == pytest.approx(np.sqrt(np.mean(true**2)), abs=tolerance)
    assert error.with_noise > 0.95 * np.hypot(error.error, relative)
    if error.measured:
        assert error.with_noise == pytest.approx(np.hypot(error.error, error.noise))


def test_the_forecast_is_near_the_demand_behind_the_noise():
    when = calendar(63)
    made, error = forecast_from_noised_history(noised(deviating(when, 2), 0.1, 2), when, **NAMES)
    shown = made.demand.demand_wh(when)
    assert np.sqrt(np.mean((shown / level_wh(when) - 1) ** 2)) < 0.07
    assert shown.mean() == pytest.approx(level_wh(when).mean(), rel=0.02)
    assert made.error == error.error < 0.1 < error.with_noise


def test_negative_releases_stay_in_so_that_the_mean_is_right():
    when = calendar(84)
    demand = deviating(when, 1)
    history = noised(demand, 1.0, 1)
    assert (history.demand_wh < 0).mean() > 0.1
    fitted = [
        fit_forecasts(values[:, None], when)[0] for values in (history.demand_wh, np.maximum(history.demand_wh, 0))
    ]
    kept, cut = (forecast.demand_wh(when).mean() / demand.mean() for forecast in fitted)
    assert kept == pytest.approx(1, abs=0.03)
    assert cut > 1.06


def test_an_error_that_the_noise_hides_is_the_largest_plausible_one():
    """Residuals of noise alone: the estimate is about zero, and a forecast without any error would be a lie."""
    rng, count, sd = np.random.default_rng(2), 30 * SLOTS, 0.5
    hidden = 0
    for _ in range(20):
        error = measure_noised_error(rng.laplace(0, sd / 2**0.5, count), np.full(count, sd**2), SLOTS)
        hidden += not error.measured
        if not error.measured:
            assert 0.05 < error.error < 0.35
    assert hidden >= 17
    seen = measure_noised_error(rng.laplace(0, sd / 2**0.5, count) + 0.4, np.full(count, sd**2), SLOTS)
    assert seen.measured
    assert seen.error == pytest.approx(0.4, abs=0.1)


def test_where_the_noise_hides_the_error_the_forecast_says_the_largest_plausible_one():
    when = calendar(36)
    history = noised(deviating(when, 3, size=0.001), 0.9, 6)
    made, error = forecast_from_noised_history(history, when, **NAMES)
    assert not error.measured
    assert made.error == error.error > 0


@pytest.mark.slow
@settings(max_examples=4)
@given(share=st.floats(0.0, 0.4), seed=st.integers(0, 10**6))
def test_intervals_without_a_measurement_are_left_out(share, seed):
    when = calendar(70)
    demand = deviating(when, seed)
    missing = np.random.default_rng(seed).uniform(size=len(when)) < share
    history = NoisedHistory(
        demand_wh=np.where(missing, np.nan, demand), noise_variance=np.zeros(len(when)), households=HOMES
    )
    made, error = forecast_from_noised_history(history, when, **NAMES)
    assert np.sqrt(np.mean((made.demand.demand_wh(when) / level_wh(when) - 1) ** 2)) < 0.06
    assert 0.03 < error.error < 0.11


def test_a_type_of_day_that_was_not_measured_is_as_the_others():
    when = calendar(60)
    demand = np.where(when.day_type == 1, np.nan, level_wh(when))
    (made,) = fit_forecasts(demand[:, None], when)
    saturday = made.demand_wh(when)[when.day_type == 1]
    assert np.abs(saturday / level_wh(when)[when.day_type == 1] - 1).max() < 0.2


def test_a_gap_does_not_count_towards_the_five_weeks():
    when = calendar(50)
    demand = level_wh(when).astype(float)
    demand[10 * SLOTS : 26 * SLOTS] = np.nan
    history = NoisedHistory(demand_wh=demand, noise_variance=np.zeros(len(when)), households=HOMES)
    with pytest.raises(ModelError, match=r"816 intervals \(34.0 days\): must be 840 or more: five weeks"):
        forecast_from_noised_history(history, when, **NAMES)


def test_noise_without_a_demand_is_refused():
    when = calendar(40)
    noise = np.random.default_rng(1).normal(-5, 1, len(when))
    history = NoisedHistory(demand_wh=noise, noise_variance=np.full(len(when), 25.0), households=HOMES)
    with pytest.raises(ModelError, match="larger than the demand"):
        forecast_from_noised_history(history, when, **NAMES)
