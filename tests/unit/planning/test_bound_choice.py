"""`bound_wh = "choose"`: the least predicted error of all bounds, and then a plan as if the number were stated."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.predicted_zones import public_forecast, zone_text

from murmurate.errors import PrivacyError, ZoneFileError
from murmurate.planning.bound_choice import TriedBound, choose_bound, find_least_error, try_bounds
from murmurate.planning.plan import load_plan, make_plan
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.public_forecast import ConsentedSample, CutAbove, CutBelow

BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, 5000, 10_000)


@cache
def made_forecast():
    """What a consented sample tells: readings of an hour are drawn from an exponential law, so few are large."""
    public = public_forecast()
    usual_wh = public.demand.mean_wh.mean(axis=(0, 1))
    above = tuple(CutAbove(bound, usual_wh * np.exp(-bound / usual_wh)) for bound in BOUNDS_WH)
    return replace(public, above=above, below=(CutBelow(0, 1.0),), sample=ConsentedSample(2500, Fraction(1)))


def read_zone(text):
    return parse_zone(text, read_forecast=lambda _: made_forecast())


def choosing(households=3000, **choices):
    return zone_text(households, **choices).replace("bound_wh = 1000", 'bound_wh = "choose"  # by the plan')


@given(
    st.lists(st.tuples(st.integers(1, 10**5), st.floats(1e-4, 1)), min_size=1, unique_by=lambda pair: pair[0]),
    st.floats(1, 2),
)
def test_no_bound_has_a_smaller_error_than_the_chosen_one(pairs, stop_at):
    errors = dict(sorted(pairs))
    tried = try_bounds(errors, lambda bound: TriedBound(bound, 1.0, errors[bound]), stop_at=stop_at)
    everything = try_bounds(errors, lambda bound: TriedBound(bound, 1.0, errors[bound]))
    assert tried == everything[: len(tried)]
    least = find_least_error(tried)
    assert all(least.predicted_error <= each.predicted_error for each in tried)


@pytest.mark.parametrize(("side", "name"), [("above", "bound_wh"), ("below", "export_bound_wh")])
def test_a_plan_that_predicts_for_another_range_than_its_zone_file_states_is_refused(side, name):
    document = json.loads(make_plan(read_zone(choosing().replace('"choose"', "1000"))).to_json())
    document["prediction"]["forecast"][side][0][name] += 100
    document["digest"] = compute_plan_digest({key: document[key] for key in document if key != "digest"})
    with pytest.raises(PrivacyError, match="prediction is not that of the zone file"):
        load_plan(json.dumps(document))


@pytest.mark.slow
@pytest.mark.parametrize("households", [300, 3000, 300_000])
def test_the_chosen_bound_has_the_least_error_of_plans_that_state_each_bound(households):
    choice = choose_bound(choosing(households), read_zone)
    assert tuple(each.bound_wh for each in choice.tried) == BOUNDS_WH
    stated = {
        each.bound_wh: make_plan(read_zone(choosing(households).replace('"choose"', str(each.bound_wh))))
        for each in choice.tried
    }
    for each in choice.tried:
        plan = stated[each.bound_wh]
        assert choice.chosen.predicted_error <= each.predicted_error
        assert each.predicted_error == pytest.approx(plan.prediction.predicted_error, rel=1e-3)
        assert each.noise_sd_wh == pytest.approx(np.sqrt(plan.noise_variance.mean()), rel=1e-3)
    assert choice.chosen.bound_wh == min(stated, key=lambda wh: stated[wh].prediction.predicted_error)


@pytest.mark.slow
def test_few_households_get_a_low_bound_and_many_a_high_one():
    bounds = [choose_bound(choosing(count), read_zone).chosen.bound_wh for count in (300, 30_000, 10**7)]
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]


@pytest.mark.slow
def test_a_chosen_bound_gives_the_plan_of_the_same_number_stated():
    choice = choose_bound(choosing(), read_zone)
    stated = choosing().replace('"choose"', str(choice.chosen.bound_wh))
    assert choice.zone_text == stated
    plan, same = make_plan(read_zone(choice.zone_text)), make_plan(read_zone(stated))
    assert (plan.distribution, plan.scale_wh.tolist()) == (same.distribution, same.scale_wh.tolist())
    assert plan.to_json() == same.to_json()
    assert "choose" not in plan.to_json()
    again = load_plan(plan.to_json())
    assert again.zone.kinds[0].bound_wh == choice.chosen.bound_wh
    assert again.to_json() == plan.to_json()


@pytest.mark.slow
def test_other_households_with_secrets_count_in_the_noise_of_each_bound():
    text = choosing(promise="interval: 0.5").replace('public = "always"', "")
    tried = choose_bound(text, read_zone).tried
    assert len({round(each.noise_sd_wh) for each in tried}) == 1  # the market's 20 kWh decide
    for each in tried:
        plan = make_plan(read_zone(text.replace('"choose"', str(each.bound_wh))))
        assert each.noise_sd_wh == pytest.approx(np.sqrt(plan.noise_variance.mean()))


def test_a_law_that_reaches_above_the_bound_of_a_sensor_is_cut_off_there():
    text = zone_text().replace("bound_wh = 1000", "bound_wh = 300")
    text = text.replace("away = { uniform_to = 300 }", "away = { histogram = [1, 3], step_wh = 200 }", 1)
    away, home = (getattr(read_zone(text).kinds[0].secret_pair, name) for name in ("away", "home"))
    assert home[[0, 299, 300]] == pytest.approx([1 / 601, 1 / 601, 301 / 601])
    assert away[[0, 199, 200, 299, 300]] == pytest.approx([1 / 800, 1 / 800, 3 / 800, 3 / 800, 0.375])
    assert (away.sum(), home.sum()) == pytest.approx((1, 1))
    with pytest.raises(ZoneFileError, match="home is 600: uniform_to must lie between 0 and bound_wh, 300"):
        parse_zone(re.sub(r"\n\[forecast\][^\[]*", "", zone_text().replace("bound_wh = 1000", "bound_wh = 300")))


def test_a_file_without_a_choice_is_left_alone():
    assert choose_bound(zone_text(), read_zone) is None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('file = "forecast.json"\nelasticity = 0.0', 'from = "occupancy"', "murmurate forecast --sample readings.csv"),
        ("\n[forecast]\n", "\n[tariff.x]\n", "needs a forecast file of a sample"),
        ("count = 3000", 'meters = "meters.csv"', "cannot be chosen with meters"),
        ("count = 1\n", "count = 5000\n", "can be chosen for 'fish market' alone, the kind of most households"),
        ("bound_wh = 20000", 'bound_wh = "choose"', "line 30: bound_wh is 'choose' twice"),
    ],
)
def test_a_bound_that_cannot_be_chosen_says_what_to_do(old, new, says):
    text = choosing()
    assert old in text
    with pytest.raises(ZoneFileError, match=re.escape(says)):
        choose_bound(text.replace(old, new), read_zone)


def test_a_forecast_without_a_sample_cannot_choose():
    with pytest.raises(
        ZoneFileError, match="line 22: bound_wh is 'choose': needs a forecast that knows single readings"
    ):
        choose_bound(choosing(), lambda text: parse_zone(text, read_forecast=lambda _: public_forecast()))


def test_a_choice_in_another_form_and_a_choice_without_a_plan_are_refused():
    inline = 'households = [{ bound_wh = "choose" }]\nforecast = { file = "x" }'
    with pytest.raises(ZoneFileError, match="must stand alone on its line"):
        choose_bound(inline, read_zone)
    with pytest.raises(ZoneFileError, match="line 22: bound_wh is 'choose': must be a number; plan without"):
        read_zone(choosing())
