"""Leakage of a stream that ends, and the prior of a stream that begins at any interval of the day."""

from __future__ import annotations

import numpy as np

from murmurate.household.occupancy import OccupancyChains
from murmurate.privacy.leakage import leakage_from_start, loss_ends, periodic_distributions
from murmurate.units import FloatArray


def moment_leakage(chains: OccupancyChains, loss: float, horizon: int) -> FloatArray:
    """[interval, kind] if exactly `horizon` intervals are released, the first with `initial`."""
    ends = loss_ends(chains, loss)
    return leakage_from_start(chains, ends[np.arange(horizon) % len(ends)], np.zeros(()))[0]


def periodic_prior(chains: OccupancyChains, slot: int) -> FloatArray:
    """P(S = x) [state, kind] in an interval of the day for an attacker who knows only the habits."""
    return np.exp(periodic_distributions(chains, len(chains.period))[0].belief[slot])
