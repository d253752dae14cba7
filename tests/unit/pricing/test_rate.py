from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.quadratic_cost import QuadraticCost

from murmurate.errors import TariffError
from murmurate.pricing.rate import RateCurve, Segment

prices = st.fractions(-5, 5, max_denominator=1000)
ticks = st.sampled_from([Fraction(1, 100_000), Fraction(1, 1000), Fraction(1, 3)])


@st.composite
def curves(draw):
    starts = sorted(draw(st.sets(st.integers(-(10**6), 10**9), min_size=1, max_size=4)))
    tick = draw(ticks)
    limits = sorted(draw(st.lists(st.integers(-500, 500), min_size=2, max_size=2)))
    low, high = (draw(st.sampled_from([None, edge * tick])) for edge in limits)
    return RateCurve.from_segments(
        [Segment(wh, draw(prices), draw(prices)) for wh in starts], tick=tick, floor=low, cap=high
    )


def by_hand(curve, wh):
    """The definition in fractions: the piece that holds wh, rounded half up to a tick, then clamped."""
    holding = [s for s in curve.segments if s.from_wh <= wh] or [curve.segments[0]]
    price = holding[-1].price + holding[-1].slope * Fraction(wh - holding[-1].from_wh, 1000)
    price = floor(price / curve.tick + Fraction(1, 2)) * curve.tick
    price = price if curve.floor is None else max(price, curve.floor)
    return price if curve.cap is None else min(price, curve.cap)


@given(curve=curves(), demand_wh=st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=5))
def test_the_price_is_the_fraction_that_the_curve_defines(curve, demand_wh):
    ticks_found = curve.price_ticks(np.array(demand_wh))
    expected = [by_hand(curve, wh) / curve.tick for wh in demand_wh]
    assert ticks_found.dtype == np.int64
    assert ticks_found.tolist() == [min(max(e, -(2**63)), 2**63 - 1) for e in expected]


def test_prices_stay_exact_where_64_bits_do_not_suffice_for_the_arithmetic():
    curve = RateCurve.affine(alpha=Fraction(10**6 + 1, 10**9 + 7), beta=Fraction(1, 10**9 + 9), tick="0.00001")
    wh = 4_611_686_018_427_387
    assert curve.price(wh) == by_hand(curve, wh)


@given(curve=curves(), inelastic_wh=st.integers(0, 10**6), demand_wh=st.integers(-(10**6), 10**6))
def test_a_public_inelastic_demand_shifts_the_curve(curve, inelastic_wh, demand_wh):
    assert curve.price(demand_wh, inelastic_wh) == curve.price(demand_wh + inelastic_wh)


@given(alpha=st.fractions(Fraction(1, 100), 5), beta=prices, demand_wh=st.integers(-(10**6), 10**6))
def test_the_quadratic_cost_has_the_affine_marginal_rate(alpha, beta, demand_wh):
    """J'(Z) = alpha Z + beta (Eq. 1), by a central difference, which is exact for a quadratic."""
    cost = QuadraticCost(alpha=alpha, beta=beta, gamma=Fraction(3))
    slope = (cost.cost(demand_wh + 1) - cost.cost(demand_wh - 1)) / Fraction(2, 1000)
    curve = RateCurve.affine(alpha=alpha, beta=beta, tick="0.001")
    assert curve.marginal_cost(demand_wh) == slope
    assert abs(curve.price(demand_wh) - slope) <= Fraction(1, 2000)
    assert curve.alpha == alpha


@pytest.mark.parametrize("alpha", [np.int64(10**15), np.float64(1e15), 10**15, "1e15"])
def test_a_number_from_numpy_is_as_exact_as_any_other(alpha):
    """A NumPy integer inside a Fraction would wrap at 64 bits."""
    curve = RateCurve.affine(alpha=alpha, beta=0, tick=1, cap=10**18)
    assert int(curve.price_ticks(10**5)) == 10**17
    assert int(curve.price_ticks(10**9)) == 10**18


def test_halves_round_upwards_always_never_to_even():
    curve = RateCurve.affine(alpha=1, beta=0, tick="0.002")
    assert curve.price_ticks([-3, -1, 1, 3, 5]).tolist() == [-1, 0, 1, 2, 3]


def test_a_curve_between_knots_is_continuous_and_flat_outside():
    curve = RateCurve.from_knots([(1000, "0.10"), (3000, "0.20"), (4000, "0.50")], tick="0.01")
    assert curve.price_ticks([-9, 1000, 2000, 3000, 3500, 4000, 99_000]).tolist() == [10, 10, 15, 20, 35, 50, 50]


def test_a_merit_order_of_steps_may_jump():
    plants = [Segment(0, Fraction(3, 100), Fraction(0)), Segment(50_000, Fraction(9, 100), Fraction(0))]
    curve = RateCurve.from_segments(plants, tick="0.01")
    assert curve.price_ticks([-1, 49_999, 50_000]).tolist() == [3, 3, 9]
    with pytest.raises(TariffError, match="only an affine rate has one slope"):
        _ = curve.alpha


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RateCurve.affine(alpha=1, beta=0, tick=0), "tick is 0: must be positive, for example 0.001 money/kWh"),
        (
            lambda: RateCurve.affine(alpha=1, beta=0, tick="0.01", cap="0.005"),
            "cap is 1/200: must be a whole number of ticks of 1/100 money/kWh",
        ),
        (
            lambda: RateCurve.affine(alpha=1, beta=0, tick=1, floor=2, cap=1),
            "floor is 2: must not be above the cap 1",
        ),
        (
            lambda: RateCurve.affine(alpha="cheap", beta=0, tick=1),
            'alpha is cheap: must be a finite number such as 0.5 or "1/3"',
        ),
        (lambda: RateCurve.from_segments([], tick=1), "segments is []: must be one or more, with rising from_wh"),
        (
            lambda: RateCurve.from_knots([(5, 1), (5, 2)], tick=1),
            "knots is [5, 5]: must be one or more, with rising demand",
        ),
        (
            lambda: RateCurve.affine(alpha=1, beta=0, tick=1).price_ticks([0.5]),
            "demand_wh is float64: must be whole numbers that fit in 64 bits, not rounded ones",
        ),
    ],
)
def test_a_tariff_that_is_no_tariff_says_what_is_allowed(make, says):
    with pytest.raises(TariffError) as caught:
        make()
    assert str(caught.value) == says
