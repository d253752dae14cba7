"""What electricity costs, how demand answers to its price, and what a wrong price wastes."""

from __future__ import annotations

from enum import Enum

import numpy as np

from murmurate.units import FloatArray

REFERENCE_PRICE = 0.10  # money/kWh: demand is what it is at this price
_MIN_PRICE = 1e-3
_NEWTON_STEPS, _LAST_STEP = 8, 1e-6  # what is wrong after a step goes with its square
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class Supply(Enum):
    """Marginal cost [money/kWh] at a load, in multiples of the mean demand."""

    LINEAR = "linear"
    CONVEX = "convex"

    def price(self, load: FloatArray) -> FloatArray:
        if self is Supply.LINEAR:
            return np.asarray(0.02 + 0.08 * load)
        return np.asarray(0.05 + 0.03 * load + 0.8 * np.maximum(load - 1.2, 0) ** 2)

    def slope(self, load: FloatArray) -> FloatArray:
        """How much the price rises with the load."""
        if self is Supply.LINEAR:
            return np.full_like(load, 0.08)
        return np.asarray(0.03 + 1.6 * np.maximum(load - 1.2, 0))


def answer(price: FloatArray, elasticity: FloatArray | float) -> FloatArray:
    """Return demand at a price over demand at the reference price."""
    return np.asarray((np.maximum(price, _MIN_PRICE) / REFERENCE_PRICE) ** -elasticity)


def meeting_price(supply: Supply, load: FloatArray, elasticity: FloatArray | float) -> FloatArray:
    """Return the price at which supply and answering demand meet, by Newton's method.

    `load` is the demand at the reference price. What a zone feeds in does not answer: below 0 the price is supply's.
    """
    elasticity = np.where(load > 0, elasticity, 0.0)
    price = np.maximum(supply.price(load), _MIN_PRICE)
    for _ in range(_NEWTON_STEPS):
        used = load * answer(price, elasticity)
        slope = -supply.slope(used) * used * elasticity / price - 1
        step = (supply.price(used) - price) / slope
        price = np.maximum(price - step, _MIN_PRICE)
        if np.abs(step).max() < _LAST_STEP:
            break
    return np.asarray(price)


def waste(supply: Supply, load: FloatArray, price: FloatArray, best: FloatArray, elasticity: float) -> FloatArray:
    """Return the welfare lost by a price, in multiples of the mean demand times money/kWh.

    The integral of what the next kWh is worth minus what it costs, from the demand at `price` to that at `best`. What a
    zone feeds in does not answer, so nothing is lost there.
    """
    load, feeds_in = np.where(load > 0, load, 1.0), load <= 0
    begin, end = load * answer(price, elasticity), load * answer(best, elasticity)
    lost = np.zeros_like(load)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        used = (begin + end) / 2 + (end - begin) / 2 * node
        worth = REFERENCE_PRICE * (used / load) ** (-1 / elasticity)
        lost += weight * (worth - supply.price(used))
    return np.where(feeds_in, 0.0, lost * (end - begin) / 2)
