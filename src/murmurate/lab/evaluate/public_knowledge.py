"""What the public may know about a region before the first release: a forecast, its error, and sensors.

It comes from exact moments of a sample of homes, so it shows what a forecast could know at best. The moments hold
numbers of single homes and never get into a forecast file or a plan. Those come from `prediction.private_sample`, with
noise. Readings are clipped at several bounds, and each bound has its sums, moments and sensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.errors import ModelError
from murmurate.lab.evaluate.homes import MAX_READING_WH, Float32Array
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import CalendarForecast, degrees_below_base, fit_forecasts, measure_residuals
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import (
    StructuralFilter,
    Volatility,
    fit_common,
    make_filter,
)
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

SLOTS = QUARTER_HOURS_PER_DAY
UNKNOWN_COLD_K = 8.0  # as cold as usual: the filter then has no response to cold
BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, MAX_READING_WH)  # the last one clips nothing
_LOW_BOUNDS = np.array(BOUNDS_WH[:-1], np.float32)[:, None]


def sum_clipped(used_wh: Float32Array, zones: int = 1) -> FloatArray:
    """Return the sum of readings of each zone, each at most a bound [zone, bound]. Zones are alike in size.

    >>> sum_clipped(np.array([100, 450, 4000], np.float32)).astype(int).tolist()
    [[700, 1050, 1250, 1550, 2050, 2650, 3550, 4550]]
    """
    total = used_wh.reshape(zones, -1).sum(axis=1).astype(np.float64)  # whole numbers below 2^24: exact
    if zones == 1:
        high = used_wh.compress(used_wh > BOUNDS_WH[0])
        over_by_zone = np.maximum(high - _LOW_BOUNDS, 0).sum(axis=1)[:, None]
    else:
        at = np.flatnonzero(used_wh > BOUNDS_WH[0])
        up_to = np.zeros((len(_LOW_BOUNDS), len(at) + 1))
        np.cumsum(np.maximum(used_wh[at] - _LOW_BOUNDS, 0), axis=1, out=up_to[:, 1:])
        edges = np.searchsorted(at, np.arange(zones + 1) * (len(used_wh) // zones))
        over_by_zone = np.diff(up_to[:, edges], axis=1)
    return np.concatenate([total[:, None] - over_by_zone.T, total[:, None]], axis=1)


class MomentSums:
    """Sums over homes of a sample from which its moments follow. Sums of several blocks of homes add up."""

    def __init__(self, intervals: int) -> None:
        shape = (intervals, len(BOUNDS_WH))
        self.total, self.below, self.square, self.cross = (np.zeros(shape) for _ in range(4))
        self.again = np.zeros((2, intervals))  # products with the reading of the day before, and that reading
        self.homes = 0

    def add_interval(self, t: int, used_wh: Float32Array, day_before_wh: Float32Array) -> None:
        """Add the readings of some homes in one interval."""
        high = used_wh.compress(used_wh >= BOUNDS_WH[0])
        excess = np.maximum(high - _LOW_BOUNDS, 0)
        reach = high * (high >= _LOW_BOUNDS)
        total, square = used_wh.sum(dtype=np.float64), np.dot(used_wh, used_wh)
        self.total[t] += np.append(total - excess.sum(axis=1), total)
        self.below[t] += np.append(total - reach.sum(axis=1), used_wh[used_wh < BOUNDS_WH[-1]].sum(dtype=np.float64))
        squares_over = ((high - excess) ** 2 - high**2).sum(axis=1)
        self.square[t] += np.append(square + squares_over, square)
        self.cross[t] += np.append(square - excess @ high, square)
        self.again[:, t] += np.dot(used_wh, day_before_wh), day_before_wh.sum(dtype=np.float64)

    def __add__(self, other: MomentSums) -> MomentSums:
        """The sums over the homes of both."""
        both = MomentSums(len(self.total))
        for name in ("total", "below", "square", "cross", "again"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        both.homes = self.homes + other.homes
        return both

    def to_moments(self) -> SampleMoments:
        """The moments of one home."""
        mean, later = self.total / self.homes, slice(SLOTS, None)
        lasting = (self.again[0, later] - self.again[1, later] * mean[later, -1]) / self.homes
        variance = self.square / self.homes - mean**2
        return SampleMoments(
            bounds_wh=BOUNDS_WH,
            households=self.homes,
            mean_wh=mean,
            below_wh=self.below / self.homes,
            variance=variance,
            covariance=self.cross / self.homes - mean * mean[:, -1:],
            lasting=float(lasting.mean() / variance[later, -1].mean()),
        )


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


def make_sensor(
    sample: SampleMoments, bound_wh: int, forecast: CalendarForecast, residuals: FloatArray, when: CalendarSlots
) -> ClippedSensor:
    """Return the sensor with a bound of the sample.

    `residuals` are those of forecasts of each bound in the last intervals of the sample [interval, bound].
    """
    at, fresh, slots = sample.bounds_wh.index(bound_wh), 1 - sample.lasting, when.slots_per_day
    count = np.bincount(when.slot, minlength=slots)
    if not count.all():
        raise ModelError("sample", f"of {len(when)} intervals", "must have each interval of the day at least once")
    of_bound = (sample.mean_wh[:, at], sample.below_wh[:, at], sample.covariance[:, at], sample.variance[:, at])
    mean, below, covariance, clipped_variance, variance = (
        np.bincount(when.slot, weights=values, minlength=slots) / count
        for values in (*of_bound, sample.variance[:, -1])
    )
    response = below / mean
    hidden = clipped_variance - covariance**2 / variance
    shown = residuals[:, at] / response[when.slot[-len(residuals) :]] - residuals[:, -1]
    by_chance = float(np.mean(hidden / (response * mean) ** 2)) * fresh / sample.households
    days = shown[: len(shown) // slots * slots].reshape(-1, slots)
    lasting = float(days.mean(axis=1).std())
    within_day = max(float(days.var()) - lasting**2 - max(by_chance, 0.0), 0.0)
    return ClippedSensor(
        bound_wh=bound_wh,
        forecast=forecast,
        response=response,
        own=covariance / variance,
        hidden_variance=np.maximum(hidden * fresh, 0.0),
        mismatch=(within_day**0.5, lasting),
    )


@dataclass(frozen=True, slots=True, eq=False)
class PublicKnowledge:
    """Learned from a consented sample of the year before."""

    forecast: CalendarForecast  # of one household
    forecast_error: float  # of the sample, out of sample, relative
    volatility: Volatility
    sensors: dict[int, ClippedSensor]  # by bound
    cold_k: tuple[float, float]  # of a mild day and a cold one

    @classmethod
    def from_sample(
        cls,
        sample: SampleMoments,
        when: CalendarSlots,
        temperature_c: FloatArray | None = None,
        *,
        first_days: int = 28,
    ) -> PublicKnowledge:
        """Learn from a sample. Forecasts are tried on the weeks after `first_days`, each fitted on what came before."""
        residuals = measure_residuals(sample.mean_wh, when, temperature_c, first_days=first_days)
        forecasts = fit_forecasts(sample.mean_wh, when, temperature_c)
        own_sd = sample.own_deviation / np.sqrt(sample.households)
        cold = degrees_below_base(temperature_c) if temperature_c is not None else np.array([UNKNOWN_COLD_K])
        return cls(
            forecast=forecasts[-1],
            forecast_error=float(np.sqrt(np.mean(residuals[:, -1] ** 2))),
            volatility=Volatility(fit_common(residuals[:, -1], own_sd=own_sd), sample.own_deviation),
            sensors={
                bound: make_sensor(sample, bound, forecast, residuals, when)
                for bound, forecast in zip(sample.bounds_wh, forecasts, strict=True)
            },
            cold_k=(max(float(cold.mean() - cold.std()), 0.0), float(cold.mean() + cold.std())),
        )

    def make_filter(
        self, homes: int, sensor: ClippedSensor, *, noise_sd_wh: float, pool_variance: float | None, lead: int
    ) -> StructuralFilter:
        return make_filter(
            self.volatility,
            sensor,
            self.forecast.mean_wh[0, 0] * homes,
            sensor.forecast.mean_wh[0, 0] * homes,
            households=homes,
            noise_sd_wh=noise_sd_wh,
            pool_variance=pool_variance,
            cold_k=self.cold_k,
            lead=lead,
        )
