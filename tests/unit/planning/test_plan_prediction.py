"""Plans that predict: the forecast of the zone file itself, and what a day's promise and a year's cost."""

import json
from dataclasses import replace

import numpy as np
import pytest

from murmurate.errors import PrivacyError, ZoneFileError
from murmurate.planning.noise_search import gaussian_deviation
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.plan_prediction import (
    A_DAY,
    A_WEAKER_YEAR,
    A_YEAR,
    compare_promises,
    expected_day,
    forecast_errors,
)
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.promise import parse_promise

EXAMPLE = EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST


@pytest.mark.parametrize(("text", "deviation"), [(A_DAY, 41.4), (A_WEAKER_YEAR, 122), (A_YEAR, 223)])
def test_the_noise_of_a_day_and_of_a_year_is_what_was_computed_independently(text, deviation):
    assert gaussian_deviation(parse_promise(text, 96)) == pytest.approx(deviation, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("text", [A_DAY, A_YEAR])
def test_a_plan_takes_the_noise_that_is_compared(text):
    zone = parse_zone(EXAMPLE_ZONE_FILE)
    made = make_plan(replace(zone, promises=(parse_promise(text, 96),)))
    assert made.scale_wh / 1000 == pytest.approx(gaussian_deviation(parse_promise(text, 96)), rel=2e-4)
    assert made.costs[0].spent <= made.costs[0].promised


@pytest.mark.slow
@pytest.mark.parametrize(
    ("homes", "percent"),
    [(1000, (7.24, 6.81, 6.15)), (10_000, (4.06, 3.78, 3.52)), (100_000, (3.17, 3.15, 3.15))],
)
def test_a_year_costs_little_from_ten_thousand_homes_on(homes, percent):
    zone = parse_zone(EXAMPLE.replace("count = 800", f"count = {homes}"))
    found = compare_promises(zone)
    assert list(found) == [A_YEAR, A_WEAKER_YEAR, A_DAY]
    assert [100 * error for error in found.values()] == pytest.approx(percent, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("homes", [5, 800, 100_000])
def test_the_error_of_a_plan_lies_between_that_of_its_forecast_and_of_exact_data(homes):
    plan = make_plan(parse_zone(SOON_PLANNED.replace("count = 800", f"count = {homes}")))
    errors = forecast_errors(plan.zone, plan.prediction, plan.noise)
    assert errors.exact < errors.private < errors.forecast


def test_a_zone_that_does_not_predict_compares_nothing():
    assert compare_promises(parse_zone(EXAMPLE_ZONE_FILE)) == {}


BOTH = '["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
SOON_PLANNED = (EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST).replace(BOTH, '["any 24 h: epsilon 1"]')  # soon planned


@pytest.mark.slow
@pytest.mark.parametrize("time_zone", ["Europe/Lisbon", "Europe/Athens", "America/Los_Angeles", "Asia/Kathmandu"])
@pytest.mark.parametrize("minutes", [15, 60])
def test_the_expected_day_is_that_of_the_models_on_the_clocks_of_the_zone(time_zone, minutes):
    text = SOON_PLANNED.replace("Europe/Lisbon", time_zone).replace(
        "interval_minutes = 15", f"interval_minutes = {minutes}"
    )
    plan = make_plan(parse_zone(text))
    assert expected_day(plan.zone, plan.prediction) == pytest.approx(plan.zone.forecast_moments[0], rel=1e-4)
    assert load_plan(plan.to_json()).to_json() == plan.to_json()


@pytest.mark.slow
def test_a_level_is_relative_to_what_the_models_expect():
    plan = make_plan(parse_zone(SOON_PLANNED + "level = 1.2\nelasticity = 0.1\n"))
    usual_wh = expected_day(plan.zone, plan.prediction)
    assert usual_wh == pytest.approx(1.2 * plan.zone.forecast_moments[0], rel=1e-4)
    assert plan.prediction.price_response.elasticity == 0.1


@pytest.mark.slow
def test_a_plan_with_another_forecast_than_its_zone_file_gives_is_refused():
    document = json.loads(make_plan(parse_zone(SOON_PLANNED)).to_json())
    day_wh = np.array(document["prediction"]["forecast"]["demand"]["day_wh"])
    document["prediction"]["forecast"]["demand"]["day_wh"] = (day_wh + np.sin(np.arange(96))).round(3).tolist()
    document["digest"] = compute_plan_digest({key: document[key] for key in document if key != "digest"})
    with pytest.raises(PrivacyError, match="prediction is not that of the zone file"):
        load_plan(json.dumps(document))


def test_households_that_use_nothing_cannot_be_forecast():
    text = SOON_PLANNED
    for number in ("300", "600", "5000", "20000"):
        text = text.replace(f"uniform_to = {number} }}", "uniform_to = 0 }")
    with pytest.raises(ZoneFileError, match="must expect some demand of a household"):
        parse_zone(text)
