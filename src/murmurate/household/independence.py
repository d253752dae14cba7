"""Does consumption remember? A test on the operator's own data, without which `exact` and `robust` may not be planned.

Given occupancy, each reading is turned into its rank within the law of its state and time of day. If readings are
independent over time given occupancy, ranks of one household are uncorrelated at every lag. The test looks at lags 1 to
`lags` and says how weak a memory it would have seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from murmurate.errors import ModelError
from murmurate.quantities import BoolArray, FloatArray, IntArray

_Z_POWER = 2.326348  # 99 %
LAGS = 4
SIGNIFICANCE = 0.001


class IndependenceTest(NamedTuple):
    """The result of the test, as a plan carries it."""

    passed: bool
    correlation: float  # the largest in size over the lags
    z: float  # its size in standard deviations
    critical_z: float  # what the test allows, all lags together
    pairs: int  # pairs of successive readings
    detectable: float  # a rank correlation that would have been seen with probability 99 %


def independence_test(
    energy_wh: IntArray, occupied: BoolArray, period: IntArray, lags: int = LAGS, seed: int = 0
) -> IndependenceTest:
    """Test readings [interval, household] with known occupancy; `period` [interval of the day] parts times of day.

    Ranks are taken within (household, state, period), ties broken at random from `seed`, so that a house with a law of
    its own does not look like one with memory. Power: |correlation| >= (z_crit + 2.33)/sqrt(pairs) is seen in 99 %.

    >>> rng = np.random.default_rng(1)
    >>> noise, home = rng.integers(0, 999, (400, 40)), rng.random((400, 40)) < 0.5
    >>> independence_test(noise, home, np.zeros(1, np.int64)).passed
    True
    """
    if energy_wh.shape != occupied.shape or energy_wh.ndim != 2 or len(energy_wh) <= 10 * lags:
        shapes = (energy_wh.shape, occupied.shape)
        raise ModelError(
            "readings", shapes, f"must be [interval, household] with occupancy, over {10 * lags} intervals"
        )
    rank = _ranks(energy_wh, occupied, np.resize(period, len(energy_wh)), np.random.default_rng(seed))
    found, pairs = [], 0
    for lag in range(1, lags + 1):
        one, other = rank[:-lag], rank[lag:]
        usable = np.isfinite(one) & np.isfinite(other)
        pairs = int(usable.sum())
        product = (one * other)[usable]
        found.append((float(product.mean()), float(product.mean() / (product.std() / np.sqrt(max(pairs, 1))))))
    correlation, z = max(found, key=lambda pair: abs(pair[1]))
    critical = _critical(lags)
    seen = (critical + _Z_POWER) / np.sqrt(max(pairs, 1))
    return IndependenceTest(abs(z) <= critical, correlation, abs(z), critical, pairs, float(seen))


def _ranks(energy_wh: IntArray, occupied: BoolArray, period: IntArray, rng: np.random.Generator) -> FloatArray:
    """Ranks of each reading within its household, state and period: mean 0, variance 1; NaN where fewer than 20."""
    rank = np.full(energy_wh.shape, np.nan)
    shuffled = energy_wh + rng.random(energy_wh.shape)
    for part in np.unique(period):
        for state in (False, True):
            for house in range(energy_wh.shape[1]):
                rows = np.flatnonzero((period == part) & (occupied[:, house] == state))
                if len(rows) >= 20:
                    order = np.argsort(np.argsort(shuffled[rows, house]))
                    rank[rows, house] = ((order + 0.5) / len(rows) - 0.5) * np.sqrt(12)
    return rank


def _critical(lags: int) -> float:
    """Two-sided normal quantile at SIGNIFICANCE, shared by the lags (Bonferroni)."""
    return float(-ndtri(SIGNIFICANCE / (2 * lags)))
