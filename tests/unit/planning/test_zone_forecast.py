"""`[forecast] from = "occupancy"`: prices are predicted by the demand that the zone file itself expects."""

import json

import numpy as np
import pytest

from murmurate.errors import PrivacyError, ZoneFileError
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.plan_prediction import expected_day
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.zone_file import EXAMPLE_FORECAST, EXAMPLE_ZONE_FILE, parse_zone

BOTH = '["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]'
EXAMPLE = (EXAMPLE_ZONE_FILE + EXAMPLE_FORECAST).replace(BOTH, '["any 24 h: epsilon 1"]')  # soon planned


@pytest.mark.slow
@pytest.mark.parametrize("time_zone", ["Europe/Lisbon", "Europe/Athens", "America/Los_Angeles", "Asia/Kathmandu"])
@pytest.mark.parametrize("minutes", [15, 60])
def test_the_expected_day_is_that_of_the_models_on_the_clocks_of_the_zone(time_zone, minutes):
    text = EXAMPLE.replace("Europe/Lisbon", time_zone).replace("interval_minutes = 15", f"interval_minutes = {minutes}")
    plan = make_plan(parse_zone(text))
    assert expected_day(plan.zone, plan.prediction) == pytest.approx(plan.zone.forecast_moments[0], rel=1e-4)
    assert load_plan(plan.to_json()).to_json() == plan.to_json()


@pytest.mark.slow
def test_a_level_is_relative_to_what_the_models_expect():
    plan = make_plan(parse_zone(EXAMPLE + "level = 1.2\nelasticity = 0.1\n"))
    usual_wh = expected_day(plan.zone, plan.prediction)
    assert usual_wh == pytest.approx(1.2 * plan.zone.forecast_moments[0], rel=1e-4)
    assert plan.prediction.price_response.elasticity == 0.1


@pytest.mark.slow
def test_a_plan_with_another_forecast_than_its_zone_file_gives_is_refused():
    document = json.loads(make_plan(parse_zone(EXAMPLE)).to_json())
    day_wh = np.array(document["prediction"]["forecast"]["demand"]["day_wh"])
    document["prediction"]["forecast"]["demand"]["day_wh"] = (day_wh + np.sin(np.arange(96))).round(3).tolist()
    document["digest"] = compute_plan_digest({key: document[key] for key in document if key != "digest"})
    with pytest.raises(PrivacyError, match="prediction is not that of the zone file"):
        load_plan(json.dumps(document))


def test_households_that_use_nothing_cannot_be_forecast():
    text = EXAMPLE
    for number in ("300", "600", "5000", "20000"):
        text = text.replace(f"uniform_to = {number} }}", "uniform_to = 0 }")
    with pytest.raises(ZoneFileError, match="must expect some demand of a household"):
        parse_zone(text)
