"""The test that stands between `exact` and an operator's data: its size, and its power on autocorrelated ranks."""

import numpy as np
import pytest
from scipy.stats import norm

from murmurate.errors import ModelError
from murmurate.household.independence import SIGNIFICANCE, independence_test

PERIOD = np.repeat([0, 1], 12)


def readings(correlation, intervals, homes, seed):
    """Each home uses a quantile of its own law by state and time of day; its rank is an AR(1) process."""
    rng = np.random.default_rng(seed)
    occupied = rng.random((intervals, homes)) < 0.5
    z = np.zeros((intervals, homes))
    z[0] = rng.standard_normal(homes)
    for t in range(1, intervals):
        z[t] = correlation * z[t - 1] + np.sqrt(1 - correlation**2) * rng.standard_normal(homes)
    size = rng.integers(200, 3000, homes) * np.where(occupied, 1.0, 0.5) * (1 + np.resize(PERIOD, intervals)[:, None])
    return (norm.cdf(z) * size).astype(np.int64), occupied


def test_independent_readings_pass_however_different_homes_and_hours_are():
    failed = sum(not independence_test(*readings(0.0, 240, 12, seed), PERIOD).passed for seed in range(60))
    assert failed <= 2  # expected 60 x 0.001


@pytest.mark.parametrize("correlation", [0.1, 0.3, 0.9])
def test_memory_is_seen_where_the_test_says_it_would_be(correlation):
    results = [independence_test(*readings(correlation, 480, 20, seed), PERIOD) for seed in range(10)]
    assert results[0].detectable < 0.1
    assert all(not result.passed for result in results)


def test_the_stated_power_is_the_power():
    """A rank correlation of the detectable size is seen in 99 %; of a third of it, rarely."""
    known = independence_test(*readings(0.0, 200, 10, 1), PERIOD).detectable
    seen = [not independence_test(*readings(1.08 * known, 200, 10, seed), PERIOD).passed for seed in range(60)]
    weak = [not independence_test(*readings(known / 3, 200, 10, seed), PERIOD).passed for seed in range(30)]
    assert np.mean(seen) > 0.9
    assert np.mean(weak) < 0.3


def test_memory_beyond_one_interval_is_seen_too():
    energy_wh, occupied = readings(0.0, 480, 20, 3)
    energy_wh[3:] = np.where(occupied[3:] == occupied[:-3], energy_wh[:-3], energy_wh[3:])
    assert not independence_test(energy_wh, occupied, PERIOD).passed


def test_the_significance_is_shared_by_the_lags():
    one, four = (independence_test(*readings(0.0, 200, 5, 2), PERIOD, lags=lags).critical_z for lags in (1, 4))
    assert (one, four) == pytest.approx((norm.isf(SIGNIFICANCE / 2), norm.isf(SIGNIFICANCE / 8)))


def test_too_little_data_is_refused():
    with pytest.raises(ModelError, match=r"must be \[interval, household\] with occupancy, over 40 intervals"):
        independence_test(*readings(0.0, 30, 5, 2), PERIOD)
