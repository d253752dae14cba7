"""A forecast from a sample: one limited vote a household, noise for (epsilon, delta), nothing else of the sample."""

from fractions import Fraction
from itertools import product
from math import e, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.sample_forecasts import release_sample, sample_forecast

from murmurate.errors import ModelError, PrivacyError
from murmurate.prediction import private_sample
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast import USUAL_WEATHER, Weather
from murmurate.prediction.forecast_sources import forecast_from_sample
from murmurate.prediction.private_sample import (
    RESOLUTIONS,
    SAMPLE_BOUNDS_WH,
    PrivateSample,
    cast_votes,
    choose_layout,
    make_layout,
    release_votes,
)
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.privacy.calibration import gaussian_rho
from murmurate.privacy.noise import SeededNoise

SLOTS, DAYS = 4, 8
EPSILON, DELTA = Fraction(1), 1e-6


def located(slots=SLOTS, days=DAYS):
    return locate_intervals(np.arange(20_000 * slots, (20_000 + days) * slots), slots, 0)


def weather_of(when, kinds="cold sun"):
    """Days of another temperature and another sun than the day before."""
    at, days = np.arange(len(when)), np.random.default_rng(2).uniform(0.02, 1, len(when) // when.slots_per_day + 1)
    of_day = days[at // when.slots_per_day]
    sun = np.maximum(800 * np.sin((when.slot / when.slots_per_day - 0.25) * 2 * np.pi), 0) * of_day
    return Weather(16 - 15 * of_day if "cold" in kinds else None, sun if "sun" in kinds else None)


def layout_of(day_types=2, periods=4, usual_day_wh=10_000, slots=SLOTS, days=DAYS, kinds="cold sun"):
    when = located(slots, days)
    weather = weather_of(when, kinds)
    return make_layout(when, weather, usual_day_wh=usual_day_wh, day_types=day_types, periods=periods)


LAYOUTS = st.builds(
    layout_of,
    day_types=st.integers(1, 2),
    periods=st.integers(1, 4),
    usual_day_wh=st.integers(20, 30_000),
    kinds=st.sampled_from(["", "cold", "sun", "cold sun"]),
)
SIZES = st.integers(-(10**9), 10**9) | st.integers(-500, 500)
READINGS = arrays.arrays(np.int64, (DAYS * SLOTS, 3), elements=SIZES)


def split(votes, layout):
    return np.split(votes, np.cumsum([part.entries for part in layout.parts])[:-1])


def check_law(layout, readings, others, epsilon):
    """Replacing the last household moves the sum of votes by what the noise hides. Whole numbers and fractions only."""
    changed = readings.copy()
    changed[:, -1] = others[:, -1]
    before, after = cast_votes(readings, layout), cast_votes(changed, layout)
    moved = after.sum(axis=0) - before.sum(axis=0)
    for part, of_sum, of_one in zip(layout.parts, split(moved, layout), split(after[-1], layout), strict=True):
        assert sum(int(entry) ** 2 for entry in of_one) <= part.limit**2
        assert sum(int(entry) ** 2 for entry in of_sum) <= part.distance_square
    assert sum(part.share for part in layout.parts) == 1
    scales = [Fraction(float(scale)) for scale in layout.noise_scales(epsilon)]
    loss = sum(Fraction(int(entry)) ** 2 / (2 * scale**2) for entry, scale in zip(moved, scales, strict=True))
    assert loss <= Fraction(gaussian_rho(epsilon, DELTA))
    for part, scale in zip(layout.parts, split(np.array(scales), layout), strict=True):
        assert part.distance_square / (2 * scale[0] ** 2) <= part.share * Fraction(gaussian_rho(epsilon, DELTA))
    assert np.array_equal(before[:-1], after[:-1])


@pytest.mark.slow
@given(LAYOUTS, READINGS, READINGS, st.fractions(Fraction(1, 100), 100))
def test_replacing_a_household_by_any_readings_moves_the_votes_by_what_the_noise_hides(
    layout, readings, others, epsilon
):
    check_law(layout, readings, others, epsilon)


OPPOSITE = np.full((DAYS * SLOTS, 3), 9000), np.full((DAYS * SLOTS, 3), -9000)
CUT_OFF = private_sample._cut_off


def cut_off_sum(part_wh, limit):
    """Households are added up before they are cut off."""
    total = CUT_OFF(part_wh.sum(axis=1, keepdims=True), limit * part_wh.shape[1])
    return np.concatenate([np.zeros_like(part_wh[:, 1:], dtype=np.int64), total], axis=1)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("_cut_off", lambda part_wh, _: np.trunc(100 * part_wh).astype(np.int64)),
        ("_cut_off", lambda part_wh, limit: CUT_OFF(part_wh, limit) + 1),
        ("_cut_off", cut_off_sum),
        ("gaussian_rho", lambda epsilon, delta: 4 * gaussian_rho(epsilon, delta)),
    ],
    ids=["not cut off", "rounded up", "cut off after adding", "half of the noise"],
)
def test_a_planted_bug_breaks_the_law(monkeypatch, name, bug):
    check_law(layout_of(), *OPPOSITE, EPSILON)
    monkeypatch.setattr(private_sample, name, bug)
    with pytest.raises(AssertionError):
        check_law(layout_of(), *OPPOSITE, EPSILON)


def test_in_a_tiny_world_no_pair_of_households_is_further_apart_than_rho_and_some_are_nearly_that_far():
    """All households whose days are alike, with readings of three sizes; all pairs of them."""
    layout = layout_of(usual_day_wh=400)
    patterns = np.array(list(product((-9000, 30, 9000), repeat=SLOTS)))
    votes = cast_votes(np.tile(patterns.T, (DAYS, 1)), layout)
    apart = ((votes[:, None] - votes[None]) / layout.noise_scales(EPSILON)) ** 2 / 2
    rho = gaussian_rho(EPSILON, DELTA)
    assert 0.8 * rho < apart.sum(axis=2).max() <= rho


@pytest.mark.slow
def test_a_guess_about_one_household_is_right_no_more_often_than_epsilon_allows():
    """Everything else of the sample is known; it was right always while a forecast held means of the sample."""
    layout, epsilon = layout_of(slots=24, days=35, periods=24, kinds=""), Fraction(3)
    rng = np.random.default_rng(5)
    others = rng.gamma(1.2, 300, (len(layout.when), 60)).astype(np.int64)
    evening = np.where(layout.when.slot >= 18, 3000, 25)
    votes = [
        cast_votes(np.column_stack([others, its]), layout)
        for its in (evening, evening.reshape(-1, 24)[:, ::-1].ravel())
    ]
    scales, rounds, right = layout.noise_scales(epsilon), 400, 0
    for number in range(rounds):
        truth = number % 2
        made = release_votes(votes[truth], layout, epsilon=epsilon, noise=SeededNoise(number))
        fits = [-(((made.mean_vote * 6100 - each.sum(axis=0)) / scales) ** 2).sum() for each in votes]
        right += int(np.argmax(fits)) == truth
    assert 0.55 * rounds < right <= rounds * e**3 / (1 + e**3)


class NoNoise:
    def draw(self, _, scales):
        return np.zeros(len(scales), np.int64)


@pytest.mark.parametrize("day_types", [1, 2])
def test_where_nothing_is_cut_off_the_mean_of_votes_is_the_regression_of_the_mean(day_types):
    layout = layout_of(day_types=day_types, slots=24, days=21, periods=24, usual_day_wh=48_000)
    readings = np.random.default_rng(4).integers(-900, 3000, (len(layout.when), 30))
    made = release_votes(cast_votes(readings, layout), layout, epsilon=EPSILON, noise=NoNoise())
    expected = np.linalg.lstsq(layout.features, readings.mean(axis=1))[0]
    assert np.allclose(made.coefficients, expected, atol=0.2)  # votes are hundredths of a Wh, the sun weighs 0.15
    above = [np.maximum(readings - bound, 0).mean() for bound in SAMPLE_BOUNDS_WH[:-1]]
    assert np.allclose(made.cut_wh.mean(axis=1), above, atol=0.1)
    usual = readings.reshape(-1, 24, 30).mean(axis=0)
    assert made.own_square == pytest.approx(np.mean((readings.reshape(-1, 24, 30) - usual) ** 2), rel=1e-4)
    assert made.lasting_square == pytest.approx(usual.var(axis=1).mean(), rel=0.02)


def test_a_release_with_a_seed_is_this():
    when = located(24, 14)
    readings = np.random.default_rng(9).gamma(1.2, 400, (len(when), 900)).astype(np.int64)
    made = release_sample(readings[:, :500], when, epsilon=EPSILON, usual_day_wh=10_000, seed=7)
    assert (made.layout.day_types, made.layout.periods) == (2, 12)
    assert made.coefficients[:3].round(3).tolist() == [481.941, 448.083, 480.16]
    assert made.cut_wh[:2, 0].round(3).tolist() == [246.347, 162.568]
    assert (round(made.own_square), round(made.lasting_square)) == (86_923, 78_462)


def test_a_forecast_holds_public_bounds_and_no_reading():
    layout = layout_of(slots=24, periods=8, kinds="")
    readings = np.full((len(layout.when), 50), 300)
    readings[77, 3] = 7431
    made = sample_forecast(readings, layout.when)
    assert tuple(each.bound_wh for each in made.above) == SAMPLE_BOUNDS_WH
    assert "7431" not in made.to_json()
    assert made.error is None


@pytest.mark.slow
def test_with_little_noise_the_forecast_is_that_of_the_sample():
    when = located(24, 42)
    rng, weather = np.random.default_rng(3), weather_of(when)
    cold = np.maximum(15 - weather.temperature_c, 0)
    level = (300 + 150 * np.sin(when.slot * np.pi / 12)) * (1 + 0.2 * (when.day_type > 0)) + 8 * cold
    roof = np.arange(400) < 100
    readings = rng.gamma(0.8, level[:, None] / 0.8, (len(when), 400)) - 4 * weather.irradiance[:, None] * roof
    readings = np.rint(readings).astype(np.int64)
    made = sample_forecast(readings, when, weather)
    expected = level - weather.irradiance
    error = made.demand.demand_wh(when, weather) - expected
    assert np.sqrt(np.mean(error**2)) < 0.05 * level.mean()
    assert made.demand.heat_wh_per_k.mean() == pytest.approx(8, abs=1.5)
    assert made.demand.sun_wh == pytest.approx(-300, rel=0.03)
    own = sqrt(np.mean(np.var(readings.reshape(-1, 24, 400), axis=0)))
    assert made.spread.own == pytest.approx(own / made.mean_use_wh(), rel=0.01)
    for bound_wh, export_wh, off in ((300, 300, 0.25), (700, 1000, 0.15), (2100, 2000, 0.08)):
        clipped = np.clip(readings, -export_wh, bound_wh).mean(axis=1)
        shown = made.with_range(bound_wh, export_wh).clip_demand().demand_wh(when, weather)
        assert np.sqrt(np.mean((shown - clipped) ** 2)) < off * level.mean()
        assert shown.mean() == pytest.approx(clipped.mean(), abs=off / 3 * level.mean())


ENTRIES = sum(part.entries for part in layout_of(slots=24, periods=8).parts)
VOTES = arrays.arrays(np.float64, ENTRIES, elements=st.floats(-1e5, 1e5))


@pytest.mark.slow
@given(VOTES)
def test_with_any_noise_a_household_uses_something_and_a_higher_bound_cuts_off_less(mean_vote):
    layout = layout_of(slots=24, periods=8)
    sample = PrivateSample(layout=layout, households=10, epsilon=EPSILON, mean_vote=mean_vote)
    spent = (Fraction(5, 2), Fraction(3, 10**6))
    made = forecast_from_sample(sample, spent=spent, source="a made sample", time_zone="UTC")
    again = PublicForecast.from_json(made.to_json())
    assert again.sample == (10, *spent)
    assert (again.demand.use_wh(layout.when, layout.weather) > 0).all()
    cuts = np.array([each.cut_wh for each in again.above])
    assert (np.diff(cuts, axis=0) <= 0).all()
    assert (cuts >= 0).all()
    shares = [each.sun_share for each in again.below]
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize("kinds", ["", "cold", "cold sun"])
def test_more_households_or_a_larger_epsilon_give_a_finer_layout_and_too_few_are_refused(kinds):
    when, chosen = located(24, 14), []
    weather = weather_of(when, kinds)
    needed = [
        make_layout(when, weather, usual_day_wh=10_000, day_types=types, periods=periods).needed_households(EPSILON)
        for types, periods in RESOLUTIONS
    ]
    assert needed == sorted(needed, reverse=True)
    for households in needed:
        layout = choose_layout(when, weather, usual_day_wh=10_000, epsilon=EPSILON, households=households)
        chosen.append((layout.day_types, layout.periods))
        twice = choose_layout(when, weather, usual_day_wh=10_000, epsilon=2 * EPSILON, households=households)
        assert twice.basis.shape[1] >= layout.basis.shape[1]
    assert tuple(chosen) == RESOLUTIONS
    says = f"households is 1: must be {needed[-1]:,} or more at epsilon 1; nothing was spent"
    with pytest.raises(PrivacyError, match=says):
        choose_layout(when, weather, usual_day_wh=10_000, epsilon=EPSILON, households=1)


@pytest.mark.slow
def test_the_noise_of_the_regression_is_what_the_layout_promises():
    when = located(24)
    readings = np.full((len(when), 700), 10_000 // 24)
    released = [release_sample(readings, when, epsilon=EPSILON, usual_day_wh=10_000, seed=seed) for seed in range(100)]
    fitted = np.array([each.layout.features @ each.coefficients for each in released])
    noise = sqrt(np.mean(fitted.std(axis=0) ** 2))
    assert noise == pytest.approx(released[0].use_noise_wh, rel=0.1)
    assert noise < 0.1 * 10_000 / 24


def test_weather_that_the_hours_explain_is_not_asked_for():
    when = located(24, 14)
    steady = Weather(np.full(len(when), 5.0), 300.0 * (when.slot > 8))
    assert make_layout(when, steady, usual_day_wh=10_000, day_types=2, periods=24).asked == ()
    layout = make_layout(when, weather_of(when), usual_day_wh=10_000, day_types=2, periods=24)
    assert layout.asked == ("cold", "dark", "sun")


@pytest.mark.parametrize(
    ("choices", "says"),
    [({"days": 6}, "must be 7 days or more"), ({"usual_day_wh": 3}, "usual-day-kwh is 0.003")],
)
def test_what_cannot_be_asked_is_refused(choices, says):
    with pytest.raises(ModelError, match=says):
        layout_of(**choices)
    for epsilon in (Fraction(0), Fraction(1, 10**12)):
        with pytest.raises(PrivacyError, match="epsilon"):
            layout_of().noise_scales(epsilon)
    with pytest.raises(ModelError, match="must be 360 or less"):
        choose_layout(located(2), USUAL_WEATHER, usual_day_wh=20_000, epsilon=EPSILON, households=10**6)
