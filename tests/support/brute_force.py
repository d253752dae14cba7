"""Leakage by its definition: over all trajectories of a household and all corners of what is published."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from murmurate.household.occupancy import OccupancyChains
from murmurate.units import FloatArray
from tests.support.finite_leakage import periodic_prior


def exact_leakage(model: OccupancyChains, slots: Sequence[int], losses: FloatArray) -> FloatArray:
    """[moment] over all trajectories and all corners, for a stream whose intervals are these of the calendar."""
    count = len(slots)
    paths = np.array(list(product((0, 1), repeat=count)))
    weight = periodic_prior(model, slots[0])[paths[:, 0], 0]
    for t in range(1, count):
        weight = weight * model.transition[model.period[slots[t]]][paths[:, t - 1], paths[:, t], 0]
    likely = np.exp((np.array(list(product((-1, 1), repeat=count))) * losses) @ paths.T)
    found = np.zeros(count)
    for t in range(count):
        home, away = ((likely * weight * (paths[:, t] == x)).sum(axis=1) for x in (1, 0))
        odds = [(weight * (paths[:, t] == x)).sum() for x in (1, 0)]
        found[t] = np.abs(np.log(home / away) - np.log(odds[0] / odds[1])).max()
    return found
