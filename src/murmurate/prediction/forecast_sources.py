"""Where a public forecast comes from: a consented sample, a public history of demand, a load profile, or one day."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import DAY_TYPES, MONTHS, CalendarSlots
from murmurate.prediction.deviation_states import Volatility, fit_common
from murmurate.prediction.forecast import CalendarForecast, degrees_below_base, fit_forecasts, measure_residuals
from murmurate.prediction.public_forecast import USUAL_COLD_K, PublicForecast
from murmurate.prediction.sensor import ClippedSensor, SampleMoments, make_sensor, unclipped_sensor
from murmurate.units import FloatArray

# Where no history tells: a year-old forecast of a large zone is about 6 % off, and a household by 1.4 times its mean
USUAL_VOLATILITY = Volatility((0.03, 0.02, 0.04), 1.4)
_UNKNOWN_CLIPPING = (0.005, 0.02)  # how far a sum of clipped readings may be off where no sample shows it


def forecast_from_sample(
    sample: SampleMoments,
    when: CalendarSlots,
    temperature_c: FloatArray | None,
    *,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> PublicForecast:
    """Return the forecast that readings of consented households give: five weeks or more."""
    residuals = measure_residuals(sample.mean_wh, when, temperature_c)
    forecasts = fit_forecasts(sample.mean_wh, when, temperature_c)
    own_sd = sample.own_deviation / sample.households**0.5
    bounds_and_forecasts = zip(sample.bounds_wh, forecasts, strict=True)
    slots = when.slots_per_day
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=forecasts[-1],
        error=_rms(residuals[:, -1]),
        volatility=Volatility(fit_common(residuals[:, -1], own_sd=own_sd, slots_per_day=slots), sample.own_deviation),
        sensors=tuple(make_sensor(sample, bound, each, residuals, when) for bound, each in bounds_and_forecasts),
        cold_k=mild_and_cold(temperature_c),
    )


def forecast_from_history(
    demand_wh: FloatArray,
    when: CalendarSlots,
    temperature_c: FloatArray | None,
    *,
    households: int,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> PublicForecast:
    """Return the forecast that a public history of the demand of so many households gives: five weeks or more."""
    one = np.asarray(demand_wh, np.float64)[:, None] / households
    residuals = measure_residuals(one, when, temperature_c)[:, 0]
    (forecast,) = fit_forecasts(one, when, temperature_c)
    own_sd = USUAL_VOLATILITY.own / households**0.5
    common = fit_common(residuals, own_sd=own_sd, slots_per_day=when.slots_per_day)
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=forecast,
        error=_rms(residuals),
        volatility=Volatility(common, USUAL_VOLATILITY.own),
        sensors=(unknown_sensor(forecast),),
        cold_k=mild_and_cold(temperature_c),
    )


def forecast_from_table(
    mean_wh: FloatArray, *, source: str, time_zone: str, holidays: tuple[int, ...] = ()
) -> PublicForecast:
    """Return the forecast nearest to a standard load profile of one household [month, day type, slot]."""
    if mean_wh.ndim != 3 or mean_wh.shape[:2] != (MONTHS, DAY_TYPES):
        raise ModelError("profile", mean_wh.shape, "must have 12 months, 3 types of day, and intervals of the day")
    month, day_type, slot = (index.ravel() for index in np.indices(mean_wh.shape))
    places = CalendarSlots(month, day_type, slot, mean_wh.shape[2])
    (forecast,) = fit_forecasts(np.asarray(mean_wh, np.float64).reshape(-1, 1), places)
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=forecast,
        error=None,
        volatility=USUAL_VOLATILITY,
        sensors=(unknown_sensor(forecast),),
    )


def forecast_from_day(mean_wh: FloatArray, *, source: str, time_zone: str) -> PublicForecast:
    """Return the forecast that expects the same of one household every day [slot of the local day]."""
    if not np.isfinite(mean_wh).all() or not (mean_wh >= 0).all() or mean_wh.sum() <= 0:
        raise ModelError("day", "without demand", "must expect some demand of a household")
    forecast = CalendarForecast.of_day(mean_wh)
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=(),
        demand=forecast,
        error=None,
        volatility=USUAL_VOLATILITY,
        sensors=(unknown_sensor(forecast),),
    )


def unknown_sensor(forecast: CalendarForecast) -> ClippedSensor:
    """The sensor of any bound, where nothing is known about single readings: it may be off by what is clipped."""
    return replace(unclipped_sensor(forecast, 1), mismatch=_UNKNOWN_CLIPPING)


def mild_and_cold(temperature_c: FloatArray | None) -> tuple[float, float]:
    """Return how cold a mild day and a cold one are [K below the heating base]; the usual where it is not known."""
    if temperature_c is None:
        return USUAL_COLD_K
    cold = degrees_below_base(temperature_c)
    return max(float(cold.mean() - cold.std()), 0.0), float(cold.mean() + cold.std())


def _rms(residuals: FloatArray) -> float:
    return float(np.sqrt(np.mean(residuals[np.isfinite(residuals)] ** 2)))
