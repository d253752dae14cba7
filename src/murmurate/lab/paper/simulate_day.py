"""Simulate a day of a zone from a seed, with the `aggregate` of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from murmurate.aggregation import aggregate
from murmurate.household.occupancy import sample_occupancy
from murmurate.lab.paper.simulated_zones import PaperZone
from murmurate.types import Readings
from murmurate.units import BoolArray, IntArray

PublishPrice = Callable[[int, IntArray], IntArray]  # (interval, demand_wh [1]) -> price_ticks [1]


class SimulatedDay(NamedTuple):
    """The simulated day of a zone, including its confidential data."""

    occupied: BoolArray  # [interval, household]
    energy_wh: IntArray  # [interval, household]
    demand_wh: IntArray  # [interval]
    price_ticks: IntArray  # [interval]


def simulate_day(
    zone: PaperZone,
    horizon: int,
    occupancy_rng: np.random.Generator,
    consumption_rng: np.random.Generator,
    publish: PublishPrice | None = None,
) -> SimulatedDay:
    """Sample occupancy and consumption. With `publish`, consumption may respond to the published prices.

    Without `publish`, consumption does not depend on prices, and `price_ticks` are the optimal prices.
    """
    occupied = sample_occupancy(zone.theta.models[0], horizon, occupancy_rng)
    energy_wh = np.zeros(occupied.shape, np.int64)
    demand_wh, price_ticks = np.zeros(horizon, np.int64), np.zeros(horizon, np.int64)
    all_meters = np.arange(len(zone.meters))
    for t in range(horizon):
        past_ticks = price_ticks[: t if publish else 0]
        energy_wh[t] = zone.consumption.sample(occupied[t], t, past_ticks, consumption_rng)
        demand = aggregate([Readings(meter=all_meters, energy_wh=energy_wh[t])], zone.meters).energy_wh
        demand_wh[t] = demand[0]
        price_ticks[t] = (publish(t, demand) if publish else zone.curve.price_ticks(demand))[0]
    return SimulatedDay(occupied, energy_wh, demand_wh, price_ticks)
