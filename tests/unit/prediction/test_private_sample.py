"""A forecast from a sample: one limited vote a household, noise for a pure epsilon, and nothing else of the sample."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.sample_forecasts import release_sample, sample_forecast

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import (
    RESOLUTIONS,
    SENSOR_BOUNDS_WH,
    SIZES_WH,
    PrivateSample,
    VoteLayout,
    cast_votes,
    choose_layout,
    release_votes,
)
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.privacy.noise import SeededNoise, laplace_log_pmf

SLOTS = 4
EPSILON = Fraction(1)


def located(slots=SLOTS, days=8):
    return locate_intervals(np.arange(20_000 * slots, (20_000 + days) * slots), slots, 0)


def layout_of(day_types=2, periods=4, max_day_wh=20_000, slots=SLOTS, days=8, cold=True):
    temperature_c = 10 - 3 * np.sin(np.arange(days * slots) / 7) if cold else None
    when = located(slots, days)
    return VoteLayout(
        when=when, temperature_c=temperature_c, max_day_wh=max_day_wh, day_types=day_types, periods=periods
    )


LAYOUTS = st.builds(
    layout_of,
    day_types=st.integers(1, 2),
    periods=st.integers(1, 4),
    max_day_wh=st.integers(20, 30_000),
    cold=st.booleans(),
)
READINGS = arrays.arrays(np.int64, (8 * SLOTS, 3), elements=st.integers(0, 10**9) | st.integers(0, 500))


@pytest.mark.slow
@given(LAYOUTS, READINGS, READINGS, st.integers(0, 2), st.fractions(Fraction(1, 100), 100))
def test_replacing_a_household_by_any_readings_moves_the_votes_by_what_the_noise_hides(
    layout, readings, others, replaced, epsilon
):
    changed = readings.copy()
    changed[:, replaced] = others[:, replaced]
    before, after = cast_votes(readings, layout), cast_votes(changed, layout)
    apart = np.abs(after.sum(axis=0) - before.sum(axis=0))
    first = 0
    for part in layout.parts:
        assert apart[first : first + part.entries].sum() <= part.distance
        first += part.entries
    assert first == len(apart)
    assert sum(part.share for part in layout.parts) == 1
    scales = layout.noise_scales(epsilon)
    assert sum(Fraction(int(a)) / Fraction(float(b)) for a, b in zip(apart, scales, strict=True)) <= epsilon
    kept = [household for household in range(3) if household != replaced]
    assert np.array_equal(before[kept], after[kept])


@pytest.mark.parametrize("day_types", [1, 2])
def test_in_a_tiny_world_no_output_tells_more_than_epsilon_and_some_nearly_that_much(day_types):
    """All households whose days are alike, with readings of three sizes; all pairs of them; exact probabilities."""
    layout = layout_of(day_types=day_types, max_day_wh=100)
    patterns = np.array(list(product((0, 30, 20_000), repeat=SLOTS)))
    cold_only = np.where(layout.temperature_c < 10, 40, 0)[:, None]
    votes = cast_votes(np.concatenate([np.tile(patterns.T, (8, 1)), cold_only], axis=1), layout)
    scales = layout.noise_scales(EPSILON)
    told = (np.abs(votes[:, None] - votes[None]) / scales).sum(axis=2)
    one, other = np.unravel_index(told.argmax(), told.shape)
    outputs = np.arange(-2000, 2001)
    ratio = [
        (
            laplace_log_pmf(outputs - votes[one, entry], scale) - laplace_log_pmf(outputs - votes[other, entry], scale)
        ).max()
        for entry, scale in enumerate(scales.tolist())
    ]
    assert 0.7 < sum(ratio) <= 1 + 1e-9


@pytest.mark.slow
def test_a_guess_about_one_household_is_right_no_more_often_than_epsilon_allows():
    """Everything else of the sample is known; it was right always while a forecast held means of the sample."""
    layout = layout_of(slots=24, days=35, periods=24, cold=False)
    rng = np.random.default_rng(5)
    others = rng.gamma(1.2, 300, (len(layout.when), 60)).astype(np.int64)
    evening = np.where(layout.when.slot >= 18, 3000, 25)
    votes = [
        cast_votes(np.column_stack([others, its]), layout)
        for its in (evening, evening.reshape(-1, 24)[:, ::-1].ravel())
    ]
    scales, rounds, right = layout.noise_scales(EPSILON), 400, 0
    for number in range(rounds):
        truth = number % 2
        made = release_votes(votes[truth], layout, epsilon=EPSILON, noise=SeededNoise(number))
        fits = [-(np.abs(made.mean_vote * 61 - each.sum(axis=0)) / scales).sum() for each in votes]
        right += int(np.argmax(fits)) == truth
    allowed = rounds * np.e / (1 + np.e)
    assert rounds / 2 < right <= allowed + 3 * np.sqrt(rounds) / 2


def test_a_forecast_holds_public_bounds_and_no_reading():
    layout = layout_of(slots=24, days=8, periods=8, cold=False)
    readings = np.full((len(layout.when), 50), 300)
    readings[77, 3] = 7431
    made = sample_forecast(readings, layout.when)
    assert tuple(sensor.bound_wh for sensor in made.sensors) == SENSOR_BOUNDS_WH
    assert "7431" not in made.to_json()
    assert made.error is None


def test_with_little_noise_the_forecast_is_that_of_the_sample():
    when = located(24, 42)
    rng, cold = np.random.default_rng(3), 6 + 4 * np.sin(np.arange(len(when)) // 24 / 5)
    usual = (300 + 150 * np.sin(when.slot * np.pi / 12)) * (1 + 0.2 * (when.day_type > 0))
    level = usual + 8 * cold
    readings = rng.gamma(0.8, level[:, None] / 0.8, (len(when), 400)).astype(np.int64)
    made = sample_forecast(readings, when, 15 - cold)
    assert np.sqrt(np.mean((made.demand.demand_wh(when, 15 - cold) / level - 1) ** 2)) < 0.04
    assert made.demand.heat_wh_per_k.mean() == pytest.approx(8, abs=1.5)
    assert made.volatility.own == pytest.approx((0.8 / 0.8**2 * 0.8) ** 0.5, abs=0.2)
    for bound_wh in (300, 700, 2100):
        sensor = made.find_sensor(bound_wh)
        clipped, covariance = (
            np.minimum(readings, bound_wh),
            np.cov(np.minimum(readings, bound_wh).ravel(), readings.ravel()),
        )
        assert sensor.forecast.demand_wh(when, 15 - cold).mean() == pytest.approx(clipped.mean(), rel=0.03)
        response = np.where(readings < bound_wh, readings, 0).mean() / clipped.mean()
        assert sensor.response.mean() == pytest.approx(response, abs=0.05)
        assert sensor.own.mean() == pytest.approx(covariance[0, 1] / covariance[1, 1], abs=0.06)


VOTES = arrays.arrays(np.float64, 8 * 2 + len(SIZES_WH) + 1, elements=st.floats(-1e5, 1e5))


@pytest.mark.slow
@given(VOTES)
def test_whatever_the_noise_is_the_forecast_is_positive_and_a_higher_bound_shows_more(mean_vote):
    layout = layout_of(slots=24, periods=8)
    sample = PrivateSample(layout=layout, households=10, epsilon=EPSILON, mean_vote=mean_vote)
    made = forecast_from_sample(sample, spent=Fraction(5, 2), source="a made sample", time_zone="UTC")
    again = PublicForecast.from_json(made.to_json())
    assert again.sample == (10, Fraction(5, 2))
    expected = np.array([sensor.forecast.demand_wh(layout.when, layout.temperature_c) for sensor in again.sensors])
    assert (expected > 0).all()
    shown = np.array([sensor.forecast.mean_wh for sensor in made.sensors])
    assert (np.diff(shown[:, 0, 0], axis=0) >= -1e-9).all()
    assert np.isfinite([sensor.own for sensor in again.sensors]).all()


def test_more_households_or_a_larger_epsilon_give_a_finer_layout_and_too_few_are_refused():
    when, chosen = located(24), []
    needed = [
        VoteLayout(when=when, temperature_c=None, max_day_wh=20_000, day_types=types, periods=periods)
        for types, periods in RESOLUTIONS
    ]
    needed = [layout.needed_households(EPSILON) for layout in needed]
    assert needed == sorted(needed, reverse=True)
    for households in needed:
        layout = choose_layout(when, None, max_day_wh=20_000, epsilon=EPSILON, households=households)
        chosen.append((layout.day_types, layout.periods))
        twice = choose_layout(when, None, max_day_wh=20_000, epsilon=2 * EPSILON, households=households)
        assert twice.cells >= layout.cells
    assert tuple(chosen) == RESOLUTIONS
    with pytest.raises(
        PrivacyError, match=f"households is 1: must be {needed[-1]} or more at epsilon 1; nothing was spent"
    ):
        choose_layout(when, None, max_day_wh=20_000, epsilon=EPSILON, households=1)


@pytest.mark.slow
def test_noise_of_a_period_is_what_the_layout_promises():
    when = located(24)
    readings = np.full((len(when), 700), 10_000 // 24)
    released = [release_sample(readings, when, epsilon=EPSILON, max_day_wh=20_000, seed=seed) for seed in range(200)]
    cells = np.array([each.mean_vote[: each.layout.cells] for each in released])
    noise = (cells / cells.mean() - 1).std()
    assert noise == pytest.approx(released[0].period_noise, rel=0.15)
    assert noise < 0.07


@pytest.mark.parametrize(
    ("choices", "error", "says"),
    [
        ({"days": 6}, ModelError, "must be 7 days or more"),
        ({"max_day_wh": 19}, ModelError, "max-day-kwh is 0.019"),
    ],
)
def test_what_cannot_be_asked_is_refused(choices, error, says):
    with pytest.raises(error, match=says):
        layout_of(**choices)
    for epsilon in (Fraction(0), Fraction(1, 10**12)):
        with pytest.raises(PrivacyError, match="epsilon"):
            layout_of().noise_scales(epsilon)
    with pytest.raises(ModelError, match="must be 360 or less"):
        choose_layout(located(2), None, max_day_wh=20_000, epsilon=EPSILON, households=10**6)
