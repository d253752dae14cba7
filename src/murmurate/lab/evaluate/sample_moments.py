"""Exact moments of a sample of homes, for the laboratory: they evaluate what a forecast could know at best.

They hold numbers of single homes, so they never get into a forecast file or a plan. Those come from
`prediction.private_sample`, with noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import CalendarForecast
from murmurate.prediction.sensor import ClippedSensor
from murmurate.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SampleMoments:
    """Households of a sample [interval, bound]: all that a forecast and a sensor need to know about them."""

    bounds_wh: tuple[int, ...]  # ascending; the last one clips nothing
    households: int
    mean_wh: FloatArray  # of readings, each at most the bound
    below_wh: FloatArray  # mean of the readings below the bound, the others counted as 0
    variance: FloatArray  # between households, of clipped readings
    covariance: FloatArray  # between clipped and whole readings
    lasting: float  # share of the variance that is there again a day later: households that always use more

    @property
    def own_deviation(self) -> float:
        """Standard deviation of a household around what is usual for it, relative to the mean."""
        variance = float(self.variance[:, -1].mean()) * (1 - self.lasting)
        return float(np.sqrt(variance) / self.mean_wh[:, -1].mean())

    @classmethod
    def from_readings(cls, energy_wh: IntArray, bounds_wh: Sequence[int], slots_per_day: int) -> SampleMoments:
        """Return the moments of readings of a sample [interval, household].

        Bounds at or above the largest reading are one bound, which clips nothing.
        """
        if len(energy_wh) <= slots_per_day:
            days = f"{len(energy_wh) / slots_per_day:.1f} days"
            raise ModelError("sample", f"{len(energy_wh)} intervals ({days})", "must be five weeks (35 days) or more")
        largest = int(energy_wh.max())
        bounds = (*sorted({bound for bound in bounds_wh if bound < largest}), largest)
        used = np.asarray(energy_wh, np.float64)
        clipped = [np.minimum(used, bound) for bound in bounds]
        mean = np.stack([each.mean(axis=1) for each in clipped], axis=1)
        below = np.stack([np.where(used < bound, used, 0.0).mean(axis=1) for bound in bounds], axis=1)
        below[:, -1] = mean[:, -1]
        variance = np.stack([each.var(axis=1) for each in clipped], axis=1)
        cross = np.stack([(each * used).mean(axis=1) for each in clipped], axis=1)
        later, earlier = used[slots_per_day:], used[:-slots_per_day]
        again = (later * earlier).mean(axis=1) - later.mean(axis=1) * earlier.mean(axis=1)
        return cls(
            bounds_wh=bounds,
            households=used.shape[1],
            mean_wh=mean,
            below_wh=below,
            variance=variance,
            covariance=cross - mean * mean[:, -1:],
            lasting=float(np.clip(again.mean() / max(float(variance[slots_per_day:, -1].mean()), 1e-9), 0.0, 0.99)),
        )


def make_sensor(
    sample: SampleMoments, bound_wh: int, forecast: CalendarForecast, residuals: FloatArray, when: CalendarSlots
) -> ClippedSensor:
    """Return the sensor with a bound of the sample.

    `residuals` are those of forecasts of each bound in the last intervals of the sample [interval, bound].
    """
    at, fresh = sample.bounds_wh.index(bound_wh), 1 - sample.lasting
    mean, below, covariance, variance, clipped_variance = (
        _by_slot(values, when)
        for values in (
            sample.mean_wh[:, at],
            sample.below_wh[:, at],
            sample.covariance[:, at],
            sample.variance[:, -1],
            sample.variance[:, at],
        )
    )
    response = below / mean
    hidden = clipped_variance - covariance**2 / variance
    shown = residuals[:, at] / response[when.slot[-len(residuals) :]] - residuals[:, -1]
    by_chance = float(np.mean(hidden / (response * mean) ** 2)) * fresh / sample.households
    return ClippedSensor(
        bound_wh=bound_wh,
        forecast=forecast,
        response=response,
        own=covariance / variance,
        hidden_variance=np.maximum(hidden * fresh, 0.0),
        mismatch=_mismatch(shown, by_chance, when.slots_per_day),
    )


def _mismatch(shown: FloatArray, by_chance: float, slots_per_day: int) -> tuple[float, float]:
    """How far the sensor is off within a day and over days. `by_chance`: the variance due to the sample's size."""
    days = shown[: len(shown) // slots_per_day * slots_per_day].reshape(-1, slots_per_day)
    lasting = float(days.mean(axis=1).std())
    within = max(float(days.var()) - lasting**2 - max(by_chance, 0.0), 0.0)
    return within**0.5, lasting


def _by_slot(values: FloatArray, when: CalendarSlots) -> FloatArray:
    count = np.bincount(when.slot, minlength=when.slots_per_day)
    if not count.all():
        raise ModelError("sample", f"of {len(when)} intervals", "must have each interval of the day at least once")
    return np.asarray(np.bincount(when.slot, weights=values, minlength=when.slots_per_day) / count)
