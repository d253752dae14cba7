"""What the first half of a data set teaches: a forecast, its error, and sensors.

The first half stands for a trial in which households agreed that their readings are used. The second half is priced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import (
    StructuralFilter,
    Volatility,
    fit_common,
    make_filter,
)

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.public_knowledge import SampleMoments, make_sensor
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import CalendarForecast, degrees_below_base, fit_forecasts, measure_residuals
from murmurate.units import FloatArray, IntArray
from research.data_sets.homes_data import HomesData

MIN_WEEKS = 20  # ten to learn from, four for the filter to settle, six to count
_BOUNDS_PER_MEAN = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)  # candidate bounds, over the mean reading
_MIN_RESPONSE = 0.1  # of a clipped sum where all readings change alike; a lower bound shows too little
_USUAL_COLD_K = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class TrialKnowledge:
    """All that is used of the trial. Everything is public before the first release."""

    households: int
    slots_per_day: int
    forecasts: dict[int, CalendarForecast]  # of one household, by bound; the last bound clips nothing
    volatility: Volatility
    sensors: dict[int, ClippedSensor]  # by bound
    usual_wh: dict[int, FloatArray]  # [slot] expected on a usual day, by bound, of one household
    cold_k: tuple[float, ...]

    @property
    def exact_bound_wh(self) -> int:
        return max(self.sensors)

    @classmethod
    def from_homes(cls, energy_wh: IntArray, when: CalendarSlots, temperature_c: FloatArray | None) -> TrialKnowledge:
        """Learn from readings [interval, household] of whole days."""
        slots = when.slots_per_day
        sample = measure_moments(energy_wh, slots)
        residuals = measure_residuals(sample.mean_wh, when, temperature_c)
        forecasts = dict(zip(sample.bounds_wh, fit_forecasts(sample.mean_wh, when, temperature_c), strict=True))
        own_sd = sample.own_deviation / sample.households**0.5
        common = fit_common(residuals[:, -1], own_sd=own_sd, slots_per_day=slots)
        expected = {bound: each.demand_wh(when, temperature_c) for bound, each in forecasts.items()}
        return cls(
            households=sample.households,
            slots_per_day=slots,
            forecasts=forecasts,
            volatility=Volatility(common, sample.own_deviation),
            sensors={bound: make_sensor(sample, bound, each, residuals, when) for bound, each in forecasts.items()},
            usual_wh={bound: each.reshape(-1, slots).mean(axis=0) for bound, each in expected.items()},
            cold_k=_usual_cold(temperature_c),
        )

    def make_filter(self, bound_wh: int, noise_sd_wh: float, lead: int) -> StructuralFilter:
        """Return the filter of a zone of these households."""
        sensor = self.sensors[bound_wh]
        return make_filter(
            self.volatility,
            sensor,
            self.usual_wh[self.exact_bound_wh] * self.households,
            self.usual_wh[bound_wh] * self.households,
            households=self.households,
            noise_sd_wh=noise_sd_wh,
            pool_variance=None,
            cold_k=self.cold_k,
            lead=lead,
        )


def split_trial(data: HomesData) -> int:
    """Return the number of intervals of the trial: half of the whole weeks. Raises ReadingError if there are few."""
    weeks = data.days // 7
    if weeks < MIN_WEEKS:
        raise ReadingError(data.name, f"{weeks} weeks long", f"must have {MIN_WEEKS} weeks or more")
    return weeks // 2 * 7 * data.slots_per_day


def drop_useless_weather(data: HomesData, trial: int) -> HomesData:
    """Return the data without its temperature, unless forecasts of the trial are better with it, out of sample."""
    if data.temperature_c is None:
        return data
    demand_wh, when = data.energy_wh[:trial].sum(axis=1, dtype=np.float64)[:, None], data.calendar()[slice(0, trial)]
    errors = [
        float(np.mean(measure_residuals(demand_wh, when, weather) ** 2))
        for weather in (None, data.temperature_c[:trial])
    ]
    return data if errors[1] < errors[0] else replace(data, temperature_c=None)


def candidate_bounds(energy_wh: IntArray) -> list[int]:
    """Return bounds to choose from [Wh], ascending. The last one clips nothing."""
    top = int(energy_wh.max()) + 1
    bounds = {round(float(energy_wh.mean()) * share) for share in _BOUNDS_PER_MEAN}
    return [*sorted(bound for bound in bounds if 0 < bound < top), top]


def measure_moments(energy_wh: IntArray, slots_per_day: int) -> SampleMoments:
    """Return means and variances over households at several bounds, the last of which clips nothing."""
    used, largest = energy_wh.astype(np.float64), int(energy_wh.max())
    low = [bound for bound in candidate_bounds(energy_wh)[:-1] if _shows_enough(used, bound, slots_per_day)]
    bounds = (*(bound for bound in low if bound < largest), largest)
    clipped = [np.minimum(used, bound) for bound in bounds]
    mean = np.stack([each.mean(axis=1) for each in clipped], axis=1)
    below = np.stack([np.where(used < bound, used, 0.0).mean(axis=1) for bound in bounds], axis=1)
    below[:, -1] = mean[:, -1]
    variance = np.stack([each.var(axis=1) for each in clipped], axis=1)
    cross = np.stack([(each * used).mean(axis=1) for each in clipped], axis=1)
    later, earlier = used[slots_per_day:], used[:-slots_per_day]
    again = (later * earlier).mean(axis=1) - later.mean(axis=1) * earlier.mean(axis=1)
    return SampleMoments(
        bounds_wh=bounds,
        households=used.shape[1],
        mean_wh=mean,
        below_wh=below,
        variance=variance,
        covariance=cross - mean * mean[:, -1:],
        lasting=float(np.clip(again.mean() / max(float(variance[slots_per_day:, -1].mean()), 1e-9), 0.0, 0.99)),
    )


def _shows_enough(readings: FloatArray, bound_wh: int, slots_per_day: int) -> bool:
    """Whether a clipped sum answers to the demand at every time of the day."""
    shape = (-1, slots_per_day, readings.shape[1])
    below, clipped = np.where(readings < bound_wh, readings, 0.0), np.minimum(readings, bound_wh)
    response = below.reshape(shape).mean(axis=(0, 2)) / np.maximum(clipped.reshape(shape).mean(axis=(0, 2)), 1e-9)
    return bool(response.min() >= _MIN_RESPONSE)


def _usual_cold(temperature_c: FloatArray | None) -> tuple[float, ...]:
    """Return the K below the heating base of a mild day and of a cold one."""
    if temperature_c is None:
        return (_USUAL_COLD_K,)
    cold = degrees_below_base(temperature_c)
    return (max(float(cold.mean() - cold.std()), 0.0), float(cold.mean() + cold.std()))
