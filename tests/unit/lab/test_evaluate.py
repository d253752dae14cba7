"""Simulated regions are what they are said to be, ways of pricing see no future, and waste is counted rightly."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from murmurate.lab.evaluate.corrected_zones import CorrectedZones
from murmurate.lab.evaluate.evaluation import SizeComparison, measure_ways
from murmurate.lab.evaluate.homes import MAX_READING_WH, Homes, RandomStream, draw_season, draw_shock
from murmurate.lab.evaluate.market import Supply, answer, meeting_price, waste
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.promised_noise import NoiseLaw
from murmurate.lab.evaluate.public_knowledge import BOUNDS_WH, learn_forecast, sum_clipped, sum_sample
from murmurate.lab.evaluate.region import RegionSize, simulate_region
from murmurate.lab.evaluate.zone_pricing import Setting, Way, ZonePricing
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.corrections import STATES, plan_corrections
from murmurate.prediction.public_forecast import CutBelow
from murmurate.prediction.public_inputs import InputSeries, InputValue
from murmurate.prediction.zone_prediction import (
    PredictionModel,
    PriceResponse,
    ZonePrediction,
    advance_states,
    expect_sums,
    predict_zones,
)
from murmurate.privacy.divergence import huber_variance

NOISE = NoiseLaw(scale=37.010**2 / 53.293, core=53.293)
DAY = 96
RIVALS = ("flat tariff", "time of use", "public forecast", "public forecast and regional load", "echo of noisy demand")
TINY = RegionSize(sample=300, whole=400, zones=2, days=42)
loads = st.lists(st.floats(0.2, 2.5), min_size=1, max_size=4).map(np.array)
elasticities = st.sampled_from([0.05, 0.1, 0.3])


@pytest.fixture(scope="module")
def small_region():
    """A region of a few homes: enough for the machinery, not for its figures."""
    return simulate_region(5, (100,), scale=TINY)


def test_homes_use_what_homes_use():
    season = draw_season(np.random.default_rng(1), days=7)
    homes = Homes(np.random.default_rng(2), 3000)
    used = np.array([homes.step(season, t).copy() for t in range(season.intervals)])
    assert (used == np.rint(used)).all()
    assert 0 <= used.min() <= used.max() <= MAX_READING_WH
    assert 8 < used.mean() * DAY / 1000 < 14  # kWh a day, in a week that may be cold
    assert 1.2 < used.std() / used.mean() < 1.8
    by_hour = used.mean(axis=1).reshape(-1, 24, 4).mean(axis=(0, 2))
    assert by_hour[18:22].mean() > 1.3 * by_hour[13:16].mean()


reading_wh = st.one_of(st.integers(-MAX_READING_WH, MAX_READING_WH), st.sampled_from(BOUNDS_WH))
readings_wh = st.lists(reading_wh, min_size=6, max_size=6)


@given(readings=readings_wh, zones=st.sampled_from([1, 2, 3]))
def test_sums_are_those_of_clipped_readings(readings, zones):
    used = np.array(readings, np.float32)
    plain = [np.clip(used, -bound, bound).reshape(zones, -1).sum(axis=1) for bound in BOUNDS_WH]
    assert_array_equal(sum_clipped(used, zones), np.stack(plain, axis=1))


@pytest.mark.slow
def test_a_sample_teaches_what_is_cut_off_and_how_homes_differ():
    """Homes that always use more, and draws around that, all day alike: both spreads are known, and so is each cut."""
    rng = np.random.default_rng(8)
    usual = rng.choice([100.0, 500.0], 2000)
    used = np.rint(usual * rng.uniform(0, 2, (35 * DAY, 2000))).astype(np.float32)
    sums = np.array([sum_sample(now, used[t - DAY]) for t, now in enumerate(used)])
    found = learn_forecast(sums, 2000, CalendarSlots(*np.zeros((2, len(used)), int), np.arange(len(used)) % DAY, DAY))
    mean_wh = float(usual.mean())
    assert found.mean_use_wh() == pytest.approx(mean_wh, rel=0.01)
    assert found.spread.lasting * mean_wh == pytest.approx(usual.std(), rel=0.02)
    assert found.spread.own * mean_wh == pytest.approx(np.sqrt(np.mean(usual**2) / 3), rel=0.02)
    for each in found.above:
        cut = np.maximum(used - each.bound_wh, 0).mean(axis=1).reshape(-1, 24, DAY // 24).mean(axis=(0, 2))
        assert each.cut_wh == pytest.approx(cut, rel=1e-5)
    assert [each.bound_wh for each in found.above] == list(BOUNDS_WH)
    assert not found.above[-1].cut_wh.any()


@pytest.mark.slow
def test_zones_are_predicted_as_the_service_predicts_them(small_region):
    """The same corrections and demand as with the functions that a log is written with, but for its whole numbers.

    Also where roofs feed in, households are silent, and demand answers to prices.
    """
    bound, noise_sd_wh, rng, first = 700, 20_000.0, np.random.default_rng(6), 400_000 * DAY
    scale, demand = np.array([90.0, 110.0]), replace(small_region.known.demand, sun_wh=-180.0)
    known = replace(small_region.known, demand=demand, below=(CutBelow(500, 0.4), CutBelow(900, 0.8)))
    zones = CorrectedZones(known, bound, homes=100, noise_sd_wh=noise_sd_wh, lead=2, scale=scale)
    model = PredictionModel.of(known.with_range(bound, bound), InputSeries(irradiance="sun", deviation="region"))
    plan = plan_corrections(
        known.demand, model.clipped, known.spread, households=100, scale=100, noise_variance=noise_sd_wh**2, lead=2
    )
    same = [ZonePrediction(model, each, plan.gain, plan.surprise_square, PriceResponse(0.0, 1), 0.0) for each in scale]
    states = np.zeros((2, STATES), np.int64)
    negative = 0
    for t in range(300):
        noisy_wh, now, ahead = rng.integers(-(10**5), 10**5, 2), *rng.integers(-100, 100, 2).tolist()
        inputs = {"region": InputValue(now, ahead), "sun": InputValue(*rng.integers(0, 900_000, 2).tolist())}
        silent, paid = rng.integers(0, 14, 2), rng.uniform(0.8, 1.2, 2)
        each_wh = np.clip(expect_sums(same, states, first + t, inputs) / 100, -bound, bound)
        negative += int((each_wh < 0).sum())
        filled_wh = np.rint(noisy_wh + silent * each_wh).astype(np.int64)
        states = advance_states(same, states, first + t, filled_wh, silent <= 10, paid, inputs)
        expected, later = model.expect_sum(first + t, inputs), model.expect_demand(first + t + 2, inputs, "ahead")
        sums_wh, hour = noisy_wh.astype(float), t % DAY // 4
        zones.observe(
            expected.use_wh, hour, sums_wh, now / 1000, sun_wh=expected.sun_wh, paid=paid, silent=silent.astype(float)
        )
        found = zones.predict(later.use_wh, (t + 2) % DAY // 4, ahead / 1000, sun_wh=later.sun_wh)
        assert found == pytest.approx(predict_zones(same, states, first + t, 2, inputs), rel=1e-4, abs=1)
    assert 100 < negative < 500


def test_a_random_stream_picks_and_draws_as_it_says():
    stream = RandomStream(np.random.Generator(np.random.SFC64(9)))
    picked = [len(np.unique(stream.pick(5000, 0.16))) for _ in range(200)]
    assert np.mean(picked) == pytest.approx(800, rel=0.01)
    assert np.std(picked) == pytest.approx((5000 * 0.16 * 0.84) ** 0.5, rel=0.25)
    drawn, even = stream.normal(200_001), stream.uniform(200_001)
    assert len(drawn) == len(even) == 200_001
    assert (drawn.mean(), drawn.std()) == pytest.approx((0, 1), abs=0.01)
    assert (even.mean(), even.std()) == pytest.approx((0.5, 12**-0.5), abs=0.01)
    assert 0 < even.min() < even.max() < 1


def wait_and_double(seconds):
    time.sleep(seconds)
    return 2 * seconds


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_the_order_of_their_tasks(jobs):
    done = []
    assert run_tasks(wait_and_double, [0.5, 0.1, 0.0], jobs, done.append) == [1.0, 0.2, 0.0]
    assert sorted(done) == [0.0, 0.1, 0.5]


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(small_region):
    """Several blocks for each part of the region, in one process and in two."""
    again = simulate_region(5, (100,), scale=TINY, jobs=2)
    assert_array_equal(again.zones[100].demand_wh, small_region.zones[100].demand_wh)
    assert_array_equal(again.load_wh, small_region.load_wh)
    assert_array_equal(again.expected_wh, small_region.expected_wh)
    other = simulate_region(6, (100,), scale=TINY)
    assert not np.array_equal(other.load_wh, small_region.load_wh)


def test_a_shock_is_as_large_and_as_long_as_it_says():
    drawn = draw_shock(np.random.default_rng(3), 0.04, 5.0, 4000, (50,))
    assert drawn.std() == pytest.approx(0.04, rel=0.03)
    hour = np.mean(drawn[4:] * drawn[:-4]) / np.mean(drawn**2)
    assert hour == pytest.approx(np.exp(-1 / 5), abs=0.02)


def test_simulated_noise_has_the_spread_of_what_is_published():
    drawn = NOISE.draw(np.random.default_rng(4), 1000, (200_000,))
    exact = float(huber_variance(37_010**2 / 53_293, 53_293)) ** 0.5
    assert NOISE.sd * 1000 == pytest.approx(exact, rel=1e-3)
    assert drawn.std() == pytest.approx(exact, rel=0.01)


@given(load=loads, elasticity=elasticities, supply=st.sampled_from(Supply))
def test_supply_and_demand_meet(load, elasticity, supply):
    price = meeting_price(supply, load, elasticity)
    assert supply.price(load * answer(price, elasticity)) == pytest.approx(price, rel=1e-6)


@given(load=loads, elasticity=elasticities, supply=st.sampled_from(Supply), off=st.floats(0.5, 2))
def test_the_best_price_wastes_nothing_and_any_other_wastes_something(load, elasticity, supply, off):
    best = meeting_price(supply, load, elasticity)
    assert waste(supply, load, best, best, elasticity) == pytest.approx(0, abs=1e-12)
    lost = waste(supply, load, best * off, best, elasticity)
    assert (lost >= -1e-9).all()
    if abs(off - 1) > 0.01:
        assert (lost > 0).all()


@given(load=st.floats(-3, 0), elasticity=elasticities, supply=st.sampled_from(Supply), paid=st.floats(0.001, 1))
def test_what_a_zone_feeds_in_answers_to_no_price_and_wastes_nothing(load, elasticity, supply, paid):
    fed_in, price = np.array([load]), np.array([paid])
    best = meeting_price(supply, fed_in, elasticity)
    assert best == pytest.approx(np.maximum(supply.price(fed_in), 0.001), abs=1e-9)
    assert waste(supply, fed_in, price, best, elasticity).tolist() == [0.0]


@pytest.mark.slow
def test_no_way_of_pricing_sees_the_future(small_region):
    """What happens after an interval changes no estimate that was due before it was measured."""
    at = 10 * DAY

    def later(demand):
        return np.concatenate([demand[:at], 3 * demand[at:]])

    plain = ZonePricing(small_region, 100, Setting())
    changed = ZonePricing(replace(small_region, load_wh=later(small_region.load_wh)), 100, Setting(), change=later)
    for way in (Way.REGIONAL_LOAD, Way.NOISY_ECHO, Way.PRIVATE, Way.EXACT_ECHO, Way.EXACT):
        both = []
        for pricing in (plain, changed):
            its_way = pricing.make_way(way, NOISE, 500, 1)
            played = plain.play_season(its_way, plain.forecast_price, 0.0)
            both.append(played.estimate_wh[:, : plain.zones])  # those that answer are priced by the mean of the season
        known = at + 2 + (way is Way.REGIONAL_LOAD)  # an interval later
        assert_array_equal(both[0][:known], both[1][:known])
        assert not np.array_equal(both[0][known], both[1][known])


@pytest.mark.slow
def test_every_way_is_measured(small_region):
    pricing = ZonePricing(small_region, 100, Setting(elasticity=0.3))
    bound = pricing.choose_bound(NOISE)
    found = SizeComparison(100, bound, measure_ways(pricing, tuple(Way), NOISE, bound, seed=1))
    assert set(found.results) == set(Way)
    error = {way: result.error for way, result in found.results.items()}
    assert error[Way.EXACT] < error[Way.PRIVATE] < error[Way.NOISY_ECHO]
    assert error[Way.PRIVATE] == pytest.approx(error[Way.REGIONAL_LOAD], rel=0.1)  # a hundred homes show little
    assert found.value_of_data < 1
    assert found.strongest_rival.loss == min(
        result.loss for way, result in found.results.items() if way.value in RIVALS
    )
    assert all(result.loss >= 0 for result in found.results.values())
    assert found.results[Way.FLAT].price_step_sd == pytest.approx(0, abs=1e-12)


def test_demand_answers_to_the_price_that_is_paid(small_region):
    pricing = ZonePricing(small_region, 100, Setting())
    its_way = pricing.make_way(Way.FORECAST, NOISE, 500, 1)
    first = np.full_like(pricing.demand_wh, 0.1)
    played = pricing.play_season(its_way, first, 0.3)
    assert played.demand_wh == pytest.approx(pricing.demand_wh * answer(played.price, 0.3))


def test_the_error_is_that_of_demand_which_does_not_answer(small_region):
    """Each zone is there twice; only its second half pays prices that move it."""
    pricing = ZonePricing(small_region, 100, Setting(elasticity=0.5))
    its_way = pricing.make_way(Way.EXACT_ECHO, None, 0, 1)
    played = pricing.play_season(its_way, pricing.forecast_price, pricing.elasticity)
    still, answering = played.demand_wh[:, : pricing.zones], played.demand_wh[:, pricing.zones :]
    assert_array_equal(still, pricing.group.sums_wh(MAX_READING_WH))
    assert_array_equal(played.estimate_wh[2:, : pricing.zones], still[:-2])
    assert not np.array_equal(answering, still)


def test_a_gaussian_law_has_its_standard_deviation():
    assert NoiseLaw.gaussian(21.85).sd == pytest.approx(21.85, rel=1e-3)
