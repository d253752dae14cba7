"""The filter is as good as it says, follows what it is built for, and computes the same bits everywhere."""

import hashlib

import numpy as np
import pytest

from murmurate.prediction.forecast import CalendarForecast
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import (
    COMMON,
    OF_DEMAND,
    OWN,
    SENSOR,
    STATES,
    StructuralFilter,
    Volatility,
    demand_loadings,
    fit_common,
    harmonics,
    make_filter,
    state_deviations,
    weigh,
)

SLOTS, LEAD, HOMES = 96, 2, 1000
EXPECTED = HOMES * (100 + 40 * np.sin(np.arange(SLOTS) * 2 * np.pi / SLOTS))
FORECAST = CalendarForecast.of_day(0.9 * EXPECTED / HOMES)
SENSOR_500 = ClippedSensor(
    500, FORECAST, np.full(SLOTS, 0.9), np.full(SLOTS, 0.6), np.full(SLOTS, 900.0), (0.005, 0.005)
)
VOLATILITY = Volatility((0.03, 0.03, 0.03), 1.3)
STATE_SD = state_deviations(VOLATILITY, HOMES, SENSOR_500)
COLD = (6.0, 12.0)


def filter_of(noise_sd_wh, pool_variance):
    expected = 0.9 * EXPECTED
    return make_filter(
        VOLATILITY,
        SENSOR_500,
        EXPECTED,
        expected,
        households=HOMES,
        noise_sd_wh=noise_sd_wh,
        pool_variance=pool_variance,
        cold_k=COLD,
        lead=LEAD,
    )


def play(its_filter, noise_sd_wh, pool_sd, *, zones=40, days=60, seed=1):
    """Draw states and measurements from the model itself. Returns the relative error after a warm-up."""
    rng = np.random.default_rng(seed)
    keep, sd = its_filter.keep[:, None], STATE_SD[:, None]
    truth = rng.normal(size=(STATES, zones)) * sd
    states, wrong, predicted = np.zeros((STATES, zones)), [], {}
    gain = 0.9 * 0.9 * EXPECTED
    noise = np.sqrt((noise_sd_wh / gain) ** 2 + HOMES * 900.0 / gain**2)
    for t in range(days * SLOTS):
        slot, cold = t % SLOTS, COLD[t // SLOTS % 2]
        truth = truth * keep + rng.normal(size=truth.shape) * sd * np.sqrt(1 - keep**2)
        loading = demand_loadings(slot, SLOTS, cold).copy()
        if t in predicted:
            wrong.append((predicted.pop(t) - (1 + weigh(truth, loading))) * EXPECTED[slot])
        seen = loading.copy()
        seen[OWN], seen[SENSOR] = its_filter.own_loading[slot], 1.0
        measured = weigh(truth, seen) + rng.normal(size=zones) * noise[slot]
        states = its_filter.step(states, slot, cold, measured, np.ones(zones, bool))
        later = t + LEAD
        if t > 30 * SLOTS:
            predicted[later] = its_filter.predict(states, later % SLOTS, COLD[later // SLOTS % 2], LEAD)
        if pool_sd is not None:
            loading[COMMON.stop :] = 0
            shown = weigh(truth, loading) + rng.normal(size=zones) * pool_sd
            states = its_filter.pool(states, slot, cold, shown)
    return float(np.sqrt(np.mean(np.square(wrong)) / np.mean(EXPECTED**2)))


@pytest.mark.slow
@pytest.mark.parametrize(("noise_sd_wh", "pool_sd"), [(21_650.0, 0.02), (21_650.0, None), (100.0, None)])
def test_the_error_is_the_one_that_the_filter_says(noise_sd_wh, pool_sd):
    its_filter = filter_of(noise_sd_wh, None if pool_sd is None else pool_sd**2)
    assert play(its_filter, noise_sd_wh, pool_sd) == pytest.approx(its_filter.predicted_error, rel=0.06)


@pytest.mark.slow
def test_more_knowledge_is_never_worse():
    said = [
        filter_of(noise, pool).predicted_error
        for noise, pool in ((100.0, 1e-6), (2_000.0, 1e-4), (21_650.0, 1e-3), (21_650.0, None))
    ]
    assert said == sorted(said)
    unknown = filter_of(1e12, None).predicted_error
    loadings = np.array([[demand_loadings(slot, SLOTS, cold) for slot in range(SLOTS)] for cold in COLD])
    all_of_it = ((loadings * STATE_SD) ** 2)[:, :, OF_DEMAND].sum(axis=2).mean(axis=0)
    assert unknown == pytest.approx(np.sqrt(np.average(all_of_it, weights=EXPECTED**2)), rel=1e-6)


@pytest.mark.slow
def test_without_a_usable_measurement_the_states_fade():
    its_filter = filter_of(21_650.0, None)
    states = np.full((STATES, 2), 0.05)
    after = its_filter.step(states, 10, 8.0, np.array([0.9, -0.9]), np.array([False, False]))
    assert (after == states * its_filter.keep[:, None]).all()


@pytest.mark.slow
def test_a_measurement_far_off_moves_no_state_beyond_its_limit_and_demand_stays_positive():
    its_filter = filter_of(100.0, None)
    states = np.zeros((STATES, 2))
    for slot in range(50):
        states = its_filter.step(states, slot, 8.0, np.array([1e9, -1e9]), np.ones(2, bool))
    assert np.abs(states).max() <= 3
    assert (its_filter.predict(states, 52, 8.0, LEAD) > 0).all()


def test_the_same_bits_on_every_machine():
    """A golden digest: states and predictions of a day, from gains and measurements that are quotients."""
    numbers = np.arange(STATES)
    its_filter = StructuralFilter(
        keep=1 - (numbers + 1) / 100,
        zone_gain=(np.arange(24)[:, None] + numbers + 1) / 997,
        pool_gain=(numbers < COMMON.stop) * (np.arange(24)[:, None] + 3) / 331,
        own_loading=1 + np.arange(SLOTS) / 1000,
        predicted_error=0.0,
    )
    states, predicted = np.zeros((STATES, 3)), []
    for t in range(SLOTS):
        measured = np.array([(t * 37 % 101 - 50) / 400, (t * 53 % 89 - 44) / 300, 0.05])
        states = its_filter.step(states, t, 4 + t / 16, measured, np.array([True, t % 3 > 0, True]))
        states = its_filter.pool(states, t, 4 + t / 16, (t * 29 % 61 - 30) / 600)
        predicted.append(its_filter.predict(states, (t + 2) % SLOTS, 4 + t / 16, LEAD))
    digest = hashlib.sha256(states.astype("<f8").tobytes() + np.array(predicted).astype("<f8").tobytes())
    assert digest.hexdigest()[:16] == "65c9615554539b04"


def test_harmonics_are_cosines_and_sines():
    for slots in (24, 48, 96):
        for slot in range(slots):
            angle = 2 * np.pi * slot / slots * np.array([1, 2, 3])
            assert harmonics(slot, slots) == pytest.approx(np.stack([np.cos(angle), np.sin(angle)], axis=1).ravel())


@pytest.mark.slow
def test_the_common_states_are_found_in_residuals():
    rng = np.random.default_rng(3)
    hours, sds = np.array([4.0, 36.0, 240.0]), np.array([0.03, 0.0, 0.04])
    keep, found = np.exp(-0.25 / hours), []
    for _ in range(8):
        states, residuals = rng.normal(size=3) * sds, []
        for _ in range(60 * SLOTS):
            states = keep * states + rng.normal(size=3) * sds * np.sqrt(1 - keep**2)
            residuals.append(states.sum())
        found.append(fit_common(np.array(residuals), own_sd=0.0))
    fast, day, slow = np.mean(found, axis=0)
    assert fast == pytest.approx(0.03, abs=0.006)
    assert np.hypot(day, slow) == pytest.approx(0.04, abs=0.015)
