"""The demand behind a log: prices, clipping and changes of plan are taken out, and tiles and lines say the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.logged_demand import NoNoise, play_log, true_demand_wh
from tests.support.predicted_zones import FIRST, SLOTS, PredictedShard, plan_text, zone_text
from tests.support.sample_forecasts import sample_forecast
from tests.support.sample_logs import plan

from murmurate.errors import ModelError
from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.calendar import locate_intervals
from murmurate.public_log.noised_demand import DemandTerms, extract_demand
from murmurate.verification.releases import read_zone_history

ANSWERS, STEADY = plan_text(households=3000, elasticity=0.2), plan_text(households=3000)
HOMES = 3001  # with the market


def extract(shard, texts, zone="hill", items=None):
    found = read_zone_history(lambda: items or shard.items(), zone, texts)
    return extract_demand(found.releases, {digest: DemandTerms.from_json(text) for digest, text in found.plans.items()})


def known(logged):
    """Demand that was measured, and the true one."""
    demand = logged.history.demand_wh
    interval = np.arange(logged.first, logged.first + len(demand))
    return demand[np.isfinite(demand)], true_demand_wh(interval)[np.isfinite(demand)]


@pytest.mark.slow
@settings(max_examples=10)
@given(
    lead=st.integers(1, 5),
    missing=st.sets(st.integers(0, 29), max_size=8),
    late=st.sets(st.integers(0, 29), max_size=6),
)
def test_the_answer_to_the_price_that_was_paid_is_taken_out(lead, missing, late):
    response = DemandTerms.from_json(ANSWERS).prediction.price_response
    options = {"households": HOMES, "response": response, "missing": missing, "late": late}
    shard = play_log({"hill": ANSWERS}, 30, lead=lead, noise=NoNoise(), **options)
    logged = extract(shard, [ANSWERS])
    found, true = known(logged)
    assert np.allclose(found, true, atol=1e-3)
    assert (logged.decided, logged.measured) == (30, 30 - len(missing | late))
    assert logged.measured == len(found)


def test_without_that_the_demand_would_be_off():
    """The price answers to a demand far above the forecast: the law above is not empty."""
    response = DemandTerms.from_json(ANSWERS).prediction.price_response
    shard = play_log({"hill": ANSWERS}, 30, households=HOMES, response=response, noise=NoNoise())
    raw = np.array([tile.rows["noisy_wh"][0] for tile in shard.tiles if len(tile.rows)]) / HOMES
    assert np.abs(raw / true_demand_wh(np.arange(FIRST, FIRST + 30)) - 1).max() > 0.01


@pytest.mark.slow
def test_tiles_and_lines_of_the_zone_give_the_same_demand():
    shard = play_log({"hill": ANSWERS, "mill": STEADY}, 40, households=HOMES, missing={3})
    both = [extract(shard, [ANSWERS, STEADY], items=items) for items in (None, shard.lines("hill"))]
    for name in ("demand_wh", "noise_variance"):
        assert np.array_equal(*(getattr(each.history, name) for each in both), equal_nan=True)


@pytest.mark.slow
def test_the_variance_is_that_of_the_noise_in_the_demand():
    shard = play_log({"hill": STEADY}, 25 * SLOTS, households=HOMES)
    logged = extract(shard, [STEADY])
    noise = np.subtract(*known(logged))
    variance = logged.history.noise_variance
    assert np.mean(noise**2 / variance) == pytest.approx(1, abs=0.2)
    assert abs(noise.mean()) < 4 * (variance.mean() / len(noise)) ** 0.5


@pytest.mark.slow
def test_a_change_of_plan_keeps_the_demand_of_a_household_at_one_reference_price():
    """Twice as many households from one day to the next, and another reference price."""
    after = plan_text(households=6000, elasticity=0.2)
    before_terms, after_terms = DemandTerms.from_json(ANSWERS), DemandTerms.from_json(after)
    first, second = (each.prediction.price_response for each in (before_terms, after_terms))
    assert first.reference_ticks != second.reference_ticks
    shard = play_log({"hill": ANSWERS}, 20, households=HOMES, response=first, noise=NoNoise())
    shard.change_plan("hill", after)
    play_log({"hill": after}, 20, households=6001, response=second, shard=shard)
    logged = extract(shard, [ANSWERS, after])
    found, true = known(logged)
    at_second = 1 / float(second.factor(np.array([float(first.reference_ticks)]))[0])
    assert np.allclose(found[:20], true[:20] * at_second, atol=1e-3)
    assert np.allclose(found[20:], true[20:], atol=1e-3)
    assert logged.history.households == 6001


def sample_plan_text():
    """A plan that knows from a sample what a bound cuts off."""
    days, homes = 40, 60
    when = locate_intervals(np.arange(20_000 * SLOTS, (20_000 + days) * SLOTS), SLOTS)
    mean = (400 + 200 * np.sin(when.slot * 2 * np.pi / SLOTS))[:, None]
    readings = np.rint(np.random.default_rng(5).gamma(1.5, mean / 1.5, (len(when), homes))).astype(np.int64)
    forecast = sample_forecast(readings, when)
    return make_plan(parse_zone(zone_text(), read_forecast=lambda _: forecast)).to_json()


@pytest.mark.slow
def test_what_the_bound_cut_off_is_added_as_the_sample_of_the_plan_shows_it():
    text = sample_plan_text()
    terms = DemandTerms.from_json(text)
    model, scale = terms.prediction.model, terms.prediction.scale
    shard, demand = PredictedShard({"hill": text}, noise=NoNoise()), []
    for n in range(48):
        when, deviation_wh = model.locate(FIRST + n), 60 * np.sin(n / 7)
        demand.append(float(model.public.demand.demand_wh(when)[0]) + deviation_wh)
        shard.release({"hill": round(scale * (float(model.clipped.demand_wh(when)[0]) + deviation_wh))})
    logged = extract(shard, [text])
    assert np.allclose(logged.history.demand_wh, demand, rtol=1e-5)
    raw = np.array([tile.rows["noisy_wh"][0] for tile in shard.tiles if len(tile.rows)]) / scale
    assert raw.sum() < 0.97 * sum(demand)


def test_a_log_without_noised_demand_is_refused():
    echo = plan(old='"0.0002"', new='"0.00005"')
    shard = PredictedShard({"hill": echo})
    shard.release({"hill": 400_000})
    with pytest.raises(ModelError, match=r"without a noised demand.*\[forecast\] file"):
        extract(shard, [echo])


def test_a_zone_without_predicted_prices_shows_its_demand_beside_others():
    """Its rows are in a shard whose rows have the column."""
    echo = plan(old='"0.0002"', new='"0.00005"')
    shard = play_log({"hill": echo, "mill": STEADY}, 10, households=HOMES, noise=NoNoise())
    logged = extract(shard, [echo, STEADY])
    found, true = known(logged)
    assert np.allclose(found * logged.history.households, true * HOMES, atol=1)
    assert logged.last.time_zone == "UTC"
