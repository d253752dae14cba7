"""A day's promise and a year's beside each other: golden errors, and noise that a plan would take."""

from dataclasses import replace

import pytest

from murmurate.planning.noise_search import gaussian_deviation
from murmurate.planning.plan import make_plan
from murmurate.planning.plan_prediction import A_DAY, A_WEAKER_YEAR, A_YEAR, compare_promises
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
    [(1000, (7.99, 7.37, 6.22)), (10_000, (4.15, 3.64, 3.10)), (100_000, (2.73, 2.66, 2.63))],
)
def test_a_year_costs_little_from_ten_thousand_homes_on(homes, percent):
    zone = parse_zone(EXAMPLE.replace("count = 800", f"count = {homes}"))
    found = compare_promises(zone)
    assert list(found) == [A_YEAR, A_WEAKER_YEAR, A_DAY]
    assert [100 * error for error in found.values()] == pytest.approx(percent, abs=0.02)


def test_a_zone_that_does_not_predict_compares_nothing():
    assert compare_promises(parse_zone(EXAMPLE_ZONE_FILE)) == {}
