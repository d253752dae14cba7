"""A plan that breaks its promise cannot be made; one that is made wastes little; anybody can prove it again."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from research.paper.simulated_zones import paper_calendar, paper_habits

from murmurate.errors import MeterError, PrivacyError
from murmurate.household.occupancy import OccupancyChains
from murmurate.planning.plan import load_plan, make_plan, prove_plan
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.utility import plan_utility
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import parse_promise

U = 1000
PAPER = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)
WINDOW, MOMENT = "any 24 h: epsilon 1, delta 1e-6", "any moment: 1"


def habits(day=96):
    arrive, leave = (chances[:, None] for chances in paper_habits())
    period = paper_calendar()[:: 96 // day]
    return OccupancyChains.independent(initial=[0.5], arrive=arrive, leave=leave, period=period)


def zone(*promises, shop=(), day=96, **more):
    """A thousand of the paper's homes, and perhaps a shop whose hours are public."""
    kinds = [HouseholdKind(name="home", count=1000, secret_pair=PAPER, models=(habits(day),), public=(False,) * day)]
    if shop:
        known = tuple(t in shop for t in range(day))
        big = SecretPair.worst_case(20 * U)
        kinds.append(HouseholdKind(name="shop", count=1, secret_pair=big, models=(habits(day),), public=known))
    return Zone(
        name="paper",
        currency="EUR",
        intervals_per_day=day,
        curve=RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001"),
        kinds=tuple(kinds),
        promises=tuple(parse_promise(words, day) for words in promises),
        **more,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("promises", "law", "rms"),
    [
        (["interval: 0.5"], NoiseDistribution.LAPLACE, 2.828),
        ([WINDOW], NoiseDistribution.GAUSSIAN, 41.4),
        ([MOMENT], NoiseDistribution.LAPLACE, 25.7 * 2**0.5),
        ([WINDOW, MOMENT], NoiseDistribution.HUBER, 43.3),  # 57.4 for Laplace noise
        (["any 24 h: epsilon 1"], NoiseDistribution.LAPLACE, 135.8),
    ],
)
def test_golden_plans(promises, law, rms):
    """docs/explanation/theory.md, sections 3.4 and 4.8, through the planner: rms noise in units of u."""
    plan = make_plan(zone(*promises))
    assert plan.distribution is law
    assert np.sqrt(plan.noise_variance) / U == pytest.approx(rms, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("promises", [["interval: 0.5"], [WINDOW], [MOMENT], [WINDOW, MOMENT, "interval: 0.03"]])
def test_a_plan_keeps_each_promise_and_two_percent_less_noise_would_break_one(promises):
    made = make_plan(zone(*promises))
    assert all(cost.spent <= cost.promised for cost in made.costs)
    with pytest.raises(PrivacyError, match="noise is too little for"):
        prove_plan(made.zone, made.distribution, made.scale_wh * 0.98, (made.core_wh * 0.98).astype(int))


@pytest.mark.slow
@settings(max_examples=10)
@given(
    epsilon=st.sampled_from(["0.3", "1", "4"]),
    window=st.sampled_from(["1 intervals", "5 intervals", "12 h", "3 days"]),
    delta=st.sampled_from(["", ", delta 1e-5"]),
    shop=st.sets(st.integers(0, 23), max_size=23),
)
def test_any_window_is_kept_wherever_the_public_hours_lie(epsilon, window, delta, shop):
    made = make_plan(zone(f"any {window}: epsilon {epsilon}{delta}", shop=shop or {0}, day=24))
    assert made.costs[0].spent <= float(Fraction(epsilon))
    quiet = np.array([t in (shop or {0}) for t in range(24)])
    if quiet.any() and not quiet.all():
        assert made.scale_wh[quiet].max() * 10 < made.scale_wh[~quiet].min()


@pytest.mark.slow
def test_a_premise_that_is_always_public_needs_no_noise_of_its_own():
    with_shop, without = (make_plan(zone(MOMENT, shop=shop, day=24)) for shop in (range(24), ()))
    assert with_shop.scale_wh == pytest.approx(without.scale_wh)


def test_gaussian_noise_is_refused_where_it_can_keep_no_promise():
    with pytest.raises(PrivacyError, match="noise is gaussian: cannot keep these promises; take laplace or huber"):
        make_plan(zone(WINDOW, MOMENT, distribution=NoiseDistribution.GAUSSIAN))
    with pytest.raises(PrivacyError, match="too little for 'any moment, habits known: 1'"):
        prove_plan(zone(MOMENT), NoiseDistribution.GAUSSIAN, np.full(96, 1e9))


@pytest.mark.slow
def test_gaussian_noise_keeps_no_pure_window():
    """Its loss grows with the output, so no scale keeps a window without a delta."""
    pure = zone("any 24 h: epsilon 10")
    for sigma in (5e3, 6e4, 1e9):
        with pytest.raises(PrivacyError, match="it would cost inf"):
            prove_plan(pure, NoiseDistribution.GAUSSIAN, np.full(96, sigma))
    assert make_plan(pure).distribution is NoiseDistribution.LAPLACE


def test_no_plan_has_less_than_a_watt_hour_of_noise_even_where_everybody_is_public():
    known = zone("interval: 0.5", shop=range(8, 20), day=24)
    hidden = dataclasses.replace(known, kinds=(dataclasses.replace(known.kinds[0], public=known.kinds[1].public),))
    scale_wh = make_plan(hidden).scale_wh.copy()
    for little in (0.0, 1 / 64, 0.99):
        scale_wh[12] = little
        with pytest.raises(PrivacyError, match=r"scale_wh\[12\] is .*: must be at least 1 Wh, or the exact demand"):
            prove_plan(hidden, NoiseDistribution.LAPLACE, scale_wh)
    scale_wh[12] = 1.0
    with pytest.raises(PrivacyError, match="noise is too little"):
        prove_plan(hidden, NoiseDistribution.LAPLACE, scale_wh)


@pytest.mark.parametrize("promise", ["interval: 100", "any 24 h: epsilon 100, delta 0.1"])
def test_a_plan_for_tiny_meters_has_a_watt_hour_of_noise(promise):
    tiny = zone(promise)
    tiny = dataclasses.replace(tiny, kinds=(dataclasses.replace(tiny.kinds[0], secret_pair=SecretPair.worst_case(1)),))
    assert make_plan(tiny).scale_wh.min() >= 1.0


def test_a_moment_cannot_be_promised_beside_hours_that_are_public_now_and_then():
    """Who knows the public hours knows the ends of the secret ones, which may then leak more than the chain says."""
    with pytest.raises(PrivacyError, match="public hours is of shop: must be public always or never"):
        make_plan(zone(MOMENT, shop=range(8, 20), day=24))


def test_a_plan_cannot_be_made_by_hand_with_fewer_scales():
    with pytest.raises(PrivacyError, match=r"scale_wh is shaped \(95,\)"):
        prove_plan(zone(MOMENT), NoiseDistribution.LAPLACE, np.full(95, 1e9))


# --- plan.json


@pytest.fixture(scope="module")
def example():
    return make_plan(parse_zone(EXAMPLE_ZONE_FILE))


@pytest.mark.slow
def test_a_plan_read_again_is_the_plan(example):
    again = load_plan(example.to_json())
    assert again.to_json() == example.to_json()
    assert (again.scale_wh == example.scale_wh).all()


def changed(plan, seal, **fields):
    document = json.loads(plan.to_json()) | fields
    if seal:
        document["digest"] = compute_plan_digest(document)
    return json.dumps(document)


@pytest.mark.slow
def test_a_changed_plan_is_noticed(example):
    less = [scale * 0.9 for scale in example.scale_wh.tolist()]
    more = [scale * 1.5 for scale in example.scale_wh.tolist()]
    with pytest.raises(PrivacyError, match="the file was changed"):
        load_plan(changed(example, seal=False, scale_wh=less))
    with pytest.raises(PrivacyError, match="noise is too little"):
        load_plan(changed(example, seal=True, scale_wh=less))
    with pytest.raises(PrivacyError, match="not what its zone file gives"):
        load_plan(changed(example, seal=True, scale_wh=more))  # keeps the promise, but not the costs it states
    with pytest.raises(PrivacyError, match="not what its zone file gives"):
        load_plan(changed(example, seal=True, currency="CHF"))
    with pytest.raises(PrivacyError, match="plan is unreadable"):
        load_plan('{"murmurate_plan": 1}')


# --- what it costs


def test_the_price_of_a_promise_adds_up():
    """Affine rate, one scale: each figure has a closed form."""
    made = make_plan(zone("interval: 0.5"))
    cost = plan_utility(made)
    rms_kwh = 2 * 2**0.5
    assert cost.release_error_wh == pytest.approx(1000 * rms_kwh, rel=1e-4)
    assert cost.price_error == pytest.approx(0.0002 * rms_kwh, rel=1e-4)
    assert cost.misallocation == pytest.approx(365 * 96 * 0.0002 * rms_kwh**2 / 2, rel=1e-4)
    assert cost.bill_error < 0.001 * cost.bill
    assert cost.wrong_forecast_error_wh > cost.forecast_error_wh


def test_the_forecast_of_the_papers_town_is_off_by_what_theory_says():
    """docs/explanation/theory.md, section 5.3: about 4.2 kWh at N = 1000, bounds uniform up to 1; here all are 1."""
    cost = plan_utility(make_plan(zone("interval: 0.5")))
    spread = np.sqrt(1 / 3)  # rms of a uniform bound
    assert cost.forecast_error_wh / 1000 * spread == pytest.approx(4.2, abs=0.6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kinds": ()}, "households is empty"),
        ({"promises": ()}, "promise is empty"),
        ({"intervals_per_day": 48}, "day of home is"),
    ],
)
def test_a_zone_that_does_not_fit_together_is_refused(change, says):
    with pytest.raises((MeterError, PrivacyError), match=says):
        dataclasses.replace(zone(MOMENT), **change)
