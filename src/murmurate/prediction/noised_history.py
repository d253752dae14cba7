"""A public forecast from demand that was published with noise, and its error without that noise.

Each release is the demand plus noise that is fresh, has mean zero, and a variance v that the plan states. A forecast f
of earlier releases does not depend on it. So the mean square of the release over f, minus 1, is that of the demand plus
the mean of v/f^2, and the second part is known:

    error^2 = mean((release/f - 1)^2 - v/f^2)

What the noise of earlier releases did to the forecast is part of its error and stays in it. Negative releases stay in
the history too: without them the mean of the noise would not be zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.deviation_states import Volatility, fit_common
from murmurate.prediction.forecast import fit_forecasts, forecast_unseen
from murmurate.prediction.forecast_sources import USUAL_VOLATILITY, mild_and_cold, unknown_sensor
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.sensor import ClippedSensor
from murmurate.units import FloatArray

_STANDARD_ERRORS = 2  # by which an error must be above zero


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
    return _with_sensor(made, history, when, temperature_c), error


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


def _with_sensor(
    made: PublicForecast, history: NoisedHistory, when: CalendarSlots, temperature_c: FloatArray | None
) -> PublicForecast:
    """Add what is known about clipped sums: the sensor that the releases were made with, fitted anew."""
    if history.sensor is None or history.clipped_wh is None:
        return made
    (clipped,) = fit_forecasts(history.clipped_wh[:, None], when, temperature_c)
    above = replace(made.sensors[0], bound_wh=history.sensor.bound_wh + 1)
    return replace(made, sensors=(replace(history.sensor, forecast=clipped), above))
