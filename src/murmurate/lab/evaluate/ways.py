"""Ways to price a zone, what electricity costs, how demand answers, and what a wrong price wastes.

The ways are fixed prices, the echo of a measurement, and a prediction of the interval that pays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import numpy as np

from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import StructuralFilter
from murmurate.units import FloatArray

REFERENCE_PRICE = 0.10  # money/kWh: demand is what it is at this price
_MIN_PRICE = 1e-3
_NEWTON_STEPS, _PRECISION = 8, 1e-9
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

    `load` is the demand at the reference price.
    """
    price = np.maximum(supply.price(load), _MIN_PRICE)
    for _ in range(_NEWTON_STEPS):
        used = load * answer(price, elasticity)
        slope = -supply.slope(used) * used * elasticity / price - 1
        step = (supply.price(used) - price) / slope
        price = np.maximum(price - step, _MIN_PRICE)
        if max(step.max(), -step.min()) < _PRECISION:
            break
    return np.asarray(price)


def waste(supply: Supply, load: FloatArray, price: FloatArray, best: FloatArray, elasticity: float) -> FloatArray:
    """Return the welfare lost by a price, in multiples of the mean demand times money/kWh.

    The integral of what the next kWh is worth minus what it costs, from the demand at `price` to that at `best`.
    """
    begin, end = load * answer(price, elasticity), load * answer(best, elasticity)
    lost = np.zeros_like(load)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        used = (begin + end) / 2 + (end - begin) / 2 * node
        worth = REFERENCE_PRICE * (used / load) ** (-1 / elasticity)
        lost += weight * (worth - supply.price(used))
    return np.asarray(lost * (end - begin) / 2)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneSeason:
    """What happens in some zones of one size, and what the public expects. Demand is that at the reference price."""

    demand_wh: FloatArray  # [interval, zone]
    expected_wh: FloatArray  # [interval, zone]
    cold_k: FloatArray  # [interval] as forecast
    mean_wh: FloatArray  # [zone] of the demand
    lead: int


class PricingWay(Protocol):
    """Observes each release and sets the price of a later interval."""

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        """Take in interval `t`: the price that was paid, and what demand answered, relative to the reference price."""
        ...

    def estimate(self, due: int) -> FloatArray:
        """Return the demand that the price of an interval is made for [Wh, zone]."""
        ...

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:
        """Return the price of an interval [zone]."""
        ...


@dataclass(slots=True, eq=False)
class FixedPrices:
    """Prices that were known before: a flat tariff, a tariff by time of use, or the forecast's."""

    prices: FloatArray  # [interval, zone]
    estimate_wh: FloatArray  # [interval, zone]

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        pass

    def estimate(self, due: int) -> FloatArray:
        return np.asarray(self.estimate_wh[due])

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        return np.asarray(self.prices[due])


@dataclass(slots=True, eq=False)
class Echo:
    """The price of the demand that was measured last, as the paper has it."""

    supply: Supply
    mean_wh: FloatArray
    sums_wh: FloatArray  # [interval, zone] what is summed, at the reference price
    noise_wh: FloatArray
    last_wh: FloatArray = field(default_factory=lambda: np.zeros(0))

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:  # noqa: ARG002 - as every way
        self.last_wh = self.sums_wh[t] * answered + self.noise_wh[t]

    def estimate(self, due: int) -> FloatArray:  # noqa: ARG002 - as every way
        return self.last_wh

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        return self.supply.price(estimate_wh / self.mean_wh)


@dataclass(slots=True, eq=False)
class Predicted:
    """The price of the demand that the filter predicts, with the answer to prices taken out and put back."""

    supply: Supply
    season: ZoneSeason
    filter: StructuralFilter
    sensor: ClippedSensor
    states: FloatArray  # [state, zone] of the filter, after the interval that was observed last
    sums_wh: FloatArray | None  # None: no release of the zone is used
    expected_sums_wh: FloatArray
    noise_wh: FloatArray
    pooled: FloatArray | None = None
    pool_delay: bool = False  # whether the pooled number is known an interval later, as a region's load is
    assumed_elasticity: FloatArray | float = 0.0

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        if self.pool_delay and t > 0:
            self._pool(t - 1)
        measured = np.zeros(self.states.shape[1])
        if self.sums_wh is not None:
            release = (self.sums_wh[t] * answered + self.noise_wh[t]) / answer(price, self.assumed_elasticity)
            measured = self.sensor.read_deviation(release, self.expected_sums_wh[t], t % SLOTS)
        usable, cold_k = np.full(measured.shape, self.sums_wh is not None), float(self.season.cold_k[t])
        self.states = self.filter.step(self.states, t % SLOTS, cold_k, measured, usable)
        if not self.pool_delay:
            self._pool(t)

    def _pool(self, t: int) -> None:
        if self.pooled is not None:
            cold_k = float(self.season.cold_k[t])
            self.states = self.filter.pool(self.states, t % SLOTS, cold_k, float(self.pooled[t]))

    def estimate(self, due: int) -> FloatArray:
        cold_k = float(self.season.cold_k[due])
        relative = self.filter.predict(self.states, due % SLOTS, cold_k, self.season.lead)
        return np.asarray(self.season.expected_wh[due] * relative)

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        return meeting_price(self.supply, estimate_wh / self.season.mean_wh, self.assumed_elasticity)


@dataclass(frozen=True, slots=True, eq=False)
class PricedSeason:
    """What was expected, paid and used [interval, zone]."""

    estimate_wh: FloatArray  # the demand that the price was made for
    price: FloatArray
    demand_wh: FloatArray


def price_season(
    season: ZoneSeason, way: PricingWay, first_price: FloatArray, elasticity: FloatArray | float
) -> PricedSeason:
    """Play a season: demand answers to the price, and the way sees what was used. `first_price`: before any release."""
    price, used, estimate = first_price.copy(), np.zeros_like(season.demand_wh), season.expected_wh.copy()
    for t in range(len(used)):
        answered = answer(price[t], elasticity)
        used[t] = season.demand_wh[t] * answered
        way.observe(t, price[t], answered)
        due = t + season.lead
        if due < len(used):
            estimate[due] = way.estimate(due)
            price[due] = way.price(due, estimate[due])
    return PricedSeason(estimate, price, used)
