"""Demand falls where the price rises, and the price at which they meet is the lowest one that is enough."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ModelError
from murmurate.prediction.zone_prediction import PriceResponse
from murmurate.pricing.rate import RateCurve

CURVES = [
    RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001", floor="0", cap="2"),
    RateCurve.from_knots([(0, "0.05"), (200_000, "0.10"), (300_000, "0.90")], tick="0.001"),
    RateCurve.from_segments([(0, "0.03", 0), (50_000, "0.09", 0)], tick="0.01"),
]
curves = st.sampled_from(CURVES)
responses = st.builds(PriceResponse, st.floats(0, 0.9), st.integers(1, 100_000))
demands = st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(lambda each: np.array(each, np.float64))


@given(curve=curves, response=responses, demand=demands)
def test_the_meeting_price_is_the_lowest_one_that_is_enough(curve, response, demand):
    def wanted(price):
        return curve.price_ticks(np.rint(demand * response.factor(price.astype(np.float64))).astype(np.int64))

    price = response.meet(curve, demand)
    assert (wanted(price) <= price).all()
    least = curve.price_ticks(np.zeros(len(demand), np.int64))
    assert ((wanted(price - 1) > price - 1) | (price == least) | (wanted(np.full_like(price, 2**40)) == price)).all()


@given(curve=curves, demand=demands, reference=st.integers(1, 10_000))
def test_demand_that_does_not_answer_meets_the_curve_itself(curve, demand, reference):
    assert (PriceResponse(0.0, reference).meet(curve, demand) == curve.price_ticks(demand.astype(np.int64))).all()


net_demands = st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=5)
FALLING_BELOW_ZERO = RateCurve.affine(alpha="0.0002", beta="0.01", tick="0.00001")
MOSTLY_BELOW_ZERO = RateCurve.affine(alpha="0.0002", beta="-0.1", tick="0.00001")
net_curves = st.sampled_from([*CURVES, FALLING_BELOW_ZERO, MOSTLY_BELOW_ZERO])


@given(curve=net_curves, response=responses, demand=net_demands)
def test_a_zone_that_feeds_in_is_priced_by_the_curve_alone(curve, response, demand):
    price = response.meet(curve, np.array(demand, np.float64))
    for wh, ticks in zip(demand, price.tolist(), strict=True):
        assert wh > 0 or ticks == int(curve.price_ticks(wh))


@given(curve=net_curves, response=responses, demand=net_demands)
def test_the_meeting_price_never_falls_where_demand_rises(curve, response, demand):
    price = response.meet(curve, np.array(sorted(demand), np.float64))
    assert (np.diff(price) >= 0).all()


def test_a_price_falls_below_zero_only_where_the_tariff_lets_it():
    demand, response = np.array([-100_000.0, 20_000.0]), PriceResponse(0.2, 1000)
    assert (response.meet(FALLING_BELOW_ZERO, demand) < [0, 2000]).all()
    floored = RateCurve.affine(alpha="0.0002", beta="0.01", tick="0.00001", floor="0")
    assert response.meet(floored, demand)[0] == 0
    assert response.meet(floored, demand)[1] == response.meet(FALLING_BELOW_ZERO, demand)[1] > 0


@given(response=responses, prices=st.lists(st.integers(0, 10**7), min_size=2, max_size=2))
def test_a_higher_price_means_less_demand(response, prices):
    low, high = response.factor(np.array(sorted(prices), np.float64))
    assert 0 < high <= low
    assert response.factor(np.array([float(response.reference_ticks)]))[0] == pytest.approx(1)


def test_impossible_answers_are_refused():
    for elasticity, reference in ((-0.1, 1), (1.0, 1), (0.1, 0)):
        with pytest.raises(ModelError):
            PriceResponse(elasticity, reference)
