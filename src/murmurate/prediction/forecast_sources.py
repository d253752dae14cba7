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
from murmurate.prediction.corrections import USUAL_SPREAD, Spread
from murmurate.prediction.forecast import (
    HOURS,
    MIN_FORECAST_WH,
    MIN_SHARE,
    USUAL_WEATHER,
    CalendarForecast,
    Weather,
    degrees_below_base,
    fill_unseen,
    fit_forecasts,
    forecast_unseen,
    measure_residuals,
)
from murmurate.prediction.private_sample import (
    COLD_UNIT_K,
    EXPORT_BOUNDS_WH,
    SAMPLE_BOUNDS_WH,
    PrivateSample,
    VoteLayout,
    build_features,
)
from murmurate.prediction.public_forecast import ConsentedSample, CutAbove, CutBelow, PublicForecast
from murmurate.units import FloatArray

_STANDARD_ERRORS = 2  # by which an error must be above zero


def forecast_from_sample(
    sample: PrivateSample,
    *,
    spent: tuple[Fraction, Fraction],
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> PublicForecast:
    """Return the forecast that the noised votes of a consented sample give. No reading is used here.

    `spent` is the epsilon and the delta of all runs on the sample. All months are alike, but for their weather.
    """
    layout = sample.layout
    shape = layout.day_types * layout.periods
    of_period, of_weather = np.split(sample.coefficients, [shape])
    response = dict(zip(layout.asked, of_weather.tolist(), strict=True))
    slots = layout.when.slots_per_day
    day_type, slot = (index.ravel() for index in np.indices((DAY_TYPES, slots)))
    places = CalendarSlots(np.zeros_like(slot), day_type, slot, slots)
    named = build_features(places, USUAL_WEATHER, layout.day_types, layout.periods)
    day_wh = (np.concatenate(list(named.values()), axis=1) @ of_period).reshape(DAY_TYPES, slots)
    usual_cold_k, usual_irradiance = _usual_weather(layout)
    demand = CalendarForecast(
        day_wh,
        np.zeros((MONTHS, HOURS)),
        np.full(HOURS, response.get("cold", 0.0) / COLD_UNIT_K),
        usual_cold_k,
        MIN_FORECAST_WH,
        response.get("dark", 0.0),
        response.get("sun", 0.0),
        usual_irradiance,
    )
    demand = replace(demand, least_wh=max(MIN_SHARE * float(demand.mean_use_wh.mean()), MIN_FORECAST_WH))
    hour = np.arange(HOURS) * layout.cut_periods // HOURS
    cuts = [*sample.cut_wh[:, hour], np.zeros(HOURS)]  # above the last bound there is nothing
    feeds_in = demand.sun_wh < -MIN_FORECAST_WH
    shares = 1 - np.clip(sample.sun_below_wh / -demand.sun_wh, 0.0, 1.0) if feeds_in else np.ones(0)
    made = PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=demand,
        error=None,
        above=tuple(CutAbove(*each) for each in zip(SAMPLE_BOUNDS_WH, cuts, strict=True)),
        below=tuple(CutBelow(*each) for each in zip(EXPORT_BOUNDS_WH, [*shares.tolist(), 1.0], strict=False)),
        sample=ConsentedSample(sample.households, *spent),
    )
    mean_wh = made.mean_use_wh()
    # Squares are known as well as their noise allows; where it is large they are as usual.
    usual = np.array([USUAL_SPREAD.own, USUAL_SPREAD.lasting]) ** 2
    found, noise = np.array([sample.own_square, sample.lasting_square]), np.array(sample.square_noise)
    weight = 1 / (1 + (noise / mean_wh**2 / usual) ** 2)
    own, lasting = np.sqrt(np.maximum(weight * found / mean_wh**2 + (1 - weight) * usual, 0.0)).tolist()
    return replace(made, spread=Spread(own, lasting, sample.use_noise_wh / mean_wh))


def _usual_weather(layout: VoteLayout) -> tuple[FloatArray, FloatArray]:
    """Return how cold the months of a sample were [month], and the irradiance of their hours [month, hour]."""
    count, place = len(layout.when), layout.when.month * HOURS + layout.when.hour
    temperature_c, irradiance = layout.weather
    cold = np.zeros(count) if temperature_c is None else degrees_below_base(temperature_c)
    bright = np.zeros(count) if irradiance is None else np.maximum(irradiance, 0.0)
    seen = np.bincount(place, minlength=MONTHS * HOURS).reshape(MONTHS, HOURS)
    of_cold, of_sun = (
        np.bincount(place, weights=values, minlength=MONTHS * HOURS).reshape(MONTHS, HOURS) for values in (cold, bright)
    )
    days = seen.sum(axis=1, keepdims=True)
    usual_cold = fill_unseen(of_cold.sum(axis=1, keepdims=True) / np.maximum(days, 1), days > 0)[:, 0]
    return usual_cold, fill_unseen(of_sun / np.maximum(seen, 1), seen > 0)


def forecast_from_history(
    demand_wh: FloatArray,
    when: CalendarSlots,
    weather: Weather,
    *,
    households: int,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> PublicForecast:
    """Return the forecast that a public history of the demand of `households` gives: five weeks or more."""
    one = np.asarray(demand_wh, np.float64)[:, None] / households
    residuals = measure_residuals(one, when, weather)[:, 0]
    (forecast,) = fit_forecasts(one, when, weather)
    return PublicForecast(
        source=source,
        time_zone=time_zone,
        holidays=holidays,
        demand=forecast,
        error=_rms(residuals),
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
    )


def _rms(residuals: FloatArray) -> float:
    return float(np.sqrt(np.mean(residuals[np.isfinite(residuals)] ** 2)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoisedHistory:
    """The noised demand of one household of a zone in successive intervals; NaN where nothing was measured."""

    demand_wh: FloatArray  # [interval] at a usual price
    noise_variance: FloatArray  # [interval] of the noise in it [Wh^2]
    households: int  # of the zone


class NoisedError(NamedTuple):
    """How far a forecast was off on weeks that it had not seen, all as rms relative to the forecast."""

    with_noise: float  # against the releases
    noise: float  # of the releases
    error: float  # against the demand; what is at most plausible where it is not `measured`
    measured: bool  # whether the error is clearly above zero, so that the noise does not hide it


def forecast_from_noised_history(
    history: NoisedHistory,
    when: CalendarSlots,
    weather: Weather = USUAL_WEATHER,
    *,
    source: str,
    time_zone: str,
    holidays: tuple[int, ...] = (),
) -> tuple[PublicForecast, NoisedError]:
    """Return the forecast that releases give, and its error: measured on five weeks or more, gaps not counted."""
    one = np.asarray(history.demand_wh, np.float64)[:, None]
    expected = forecast_unseen(one, when, weather)[:, 0]
    (forecast,) = fit_forecasts(one, when, weather)
    if not min(forecast.least_wh, float(expected.min())) > 0:
        raise ModelError("noise", "larger than the demand", "must be smaller for a forecast; use --h25 or --history")
    residuals = one[-len(expected) :, 0] / expected - 1
    noise = history.noise_variance[-len(expected) :] / expected**2
    error = measure_noised_error(residuals, noise, when.slots_per_day)
    made = PublicForecast(source=source, time_zone=time_zone, holidays=holidays, demand=forecast, error=error.error)
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
