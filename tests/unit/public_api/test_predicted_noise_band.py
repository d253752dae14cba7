"""The band around a predicted price holds the price without noise 95 times in 100, and there is none that would not."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.zone_views import view_of, with_terms
from tests.unit.public_api.test_pages import BASE, KEY, Parsed

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.prediction.corrections import STATES
from murmurate.prediction.zone_prediction import advance_states, predict_zones
from murmurate.service.log_reader.zone_view import PlanEnd, Price, PriceKind
from murmurate.service.public_api.pages.noise_band import half_width_wh, noise_band
from murmurate.service.public_api.pages.routes import plan_page
from murmurate.service.public_api.pages.zone_page import zone_page

PROMISES = 'promise = ["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
FIRST, LEAD, DAYS, RUNS = 1_794_614_400 // 900, 2, 12, 150


def predicted_terms(zone_file=EXAMPLE_ZONE_FILE, forecast=EXAMPLE_FORECAST):
    window = zone_file.replace(PROMISES, 'promise = ["any 24 h: epsilon 1, delta 1e-6"]')  # Gaussian noise
    return ReleaseTerms.from_json(make_plan(parse_zone(window + forecast)).to_json())


def simulated_prices(terms, noise_wh):
    """Prices [interval, run] of a demand that is exactly as forecast, with this noise [interval, run]."""
    count = noise_wh.shape[1]
    zones = [terms.prediction] * count
    model = zones[0].model
    states, every, prices = np.zeros((count, STATES), np.int64), np.ones(count, np.bool_), []
    for interval, draws in enumerate(noise_wh, FIRST):
        noisy_wh = np.rint(model.expect_sum(interval).demand_wh * zones[0].scale + draws).astype(np.int64)
        states = advance_states(zones, states, interval, noisy_wh, every, np.ones(count))
        demand = predict_zones(zones, states, interval, LEAD)
        prices.append(zones[0].price_response.meet(terms.curve, demand))
    return np.array(prices)


def band_of(terms, paid, ticks):
    prices = [
        Price(at, PriceKind.MEASURED, int(each), terms.curve.tick, float(terms.scale_wh[0]), 0.0)
        for at, each in zip(paid, ticks, strict=True)
    ]
    return np.array(list(noise_band(terms, prices, lead=LEAD, since=FIRST).values()))


@pytest.mark.slow
@pytest.mark.parametrize("elasticity", ["", "elasticity = 0.2"])
def test_the_price_without_noise_is_in_the_band_95_times_in_100(elasticity):
    terms = predicted_terms(forecast=f"{EXAMPLE_FORECAST}\n{elasticity}\n")
    slots = len(terms.scale_wh)
    noise = np.random.default_rng(4).normal(0, terms.scale_wh[0], (DAYS * slots, RUNS))
    noise[:, 0] = 0
    prices = simulated_prices(terms, noise)[-slots:]
    without = prices[:, 0] * float(terms.curve.tick)
    paid = range(FIRST + (DAYS - 1) * slots + LEAD, FIRST + DAYS * slots + LEAD)
    inside = []
    for run in range(1, RUNS):
        low, high = band_of(terms, paid, prices[:, run]).T
        inside.append((low <= without) & (without <= high))
    assert 0.94 <= np.mean(inside) <= 0.965
    by_hour = np.array(inside).mean(axis=0).reshape(24, -1).mean(axis=1)
    assert by_hour.min() > 0.9
    echo = band_of(replace(terms, prediction=None), paid, prices[:, 1])
    assert np.diff(echo).mean() > 5 * np.diff(band_of(terms, paid, prices[:, 1])).mean()  # as it was drawn before


@pytest.mark.slow
def test_there_is_no_band_where_the_plan_was_changed():
    terms = predicted_terms()
    view = view_of((9000,) * 30, begin_s=FIRST * 900)
    now_s = view.start_s(view.first_priced + 20)
    shown = with_terms(view, terms)
    assert "95 times in 100" in Parsed(zone_page(shown, now_s, BASE, KEY)).text
    changed = replace(shown, older_plans=(PlanEnd("1" * 64, view.row.since + 3),))
    assert "95 times in 100" not in Parsed(zone_page(changed, now_s, BASE, KEY)).text


@pytest.mark.slow
def test_the_page_of_the_plan_says_how_far_the_noise_moves_a_predicted_price():
    terms = predicted_terms()
    text = Parsed(plan_page(with_terms(view_of(currency="EUR"), terms), FIRST * 900, BASE, KEY)).text
    moved = float(text.partition("then moves by at most ")[2].partition(" ")[0])
    reach_kwh = half_width_wh(terms.distribution, float(terms.scale_wh[0])) / 1000
    echo = reach_kwh * float(terms.curve.segments[0].slope) * 100
    assert 0 < moved < echo / 4
