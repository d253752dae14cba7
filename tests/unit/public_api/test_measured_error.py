"""The error that the public log shows: it covers the true one, and pages say it beside the planned one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.zone_views import view_of, with_terms
from tests.unit.public_api.test_pages import BASE, KEY, Parsed

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.prediction.corrections import SQUARE, STATES
from murmurate.prediction.zone_prediction import STATE_UNIT, advance_states, predict_zones
from murmurate.service.public_api.pages.routes import plan_page
from murmurate.service.public_api.pages.zone_page import zone_page
from murmurate.translations.language import LANGUAGES

FIRST, LEAD, DAYS, RUNS = 1_794_614_400 // 900, 2, 60, 60


@pytest.fixture(scope="module")
def terms():
    return ReleaseTerms.from_json(make_plan(parse_zone(EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST)).to_json())


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0.0, 0.3, 0.6])
def test_the_error_in_the_log_covers_the_true_one(terms, wrong):
    """Demand is as forecast but for hours that are off by chance, which no forecast could know."""
    prediction, slots, rng = terms.prediction, len(terms.scale_wh), np.random.default_rng(3)
    usual_wh = prediction.scale * prediction.model.mean_wh
    noise_square = 2 * terms.scale_wh[0] ** 2 / usual_wh**2
    zone = replace(prediction, surprise_square=noise_square, predicted_error=0.0)
    zones, every, factor = [zone] * RUNS, np.ones(RUNS, np.bool_), np.ones(RUNS)
    states, predicted, true = np.zeros((RUNS, STATES), np.int64), [], []
    states[:, SQUARE] = wrong**2 / STATE_UNIT  # as after a long time
    for interval in range(FIRST, FIRST + DAYS * slots):
        demand_wh = prediction.model.expect_sum(interval).demand_wh * prediction.scale
        demand_wh = demand_wh + usual_wh * wrong * rng.choice([-1, 1], RUNS)
        noise_wh = rng.laplace(0, terms.scale_wh[0], RUNS)
        noisy_wh = np.rint(demand_wh + noise_wh).astype(np.int64)
        states = advance_states(zones, states, interval, noisy_wh, every, factor)
        predicted.append(predict_zones(zones, states, interval, LEAD))
        true.append(demand_wh)
    off = (np.array(predicted[:-LEAD]) - np.array(true[LEAD:]))[-28 * slots :] / usual_wh
    errors = np.sqrt((off**2).mean(axis=0))
    assert errors.mean() == pytest.approx(wrong, abs=0.12)
    low, high = np.array([zone.measured_error(int(each)) for each in states[:, SQUARE]]).T
    assert np.mean(errors <= high) >= 0.9
    assert np.mean(low <= errors) >= 0.9
    assert np.mean(high - low) < 0.5
    assert wrong < 0.5 or low.mean() > 0.3  # it can tell


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES.values(), ids=LANGUAGES)
def test_pages_say_the_planned_error_and_the_zone_page_what_the_log_shows(terms, language):
    new = with_terms(view_of((9000,) * 30, begin_s=FIRST * 900), terms)
    view = with_terms(view_of((9000,) * (28 * 96 + 2), begin_s=FIRST * 900), terms)
    now_s = view.start_s(view.first_priced + 20)
    planned = f" {100 * terms.prediction.predicted_error:.0f} %"
    assert planned in Parsed(plan_page(view, now_s, BASE, KEY, language)).text
    assert planned not in Parsed(zone_page(view, now_s, BASE, KEY, language)).text  # its rows have no states
    rows = np.zeros(len(view.shard.table.zones), [("states", "<i4", (STATES,))])
    rows["states"][:, SQUARE] = 40_000_000
    too_new = replace(new, shard=replace(new.shard, head=replace(new.shard.head, last_rows=rows)))
    assert planned not in Parsed(zone_page(too_new, now_s, BASE, KEY, language)).text
    shown = replace(view, shard=replace(view.shard, head=replace(view.shard.head, last_rows=rows)))
    low, high = terms.prediction.measured_error(40_000_000)
    text = Parsed(zone_page(shown, now_s, BASE, KEY, language)).text
    assert planned in text
    assert f"{100 * low:.0f} " in text
    assert f"{100 * high:.0f} %" in text
