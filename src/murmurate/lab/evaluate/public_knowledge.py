"""What everybody may know about a region before the first release: a forecast, its error, and sensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murmurate.lab.evaluate.sample_moments import SampleMoments, make_sensor
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.forecast import CalendarForecast, degrees_below_base, fit_forecasts, measure_residuals
from murmurate.prediction.sensor import ClippedSensor
from murmurate.prediction.structural_filter import (
    DeviationStates,
    StructuralFilter,
    Volatility,
    fit_common,
    make_filter,
)
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

SLOTS = QUARTER_HOURS_PER_DAY
UNKNOWN_COLD_K = 8.0  # as cold as usual: the filter then has no response to cold


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
        states = DeviationStates.of_zone(self.volatility, homes, sensor.mismatch)
        return make_filter(
            states,
            sensor,
            self.forecast.mean_wh[0, 0] * homes,
            sensor.forecast.mean_wh[0, 0] * homes,
            households=homes,
            noise_sd_wh=noise_sd_wh,
            pool_variance=pool_variance,
            cold_k=self.cold_k,
            lead=lead,
        )
