"""The filter is the best linear use of public numbers; its claimed errors are those that a simulation shows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murmurate.errors import TariffError
from murmurate.pricing.forecast import Forecast, make_kalman_filter, profile_error_bias

DAY = 8


@st.composite
def forecasts(draw):
    numbers = lambda low, high: np.array(draw(st.lists(st.floats(low, high), min_size=DAY, max_size=DAY)))  # noqa: E731
    variance = numbers(1.0, 4.0)
    carry = np.minimum(numbers(0.0, 0.95), 0.999 * np.sqrt(variance / np.roll(variance, 1)))
    return Forecast(profile_wh=numbers(50, 90), variance=variance, ar_coefficient=carry)


def strayings(forecast, days, rng):
    """Demands minus profile, drawn by the forecast's own law [day, interval]."""
    x, found = rng.normal(0, np.sqrt(forecast.variance[-1])), np.zeros((days, DAY))
    for t in range(days * DAY):
        x = forecast.ar_coefficient[t % DAY] * x + rng.normal(0, np.sqrt(forecast.innovation_variance[t % DAY]))
        found[t // DAY, t % DAY] = x
    return found


@pytest.mark.slow
@settings(max_examples=8)
@given(forecast=forecasts(), noise=st.floats(0.5, 9), seed=st.integers(0, 1000))
def test_the_filter_errs_as_much_as_it_says_and_less_than_both_the_release_and_the_forecast(forecast, noise, seed):
    rng = np.random.default_rng(seed)
    chosen = make_kalman_filter(forecast, np.full(DAY, noise))
    true = strayings(forecast, 1500, rng) + forecast.profile_wh
    noisy = true + rng.normal(0, np.sqrt(noise), true.shape)
    estimates = chosen.estimate_demand(noisy.ravel()).reshape(true.shape)
    seen = np.mean((estimates - true)[10:] ** 2, axis=0)
    assert seen == pytest.approx(chosen.error_variance, rel=0.25)
    assert (chosen.error_variance <= np.minimum(forecast.variance, noise) + 1e-9).all()


@settings(max_examples=8)
@given(forecast=forecasts(), bias=st.floats(-30, 30))
def test_a_wrong_profile_costs_the_bias_that_is_said(forecast, bias):
    """Without noise in the data and with all of it expected: the error of the estimate is the bias alone."""
    chosen = make_kalman_filter(forecast, np.full(DAY, 2.0))
    wrong = bias * np.linspace(0.5, 1.5, DAY)
    estimates = chosen.estimate_demand(np.tile(forecast.profile_wh + wrong, 60)).reshape(60, DAY)
    assert estimates[-1] - forecast.profile_wh - wrong == pytest.approx(profile_error_bias(chosen, wrong), abs=1e-6)


def test_heavy_noise_leaves_the_forecast_and_no_noise_leaves_the_release():
    forecast = Forecast(profile_wh=np.full(DAY, 70.0), variance=np.full(DAY, 2.0), ar_coefficient=np.full(DAY, 0.5))
    assert make_kalman_filter(forecast, np.full(DAY, 1e12)).error_variance == pytest.approx(2.0)
    assert make_kalman_filter(forecast, np.full(DAY, 1e-12)).gain == pytest.approx(1.0)


def test_a_forecast_needs_a_whole_day():
    with pytest.raises(TariffError, match="must have one entry per interval of the day"):
        Forecast(profile_wh=np.ones(3), variance=np.ones(2), ar_coefficient=np.ones(3))
