"""Where a public forecast comes from: a consented sample, a public history, releases, a load profile, or one day.

A release is the demand plus noise that is fresh, has mean zero, and a variance v that the plan states. A forecast f of
earlier releases does not depend on it. So the mean square of the release over f, minus 1, is that of the demand plus
the mean of v/f^2, and the second part is known:

    error^2 = mean((release/f - 1)^2 - v/f^2)

What the noise of earlier releases did to the forecast is part of its error and stays in it. Negative releases stay in
the history too: without them the mean of the noise would not be zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import DAY_TYPES, MONTHS, CalendarSlots
from murmurate.prediction.forecast import (
    HOURS,
    MIN_FORECAST_WH,
    MIN_SHARE,
    CalendarForecast,
    degrees_below_base,
    fit_forecasts,
    forecast_unseen,
    measure_residuals,
)
from murmurate.prediction.private_sample import SENSOR_BOUNDS_WH, SIZES_WH, PrivateSample
from murmurate.prediction.public_forecast import USUAL_COLD_K, ConsentedSample, PublicForecast
from murmurate.prediction.sensor import ClippedSensor, ReadingSizes, unclipped_sensor
from murmurate.prediction.structural_filter import Volatility, fit_common
from murmurate.units import FloatArray

# Where no history tells: a year-old forecast of a large zone is about 6 % off, and a household by 1.4 times its mean
USUAL_VOLATILITY = Volatility((0.03, 0.02, 0.04), 1.4)
USUAL_LASTING = 0.2  # of the variance of readings: households that always use more or less than others
DAY_TYPE_GROUPS = (0, 1, 1)  # a sample of households knows workdays and other days
DAY_TYPE_WEIGHTS = (5 / 7, 1 / 7, 1 / 7)
_STANDARD_ERRORS = 2  # by which an error must be above zero
_MAX_HEAT_SHARE = 0.5  # of the use in the sample
_UNKNOWN_CLIPPING = (0.005, 0.02)  # how far a sum of clipped readings may be off where no sample shows it


def forecast_from_sample(
    sample: PrivateSample,
    *,
    spent: Fraction,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> PublicForecast:
    """Return the forecast that the noised votes of a consented sample give. No reading is used here.

    `spent` is the epsilon of all runs on the sample. The demand is the same in all months, but for its response to
    cold. How long and how far the demand deviates from its forecast is taken as usual.
    """
    layout, of_type = sample.layout, sample.day_wh
    day_wh = of_type[[min(kind, layout.day_types - 1) for kind in DAY_TYPE_GROUPS]]
    level = np.average(day_wh, axis=0, weights=DAY_TYPE_WEIGHTS)
    mean_wh, slots = float(level.mean()), layout.when.slots_per_day
    heat, usual_cold = np.zeros(HOURS), np.zeros(MONTHS)
    if layout.temperature_c is not None:
        cold = degrees_below_base(layout.temperature_c)
        seen = np.bincount(layout.when.month, minlength=MONTHS)
        usual_cold = np.bincount(layout.when.month, weights=cold, minlength=MONTHS) / np.maximum(seen, 1)
        usual_cold = np.where(seen > 0, usual_cold, cold.mean())
        share = min(sample.heat_wh_per_k / (mean_wh * slots), _MAX_HEAT_SHARE / max(float(cold.mean()), 1e-9))
        heat = share * level[np.arange(HOURS) * slots // HOURS]
        day_wh = day_wh - heat[np.arange(slots) * HOURS // slots] * float(cold.mean())
    least_wh = max(MIN_SHARE * mean_wh, MIN_FORECAST_WH)
    demand = CalendarForecast(day_wh, np.zeros((MONTHS, HOURS)), heat, usual_cold, least_wh)
    sizes = ReadingSizes(SIZES_WH, sample.size_wh, mean_wh)
    own = float(np.sqrt(sizes.variance * (1 - USUAL_LASTING)) / mean_wh)
    sensors = [sizes.make_sensor(bound, demand, level / mean_wh, USUAL_LASTING) for bound in SENSOR_BOUNDS_WH[:-1]]
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=demand,
        error=None,
        volatility=Volatility(USUAL_VOLATILITY.common, own),
        sensors=(*sensors, unclipped_sensor(demand, SENSOR_BOUNDS_WH[-1])),
        cold_k=mild_and_cold(layout.temperature_c),
        sample=ConsentedSample(sample.households, spent),
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
    """Return the forecast that a public history of the demand of `households` gives: five weeks or more."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisedHistory:
    """The noised demand of one household of a zone in successive intervals; NaN where nothing was measured."""

    demand_wh: FloatArray  # [interval] at a usual price
    noise_variance: FloatArray  # [interval] of the noise in it [Wh^2]
    households: int  # of the zone
    own: float = USUAL_VOLATILITY.own  # how far one household deviates by chance, relative to the mean
    sensor: ClippedSensor | None = None  # of sums that were clipped; None: nothing is known about clipping
    clipped_wh: FloatArray | None = None  # [interval] what the sensor shows of the demand


class NoisedError(NamedTuple):
    """How far a forecast was off on weeks that it had not seen, all as rms relative to the forecast."""

    with_noise: float  # against the releases
    noise: float  # of the releases
    error: float  # against the demand; what is at most plausible where it is not `measured`
    measured: bool  # whether the error is clearly above zero, so that the noise does not hide it


def forecast_from_noised_history(
    history: NoisedHistory,
    when: CalendarSlots,
    temperature_c: FloatArray | None = None,
    *,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> tuple[PublicForecast, NoisedError]:
    """Return the forecast that releases give, and its error: measured on five weeks or more, gaps not counted."""
    one = np.asarray(history.demand_wh, np.float64)[:, None]
    expected = forecast_unseen(one, when, temperature_c)[:, 0]
    (forecast,) = fit_forecasts(one, when, temperature_c)
    if not min(forecast.least_wh, float(expected.min())) > 0:
        raise ModelError("noise", "larger than the demand", "must be smaller for a forecast; use --h25 or --history")
    residuals = one[-len(expected) :, 0] / expected - 1
    noise = history.noise_variance[-len(expected) :] / expected**2
    error = measure_noised_error(residuals, noise, when.slots_per_day)
    common = USUAL_VOLATILITY.common
    if error.measured:
        own_sd = history.own / history.households**0.5
        common = fit_common(residuals, own_sd=own_sd, slots_per_day=when.slots_per_day, noise_variance=noise)
    made = PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=forecast,
        error=error.error,
        volatility=Volatility(common, history.own),
        sensors=(unknown_sensor(forecast),),
        cold_k=mild_and_cold(temperature_c),
    )
    if history.sensor is not None and history.clipped_wh is not None:  # that the releases were made with, fitted again
        (clipped,) = fit_forecasts(history.clipped_wh[:, None], when, temperature_c)
        above = replace(made.sensors[0], bound_wh=history.sensor.bound_wh + 1)
        made = replace(made, sensors=(replace(history.sensor, forecast=clipped), above))
    return made, error


def measure_noised_error(residuals: FloatArray, noise_variance: FloatArray, slots_per_day: int) -> NoisedError:
    """Return the rms of residuals without their noise. `noise_variance` is relative, as the residuals are [interval].

    Where the mean square is not clearly above that of the noise, the error is the largest plausible one: two standard
    errors above the estimate. The standard error is that of the means of days.
    """
    known = np.isfinite(residuals)
    squares, noise = residuals[known] ** 2, noise_variance[known]
    day = np.flatnonzero(known) // slots_per_day
    count = np.bincount(day)
    of_day = np.bincount(day, weights=squares - noise)[count > 0] / count[count > 0]
    square = float(np.mean(squares - noise))
    margin = _STANDARD_ERRORS * float(of_day.std(ddof=1)) / len(of_day) ** 0.5
    measured = not noise.any() or square > margin
    return NoisedError(
        with_noise=float(np.sqrt(np.mean(squares))),
        noise=float(np.sqrt(np.mean(noise))),
        error=(square if measured else max(square, 0.0) + margin) ** 0.5,
        measured=measured,
    )
