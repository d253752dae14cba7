"""A sum of clipped readings as a sensor: how it answers to a deviation of the demand that it does not show in full.

    y = (Y - E[Y]) / (response * E[Y]),   with a variance that is known from public numbers

Readings are clipped at the bound before they are summed, as for every release. A low bound needs little noise. What it
hides of the demand is in the numbers here, which follow from how large single readings are. Plans and the laboratory
compare bounds by the error that the filter predicts for itself: it depends on the noise and on the sensor alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from murmurate.prediction.forecast import MIN_FORECAST_WH, CalendarForecast
from murmurate.units import FloatArray, IntArray

STEP_WH = 10  # between sizes of readings
_HOURS = 24
_MIN_RESPONSE, _MIN_CHANCE = 0.05, 1e-12
_MISMATCH = (0.05, 0.02)  # for hours, for days, times the root of the share that is cut off: as simulated homes show


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSensor:
    """What a sum of readings, each at most `bound_wh`, tells of the demand [slot of the day]."""

    bound_wh: int
    forecast: CalendarForecast  # of the clipped reading of one household
    response: FloatArray  # relative change of the clipped sum where all readings change alike
    own: FloatArray  # how much of the households' own chance it shows, in Wh for each Wh
    hidden_variance: FloatArray  # of what it shows beyond that, for one household [(Wh)^2]
    mismatch: tuple[float, float]  # difference between what it shows and the demand, relative: for hours, for days

    def read_deviation(self, sum_wh: FloatArray, expected_sum_wh: FloatArray, slot: IntArray | int) -> FloatArray:
        """Return the deviation of the demand that a noisy sum shows, relative to its forecast."""
        return np.asarray((sum_wh - expected_sum_wh) / (self.response[slot] * expected_sum_wh))


def unclipped_sensor(forecast: CalendarForecast, bound_wh: int) -> ClippedSensor:
    """Return the sensor of a bound that clips nothing: it shows the demand itself."""
    ones = np.ones(forecast.slots_per_day)
    return ClippedSensor(bound_wh, forecast, ones, ones, np.zeros_like(ones), (0.0, 0.0))


class ReadingSizes:
    """How large single readings are: the chance that a reading exceeds a size [size, every `STEP_WH`]."""

    def __init__(self, sizes_wh: Sequence[int], use_wh: FloatArray, mean_wh: float) -> None:
        """Compute the sizes of readings with this mean from the use between one size and the next, with noise [size].

        The chance to exceed a size falls; where noise says otherwise, neighbours are taken together. Between sizes it
        falls by equal factors. `sizes_wh` are multiples of `STEP_WH`.
        """
        edges = np.array([0, *sizes_wh])
        width = np.diff(edges)
        falling = np.maximum(_make_falling(use_wh / width, width), 0.0)
        if not falling.any():
            falling[0] = 1.0
        chance = np.clip(falling * mean_wh / (falling @ width), _MIN_CHANCE, 1.0)
        at = np.arange(0, edges[-1] + STEP_WH, STEP_WH)
        found = np.exp(np.interp(at, [0, *(edges[:-1] + edges[1:]) / 2], np.log([1.0, *chance])))
        step = (found[:-1] + found[1:]) / 2
        wanted = chance * width / np.add.reduceat(step * STEP_WH, edges[:-1] // STEP_WH)
        step = np.minimum.accumulate(np.minimum(step * np.repeat(wanted, width // STEP_WH), 1.0))
        self.chance = found  # at the sizes 0, STEP_WH, 2 STEP_WH, ..
        self.mean_wh, self.mean_square = (  # of readings, each at most the size [Wh, Wh^2]
            np.concatenate([[0.0], np.cumsum(each * step * STEP_WH)]) for each in (1.0, 2 * at[:-1] + STEP_WH)
        )

    @property
    def variance(self) -> float:
        """Of whole readings [Wh^2]."""
        mean = float(self.mean_wh[-1])
        return max(float(self.mean_square[-1]) - mean**2, 1e-6 * mean**2)

    def make_sensor(
        self, bound_wh: int, forecast: CalendarForecast, level: FloatArray, lasting: float
    ) -> ClippedSensor:
        """Return the sensor of a bound. Readings of a slot are taken as the mean ones times its `level` [slot].

        `lasting` is the share of the variance that is between households that always use more or less.
        """
        at = np.arange(len(self.chance)) * STEP_WH
        chance, mean, square = (
            np.interp(bound_wh / level, at, values) for values in (self.chance, self.mean_wh, self.mean_square)
        )
        whole = self.mean_wh[-1]
        covariance = square + bound_wh / level * (whole - mean) - mean * whole
        shown = mean / whole  # of the use
        hidden = np.maximum(square - mean**2 - covariance**2 / self.variance, 0.0)
        by_hour = shown[np.arange(_HOURS) * len(shown) // _HOURS]
        clipped = CalendarForecast(
            forecast.day_wh * shown,
            forecast.month_wh * by_hour,
            forecast.heat_wh_per_k * by_hour,
            forecast.usual_cold_k,
            max(forecast.least_wh * float(shown.min()), MIN_FORECAST_WH),
        )
        lost = max(1 - float(shown.mean()), 0.0) ** 0.5
        return ClippedSensor(
            bound_wh=bound_wh,
            forecast=clipped,
            response=np.clip(1 - bound_wh / level * chance / mean, _MIN_RESPONSE, 1.0),
            own=covariance / self.variance,
            hidden_variance=hidden * level**2 * (1 - lasting),
            mismatch=(_MISMATCH[0] * lost, _MISMATCH[1] * lost),
        )


def _make_falling(values: FloatArray, weights: IntArray) -> FloatArray:
    """Return the falling numbers nearest to `values` by weighted least squares.

    >>> _make_falling(np.array([5.0, 1.0, 3.0, 0.0]), np.array([1, 1, 1, 1])).tolist()
    [5.0, 2.0, 2.0, 0.0]
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] < block[0]:
            mean, before, length = blocks.pop()
            both = before + block[1]
            block = ((mean * before + block[0] * block[1]) / both, both, length + block[2])
        blocks.append(block)
    return np.repeat([block[0] for block in blocks], [block[2] for block in blocks])


def with_what_is_cut_off(error: float, sensor: ClippedSensor, demand: CalendarForecast) -> float:
    """Return the error that is stated for a sensor: what it cuts off of the demand counts wholly as error.

    `error` is what the filter predicts for itself. It takes the shape of what is cut off from the sample; other homes,
    and the same homes in another year, have another one.
    """
    cut_off = max(1 - float(sensor.forecast.mean_wh.mean() / demand.mean_wh.mean()), 0.0)
    return float(np.hypot(error, cut_off))


class TriedBound(NamedTuple):
    """A bound, the noise that it needs, and the error that is predicted with it."""

    bound_wh: int
    noise_sd_wh: float
    predicted_error: float  # rms of the demand that is priced, relative to the demand; see `with_what_is_cut_off`


def try_bounds(
    bounds_wh: Iterable[int], try_bound: Callable[[int], TriedBound], *, stop_at: float = float("inf")
) -> tuple[TriedBound, ...]:
    """Try rising bounds. Stop after one whose error is more than `stop_at` times the least so far."""
    tried: list[TriedBound] = []
    for bound_wh in bounds_wh:
        tried.append(try_bound(bound_wh))
        if tried[-1].predicted_error > stop_at * find_least_error(tried).predicted_error:
            break
    return tuple(tried)


def find_least_error(tried: Sequence[TriedBound]) -> TriedBound:
    """Return the bound with the least error; of equals the highest, which cuts off least.

    >>> find_least_error([TriedBound(300, 9e3, 0.05), TriedBound(500, 15e3, 0.04), TriedBound(700, 21e3, 0.06)])
    TriedBound(bound_wh=500, noise_sd_wh=15000.0, predicted_error=0.04)
    """
    return min(tried, key=lambda each: (each.predicted_error, -each.bound_wh))
