"""How demand answers to the price of its own interval, and the price at which the two meet.

A price for predicted demand changes that demand. So the answer to earlier prices is taken out of what was measured, and
the price is the one at which the curve and the answer agree: price = curve(demand without answer * factor(price)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.errors import ModelError
from murmurate.pricing.rate import RateCurve
from murmurate.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class PriceResponse:
    """Demand falls by about `elasticity` percent where the price rises by one percent from `reference_ticks`.

    The factor is (1 + a)/(1 + a r) with r the price over the reference and a = e/(1 - e): a quotient, so that every
    machine computes the same bits.

    >>> PriceResponse(0.0, 1000).factor(np.array([500.0, 2000.0])).tolist()
    [1.0, 1.0]
    >>> PriceResponse(0.2, 1000).factor(np.array([1000.0, 1010.0])).round(4).tolist()
    [1.0, 0.998]
    """

    elasticity: float  # 0: demand does not answer
    reference_ticks: int

    def __post_init__(self) -> None:
        if not 0 <= self.elasticity < 1:
            raise ModelError("elasticity", self.elasticity, "must be 0 or more and below 1, for example 0.1")
        if self.reference_ticks < 1:
            raise ModelError("reference price", self.reference_ticks, "must be at least one tick")

    def factor(self, price_ticks: FloatArray) -> FloatArray:
        """Return demand at prices over demand at the reference price."""
        return response_factor(self.elasticity, self.reference_ticks, price_ticks)

    def meet(self, curve: RateCurve, demand_wh: FloatArray) -> IntArray:
        """Return the price where curve and answer meet; see `meeting_price`."""
        return meeting_price(curve, demand_wh, self.elasticity, self.reference_ticks)


def response_factor(
    elasticity: FloatArray | float, reference_ticks: FloatArray | float, price_ticks: FloatArray
) -> FloatArray:
    """Return demand at prices over demand at the reference price, for one answer or for one of each zone."""
    share = elasticity / (1 - elasticity)
    relative = np.maximum(price_ticks, 0.0) / reference_ticks
    return np.asarray((1 + share) / (1 + share * relative))


def meeting_price(
    curve: RateCurve,
    demand_wh: FloatArray,
    elasticity: FloatArray | float,
    reference_ticks: FloatArray | float,
) -> IntArray:
    """Return the lowest price [ticks] that is at least the curve's at the demand which answers to it.

    `demand_wh` is the demand at the reference price. The curve must rise or stay level with demand.
    """

    def curve_at(price_ticks: IntArray) -> IntArray:
        answered = demand_wh * response_factor(elasticity, reference_ticks, price_ticks.astype(np.float64))
        return curve.price_ticks(np.rint(answered).astype(np.int64))

    low = curve_at(np.full(len(demand_wh), 2**40))  # at a huge price demand is least
    high = curve_at(np.zeros(len(demand_wh), np.int64))
    while (low < high).any():
        middle = (low + high) // 2
        enough = curve_at(middle) <= middle
        high, low = np.where(enough, middle, high), np.where(enough, low, np.minimum(middle + 1, high))
    return high
