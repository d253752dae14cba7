"""What makes demand deviate from its forecast: 22 independent states, each of which fades at its own pace.

    deviation(t) = sum of L_j(t) x_j(t),   x_j(t+1) = a_j x_j(t) + fresh

Some are common to a region and seen in the releases of all its zones together: deviations that last for hours, days or
weeks, a shape of the day, a response to cold. Some belong to a zone: the same, and the households' own chance. Two
belong to the sensor alone: a sum of clipped readings does not show every deviation in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from murmurate.units import FloatArray

COMMON = slice(0, 10)  # of the region: fast, day, slow, shape, heat
COMMON_SHAPE, COMMON_HEAT = slice(3, 9), 9
SHAPE, HEAT, OWN = slice(12, 18), 18, 19  # of the zone; fast and level come before
SENSOR = slice(20, 22)
STATES = 22
OF_DEMAND = slice(0, 20)  # all but those of the sensor

COMMON_HOURS = (4.0, 36.0, 240.0)
OWN_HOURS = 0.85  # how long the households' own chance lasts
_SHAPE_HOURS, _HEAT_HOURS = (480.0,) * 6, 720.0
_HOURS = (*COMMON_HOURS, *_SHAPE_HOURS, _HEAT_HOURS, 6.0, 480.0, *_SHAPE_HOURS, _HEAT_HOURS, OWN_HOURS, 2.0, 120.0)
_COMMON_SD = (0.02, 0.02, 0.015, 0.015, 0.01, 0.01, 0.03)  # shape, heat
_ZONE_SD = (0.02, 0.035, 0.02, 0.02, 0.015, 0.015, 0.01, 0.01, 0.02)  # fast, level, shape, heat
_USUAL_COLD_K = 8.0

# cos and sin of 1/96 of a turn; those of the other slots follow by multiplication, the same on every machine
_TURN_PARTS = 96
_COS, _SIN = 0.99785892323860348, 0.06540312923014306


class Volatility(NamedTuple):
    """How large deviations are, relative to the demand."""

    common: tuple[float, float, float]  # standard deviations: 4 h, 36 h, 10 d
    own: float  # of one household around what is expected of it; a zone of n has 1/sqrt(n) of it
    own_hours: float = OWN_HOURS


@dataclass(frozen=True, slots=True, eq=False)
class DeviationStates:
    """The states of a zone: how long each lasts and how large it is."""

    keep: FloatArray  # [state] share that remains after an interval
    sd: FloatArray  # [state] stationary standard deviation, relative to the demand

    @classmethod
    def of_zone(
        cls, volatility: Volatility, households: int, sensor_mismatch: tuple[float, float], *, slots_per_day: int = 96
    ) -> DeviationStates:
        """The states of a zone with so many households. `sensor_mismatch`: see `ClippedSensor`."""
        hours = np.array(_HOURS)
        hours[OWN] = volatility.own_hours
        own = volatility.own / households**0.5
        sd = np.array([*volatility.common, *_COMMON_SD, *_ZONE_SD, own, 0.0, 0.0])
        sd[SENSOR] = sensor_mismatch
        return cls(np.exp(-24 / slots_per_day / hours), sd)


def harmonics(slot: int, slots_per_day: int) -> FloatArray:
    """Return cos and sin of one, two and three turns a day, bit for bit the same on every machine.

    >>> np.abs(harmonics(24, 96) - [0, 1, -1, 0, 0, -1]).max() < 1e-12
    np.True_
    """
    part = slot * _TURN_PARTS // slots_per_day
    found = []
    for turns in (1, 2, 3):
        cos, sin = _TURNS[part * turns % _TURN_PARTS]
        found += [cos, sin]
    return np.array(found)


def _all_turns() -> list[tuple[float, float]]:
    turns = [(1.0, 0.0)]
    for _ in range(_TURN_PARTS - 1):
        cos, sin = turns[-1]
        turns.append((cos * _COS - sin * _SIN, sin * _COS + cos * _SIN))
    return turns


_TURNS = _all_turns()


def demand_loadings(slot: int, slots_per_day: int, cold_k: float) -> FloatArray:
    """Return how much of each state is in the demand of an interval [state]. `cold_k`: K below the heating base."""
    loading = np.ones(STATES)
    loading[SHAPE] = loading[COMMON_SHAPE] = harmonics(slot, slots_per_day)
    loading[HEAT] = loading[COMMON_HEAT] = (cold_k - _USUAL_COLD_K) / _USUAL_COLD_K
    loading[SENSOR] = 0.0
    return loading


def fit_common(
    residuals: FloatArray, *, own_sd: float, slots_per_day: int = 96, noise_variance: FloatArray | None = None
) -> tuple[float, float, float]:
    """Return the standard deviations of the common states from residuals of a forecast out of sample.

    `own_sd` is what the households of the sample contribute by chance, `noise_variance` is that of noise in the
    residuals, fresh in each interval [interval]. Residuals that are NaN are left out. Non-negative least squares on the
    mean square of the change over each lag, relative to itself: the changes within an hour decide how good a prediction
    can be.
    """
    longest = min(10 * slots_per_day, len(residuals) // 2)
    lags = np.unique(np.geomspace(1, longest, 40).round().astype(int))
    hours = lags * 24 / slots_per_day
    change = np.array([_mean((residuals[lag:] - residuals[:-lag]) ** 2) for lag in lags])
    own = 2 * own_sd**2 * -np.expm1(-hours / OWN_HOURS)
    shapes = -2 * np.expm1(-hours[:, None] / np.array(COMMON_HOURS))
    target = np.maximum(change - own, 0.0)
    if noise_variance is not None:
        of_noise = np.where(np.isfinite(residuals), noise_variance, np.nan)
        target -= np.array([_mean(of_noise[lag:] + of_noise[:-lag]) for lag in lags])
    used = change > 0  # not NaN: some pairs were seen
    return _non_negative_fit(shapes[used] / change[used, None], target[used] / change[used])


def _mean(numbers: FloatArray) -> float:
    """The mean of those that are numbers; NaN where none is."""
    known = numbers[np.isfinite(numbers)]
    return float(np.mean(known)) if len(known) else float("nan")


def _non_negative_fit(shapes: FloatArray, target: FloatArray) -> tuple[float, float, float]:
    """The best of all subsets of columns whose coefficients are all positive."""
    best, found = float(np.sum(target**2)), np.zeros(3)
    for chosen in ([0, 1, 2], [0, 1], [0, 2], [1, 2], [0], [1], [2]):
        values = np.linalg.lstsq(shapes[:, chosen], target, rcond=None)[0]
        left = float(np.sum((target - shapes[:, chosen] @ values) ** 2))
        if (values > 0).all() and left < best:
            best, found = left, np.zeros(3)
            found[chosen] = values
    fast, day, slow = np.sqrt(found).tolist()
    return fast, day, slow
