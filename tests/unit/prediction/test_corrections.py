"""Corrections: gains in closed form, states that any release leaves small, and the same bits as a plain loop."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation import reference_prediction as reference

from murmurate.prediction.corrections import (
    CORRECTIONS,
    FAST,
    HOUR,
    LEVEL,
    SQUARE,
    STATES,
    SUN,
    USUAL_SPREAD,
    UsualYear,
    fading,
    plan_corrections,
    respond_to,
    solve_variance,
)
from murmurate.prediction.forecast import CalendarForecast
from murmurate.prediction.public_forecast import (
    CutAbove,
    CutBelow,
    PublicForecast,
    forecast_document,
    forecast_from_document,
)
from murmurate.prediction.public_inputs import InputSeries, InputValue
from murmurate.prediction.zone_prediction import (
    MAX_DEMAND_WH,
    PredictionModel,
    PriceResponse,
    ZonePrediction,
    advance_states,
    predict_zones,
)

SLOTS, HOMES, FIRST = 48, 1000, 980_000  # half hours; it begins in November 2025
HOUR_OF_DAY = np.arange(24)
SUNSHINE = np.maximum(0.0, 500 * np.sin((HOUR_OF_DAY - 6) * np.pi / 12)).round(1) * np.ones((12, 1))
_DEMAND = CalendarForecast(
    day_wh=(200 + 80 * np.sin(np.arange(SLOTS) * 2 * np.pi / SLOTS)) * np.array([[1.0], [1.1], [1.2]]),
    month_wh=20 * np.cos(np.arange(12) * np.pi / 6)[:, None] + np.sin(HOUR_OF_DAY),
    heat_wh_per_k=2 + np.sin(HOUR_OF_DAY),
    usual_cold_k=np.linspace(9, 2, 12),
    least_wh=5.0,
    dark_wh=30.0,
    sun_wh=-250.0,
    usual_irradiance=SUNSHINE,
)
DEMAND = forecast_from_document(forecast_document(_DEMAND))  # rounded: the same on every machine
SERIES = InputSeries(temperature="air", irradiance="sun", deviation="region")
PUBLIC = PublicForecast(
    source="made",
    time_zone="Europe/Lisbon",
    holidays=(),
    demand=DEMAND,
    error=None,
    above=(CutAbove(700, (20 + 5 * np.cos(HOUR_OF_DAY)).round(3)),),
    below=(CutBelow(400, 0.8),),
)
MODEL = PredictionModel.of(PUBLIC, SERIES)


def plan_for(noise_sd_wh, demand=DEMAND, clipped=None, lead=2, homes=HOMES):
    return plan_corrections(
        demand,
        clipped or demand,
        USUAL_SPREAD,
        households=homes,
        scale=float(homes),
        noise_variance=float(noise_sd_wh) ** 2,
        lead=lead,
    )


def zone_of(noise_sd_wh=20_000.0, *, scale=1000.0, elasticity=0.0, model=MODEL, **other):
    made = plan_for(noise_sd_wh, model.public.demand, model.clipped)
    found = ZonePrediction(model, scale, made.gain, made.surprise_square, PriceResponse(elasticity, 1000), made.error)
    return replace(found, **other)


@given(told=st.floats(0, 1e9), fresh=st.floats(1e-12, 10), keep=st.floats(0, 0.99999))
def test_the_variance_that_is_left_solves_its_equation(told, fresh, keep):
    left = float(solve_variance(np.array([told]), np.array([fresh]), np.array([keep]))[0])
    before = keep**2 * left + fresh
    assert 0 < left <= before * (1 + 1e-12)
    assert left == pytest.approx(before / (1 + told * before), rel=1e-6)


@pytest.mark.slow
@given(st.floats(1, 1e6), st.floats(1.01, 100))
def test_less_noise_means_larger_gains_and_less_error(noise_sd_wh, times):
    little, much = plan_for(noise_sd_wh), plan_for(times * noise_sd_wh)
    exact, nothing = plan_for(0.0), plan_for(1e15)
    assert (little.gain >= much.gain * (1 - 1e-12)).all()
    errors = np.array([each.error for each in (exact, little, much, nothing)])
    assert (np.diff(errors) >= -1e-12).all()
    assert little.surprise_square < much.surprise_square
    assert nothing.gain.max() < 1e-9


@pytest.mark.parametrize("homes", [1, 10**9])
def test_gains_of_any_zone_can_stand_in_its_plan(homes):
    """Also with all households of a country, and where no release shows the sun."""
    dark = replace(DEMAND, sun_wh=0.0)
    assert plan_for(0.0, dark, homes=homes).gain[SUN] == 0
    faint = replace(DEMAND, sun_wh=-1e-3)
    for demand in (dark, faint):
        model = PredictionModel.of(replace(PUBLIC, demand=demand, above=(), below=()), InputSeries())
        stated = zone_of(0.0, model=model, scale=float(homes), gain=plan_for(0.0, demand, homes=homes).gain)
        assert ZonePrediction.from_document(stated.to_document()).gain == pytest.approx(stated.gain, abs=1e-7)


def test_where_noise_dominates_the_prediction_is_the_public_forecast():
    zone = zone_of(1e12)
    states = np.zeros((1, STATES), np.int64)
    for at in range(FIRST, FIRST + SLOTS):
        states = advance_states([zone], states, at, np.array([9_000_000]), np.array([True]), np.ones(1))
        expected = zone.scale * float(DEMAND.demand_wh(MODEL.locate(at + 2))[0])
        assert predict_zones([zone], states, at, 2)[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("noise_sd_wh", [1e9, 30_000.0, 100.0])
def test_the_error_is_the_one_that_the_plan_states(noise_sd_wh):
    """Corrections are drawn as the plan takes them: each fades and is renewed, and a zone has chances of its kind."""
    demand, rng, zones = replace(DEMAND, sun_wh=-60.0), np.random.default_rng(1), 40
    model = PredictionModel.of(replace(PUBLIC, demand=demand, above=(), below=()), InputSeries())
    zone, usual_wh = zone_of(noise_sd_wh, model=model), HOMES * model.mean_wh
    by_hour = UsualYear.of(demand)
    by_hour = 24 * by_hour.hour @ (by_hour.share * by_hour.use_wh) / model.mean_wh
    hours = np.sqrt(0.035**2 + USUAL_SPREAD.lasting**2 / HOMES / by_hour**2)
    keep, sd = fading(SLOTS)[:, None], np.concatenate([[0.05, 0.023, 0.36], hours])[:, None]
    truth, states = rng.normal(size=(CORRECTIONS, zones)) * sd, np.zeros((zones, STATES), np.int64)
    wrong, predicted = [], {}
    for number in range(100 * SLOTS):
        interval = FIRST + 7 * SLOTS * (number // SLOTS) + number % SLOTS  # one day a week: all months count
        truth = truth * keep + rng.normal(size=truth.shape) * sd * np.sqrt(1 - keep**2)
        expected, chance = model.expect_demand(interval), rng.normal(size=(4, zones))
        relative = expected.demand_wh / model.mean_wh + (truth * expected.loading[:, None]).sum(axis=0)
        relative += expected.loading[LEVEL] * 0.025 * chance[0] + expected.loading[SUN] * 0.12 * chance[1]
        relative += USUAL_SPREAD.own * np.sqrt(expected.loading[LEVEL] / HOMES) * chance[2]
        if number in predicted:
            wrong.append(predicted.pop(number) / usual_wh - relative)
        release = np.rint(usual_wh * relative + noise_sd_wh * chance[3]).astype(np.int64)
        states = advance_states([zone] * zones, states, interval, release, np.ones(zones, bool), np.ones(zones))
        if number % SLOTS < SLOTS - 2 and number > 40 * SLOTS:
            predicted[number + 2] = predict_zones([zone] * zones, states, interval, 2)
    assert np.sqrt(np.mean(np.square(wrong))) == pytest.approx(zone.predicted_error, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("noise_sd_wh", [2_000.0, 100_000.0])
def test_releases_that_are_always_off_mislead_a_zone_by_as_much_as_the_plan_counts(noise_sd_wh):
    """Sums show a fifth less use than expected. Corrections fade a tenth as long, so that they settle sooner."""
    demand = replace(DEMAND, month_wh=np.zeros((12, 24)), usual_cold_k=np.full(12, 5.0))
    model = PredictionModel.of(replace(PUBLIC, demand=demand), InputSeries())
    model = replace(model, keep=model.keep**10)
    zone, whole, seen = zone_of(noise_sd_wh, model=model), UsualYear.of(demand), UsualYear.of(model.clipped)
    loadings = seen.loadings(model.mean_wh)
    off = -0.2 * loadings[LEVEL]
    settled = respond_to(off[None], loadings, seen.share, zone.gain, model.keep)[:, 0]
    states, measured, found, days = np.zeros((1, STATES), np.int64), np.array([True]), np.zeros(CORRECTIONS), 56
    for interval in range(FIRST, FIRST + days * SLOTS):
        expected = model.expect_sum(interval)
        release = np.rint([zone.scale * (0.8 * expected.use_wh + expected.sun_wh)]).astype(np.int64)
        states = advance_states([zone], states, interval, release, measured, np.ones(1))
        found += states[0, :CORRECTIONS] * 1e-9 * (interval >= FIRST + (days - 14) * SLOTS) / (14 * SLOTS)
    loadings = whole.loadings(model.mean_wh)
    misled, planned = ((whole.share @ (loadings.T @ each) ** 2) ** 0.5 for each in (found, settled))
    assert misled == pytest.approx(planned, rel=0.05)


def test_what_a_range_hides_counts_as_far_as_releases_are_believed():
    blind = [plan_for(1e12, clipped=clipped).error for clipped in (DEMAND, MODEL.clipped)]
    assert blind[1] == pytest.approx(blind[0], rel=1e-3)
    believed = [plan_for(1000.0, clipped=clipped).error for clipped in (DEMAND, MODEL.clipped)]
    whole = UsualYear.of(DEMAND)
    use, sun = ((whole.share @ each**2) ** 0.5 / MODEL.mean_wh for each in (whole.use_wh, whole.sun_wh))
    hidden = (1 - MODEL.shown) ** 2 * use**2 + 0.2**2 * sun**2  # a range of -400 Wh shows 0.8 of the sun
    assert believed[1] ** 2 - believed[0] ** 2 == pytest.approx(hidden, rel=0.1)


RELEASES = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**62), 2**62) | st.integers(-(10**6), 10**6),
        st.just(reference.NO_PRICE) | st.integers(-(10**6), 10**9),
        st.dictionaries(
            st.sampled_from([*SERIES]),
            st.dictionaries(
                st.sampled_from(["now", "ahead"]), st.integers(-30_000, 900_000) | st.integers(-(10**15), 10**15)
            ),
        ),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@given(released=RELEASES, first=st.integers(0, 10**6), lead=st.integers(0, 4), elasticity=st.sampled_from([0.0, 0.3]))
def test_states_and_demand_are_those_of_a_plain_loop_and_stay_within_their_limits(released, first, lead, elasticity):
    """Also with gaps, feed-in, and inputs that are known or not. A row of the log has 32 bits for a state."""
    zone = zone_of(5000.0, elasticity=elasticity, scale=1234.5)
    states = np.zeros((1, STATES), np.int64)
    for interval, (noisy_wh, paid, stated) in enumerate(released, first):
        before, inputs = states, {series: InputValue(**members) for series, members in stated.items()}
        factor = 1.0 if paid == reference.NO_PRICE else reference.answer(zone, paid)
        measured = np.array([noisy_wh is not None])
        states = advance_states(
            [zone], before, interval, np.array([noisy_wh or 0]), measured, np.array([factor]), inputs
        )
        plain = reference.next_states(zone, before[0].tolist(), noisy_wh, paid, interval, stated)
        assert states[0].tolist() == list(plain)
        assert np.abs(states).max() <= 2 * 10**9 < 2**31
        demand = predict_zones([zone], states, interval, lead, inputs)
        assert demand.tolist() == [reference.predict(zone, plain, interval, lead, stated)]
        assert abs(demand[0]) <= MAX_DEMAND_WH


@pytest.mark.slow
@given(st.lists(st.integers(-2 * 10**9, 2 * 10**9), min_size=STATES, max_size=STATES), st.integers(-(2**62), 2**62))
def test_without_a_measurement_corrections_fade_and_nothing_else_happens(before, noisy_wh):
    after = advance_states(
        [zone_of()], np.array([before]), FIRST, np.array([noisy_wh]), np.array([False]), np.array([0.5])
    )[0]
    assert np.abs(after[:CORRECTIONS] - np.array(before[:CORRECTIONS]) * MODEL.keep).max() <= 0.51
    assert after[SQUARE] == before[SQUARE]


@pytest.mark.slow
def test_the_last_state_tends_to_what_the_mean_square_is_above_the_planned_one():
    """It follows surprises themselves: here they are 0.3 all the time, because nothing is learnt from them."""
    zone = zone_of(gain=np.zeros(CORRECTIONS))
    states = np.zeros((1, STATES), np.int64)
    for interval in range(FIRST, FIRST + 90 * SLOTS):
        release = round(zone.scale * (MODEL.expect_sum(interval).demand_wh + 0.3 * MODEL.mean_wh))
        states = advance_states([zone], states, interval, np.array([release]), np.array([True]), np.ones(1))
    tends_to = 0.3**2 - zone.surprise_square
    assert states[0, SQUARE] * 1e-9 == pytest.approx(tends_to * (1 - np.exp(-90 / 28)), rel=2e-3)
    assert not states[0, :CORRECTIONS].any()


def test_what_a_zone_feeds_in_does_not_answer_to_a_price():
    zone, noon = zone_of(), next(at for at in range(FIRST, FIRST + SLOTS) if int(MODEL.locate(at).slot[0]) == 26)
    bright, dark = ({"sun": InputValue(now=value)} for value in (900_000, 0))
    for inputs, answers in ((bright, False), (dark, True)):
        assert (MODEL.expect_sum(noon, inputs).demand_wh < 0) == (not answers)
        after = [
            advance_states(
                [zone],
                np.zeros((1, STATES), np.int64),
                noon,
                np.array([50_000]),
                np.array([True]),
                np.array([f]),
                inputs,
            )
            for f in (1.0, 0.8)
        ]
        assert (after[0] != after[1]).any() == answers


def test_a_correction_of_the_sun_moves_noon_and_one_of_an_hour_its_hour_alone():
    zone, when = zone_of(), np.arange(FIRST, FIRST + SLOTS)
    hours = np.array([int(MODEL.locate(at + 2).hour[0]) for at in when])

    def demand_with(state):
        states = np.zeros((1, STATES), np.int64)
        if state is not None:
            states[0, state] = 10**8
        return np.array([predict_zones([zone], states, int(at), 2)[0] for at in when])

    usual = demand_with(None)
    assert (demand_with(HOUR + 7) != usual).tolist() == (hours == 7).tolist()
    assert (demand_with(SUN) < usual).tolist() == [6 < hour < 18 for hour in hours]
    assert (demand_with(LEVEL) > demand_with(FAST)).all()
    assert (demand_with(FAST) > usual).all()
    assert (demand_with(SQUARE) == usual).all()


def test_the_same_bits_on_every_machine():
    """A golden digest: states and predictions of a day, from gains and releases that are quotients."""
    gain, keep = (np.arange(CORRECTIONS) + 1) / 97, 1 - (np.arange(CORRECTIONS) + 1) / 1000
    zone = zone_of(scale=1000.0, gain=gain, surprise_square=1 / 37, model=replace(MODEL, keep=keep))
    states, predicted = np.zeros((3, STATES), np.int64), []
    for t in range(SLOTS):
        noisy_wh = np.array([(t * 37 % 101) * 4001, (t * 53 % 89 - 20) * 3001, 200_000])
        inputs = {"air": InputValue(t * 300 - 5000, t * 300), "sun": InputValue(t * 9000, None)}
        usable, factor = np.array([True, t % 3 > 0, True]), np.array([1.0, 7 / 8, 9 / 7])
        states = advance_states([zone] * 3, states, FIRST + t, noisy_wh, usable, factor, inputs)
        predicted.append(predict_zones([zone] * 3, states, FIRST + t, 2, inputs))
    digest = hashlib.sha256(states.astype("<i8").tobytes() + np.array(predicted).astype("<f8").tobytes())
    assert digest.hexdigest()[:16] == "809c593be253d21e"
