"""Samples for the model test: households that follow their declared distributions, and households that do not."""

import numpy as np
from scipy.special import ndtr

DAY = 24


def uniform_law(top):
    """Uniform on 0..top, on the grid 0..1000."""
    return np.where(np.arange(1001) <= top, 1 / (top + 1), 0.0)


LAWS = {"flat": (uniform_law(300), uniform_law(600))}


def occupancy(intervals, homes, rng, chance=0.1):
    """Each household changes its state with `chance` in each interval."""
    changes = rng.random((intervals, homes)) < chance
    return (rng.random(homes) < 0.5) ^ (np.cumsum(changes, axis=0) % 2 == 1)


def readings(rank, occupied, away=300, home=600):
    """The reading at `rank` of the uniform law of each state."""
    return np.where(occupied, np.floor(rank * (home + 1)), np.floor(rank * (away + 1))).astype(np.int64)


def lasting_rank(correlation, intervals, homes, rng):
    """Ranks that are an autoregressive process with this rank correlation at lag 1."""
    normal = 2 * np.sin(np.pi * correlation / 6)
    z = rng.standard_normal((intervals, homes))
    for t in range(1, intervals):
        z[t] = normal * z[t - 1] + np.sqrt(1 - normal**2) * z[t]
    return ndtr(z)
