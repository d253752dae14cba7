"""Let a town live under the same `gather` and `protect` that the service runs, from a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from murmurate.curator.gathering import gather
from murmurate.household.occupancy import sample
from murmurate.lab.worlds import Town
from murmurate.quantities import BoolArray, IntArray, Readings

Publish = Callable[[int, IntArray], IntArray]  # (interval, demand_wh [1]) -> price_ticks [1]


class Day(NamedTuple):
    """What happened in a town, whoever was told of it."""

    occupied: BoolArray  # [interval, household]
    energy_wh: IntArray  # [interval, household]
    demand_wh: IntArray  # [interval]
    price_ticks: IntArray  # [interval]


def live(
    town: Town,
    horizon: int,
    who: np.random.Generator,
    what: np.random.Generator,
    publish: Publish | None = None,
) -> Day:
    """Draw who is home (from `who`) and what they use (from `what`); with `publish`, the town answers to its prices.

    Without it nobody is told a price, and `price_ticks` holds the optimal ones.
    """
    occupied = sample(town.theta.models[0], horizon, who)
    energy_wh = np.zeros(occupied.shape, np.int64)
    demand_wh, price_ticks = np.zeros(horizon, np.int64), np.zeros(horizon, np.int64)
    everyone = np.arange(len(town.meters))
    for t in range(horizon):
        heard = price_ticks[: t if publish else 0]
        energy_wh[t] = town.law.sample(occupied[t], t, heard, what)
        demand = gather([Readings(meter=everyone, energy_wh=energy_wh[t])], town.meters).energy_wh
        demand_wh[t] = demand[0]
        price_ticks[t] = (publish(t, demand) if publish else town.curve.price_ticks(demand))[0]
    return Day(occupied, energy_wh, demand_wh, price_ticks)
