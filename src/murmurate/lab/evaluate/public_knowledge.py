"""What the public may know about a region before the first release: a forecast of one home, and how homes differ.

It comes from exact moments of a sample of homes, so it shows what a forecast could know at best. It never gets into a
forecast file or a plan. Those come from `prediction.private_sample`, with noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from murmurate.lab.evaluate.homes import MAX_READING_WH, Float32Array
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.corrections import USUAL_SPREAD, Spread
from murmurate.prediction.forecast import (
    HOURS,
    MIN_FORECAST_WH,
    USUAL_WEATHER,
    Weather,
    fit_forecast,
    fit_forecasts,
    forecast_unseen,
)
from murmurate.prediction.public_forecast import CutAbove, CutBelow, PublicForecast
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

SLOTS = QUARTER_HOURS_PER_DAY
BOUNDS_WH = (300, 500, 700, 1000, 1500, 2100, 3000, MAX_READING_WH)  # the last one clips nothing
_LOW_BOUNDS = np.array(BOUNDS_WH[:-1], np.float32)[:, None]


def sum_clipped(used_wh: Float32Array, zones: int = 1) -> FloatArray:
    """Return the sum of readings of each zone, each between minus a bound and the bound [zone, bound].

    Zones are alike in size.

    >>> sum_clipped(np.array([100, 450, 4000], np.float32)).astype(int).tolist()
    [[700, 1050, 1250, 1550, 2050, 2650, 3550, 4550]]
    >>> sum_clipped(np.array([100, -450], np.float32)).astype(int).tolist()
    [[-200, -350, -350, -350, -350, -350, -350, -350]]
    """
    total = used_wh.reshape(zones, -1).sum(axis=1).astype(np.float64)  # whole numbers below 2^24: exact
    over_by_zone = _sum_above_bounds(used_wh, zones)
    if used_wh.min(initial=0) < 0:
        over_by_zone = over_by_zone - _sum_above_bounds(-used_wh, zones)
    return np.concatenate([total[:, None] - over_by_zone.T, total[:, None]], axis=1)


def _sum_above_bounds(used_wh: Float32Array, zones: int) -> FloatArray:
    """Return what readings of each zone have above each bound but the last [bound, zone]."""
    if zones == 1:
        high = used_wh.compress(used_wh > BOUNDS_WH[0])
        return np.asarray(np.maximum(high - _LOW_BOUNDS, 0).sum(axis=1)[:, None])
    at = np.flatnonzero(used_wh > BOUNDS_WH[0])
    up_to = np.zeros((len(_LOW_BOUNDS), len(at) + 1))
    np.cumsum(np.maximum(used_wh[at] - _LOW_BOUNDS, 0), axis=1, out=up_to[:, 1:])
    edges = np.searchsorted(at, np.arange(zones + 1) * (len(used_wh) // zones))
    return np.diff(up_to[:, edges], axis=1)


def sum_sample(used_wh: Float32Array, day_before_wh: Float32Array) -> FloatArray:
    """Return the sums of clipped readings, of squares, and of products with the reading of the day before [sum]."""
    return np.append(sum_clipped(used_wh)[0], [np.dot(used_wh, used_wh), np.dot(used_wh, day_before_wh)])


def learn_forecast(
    sums: FloatArray, homes: int, when: CalendarSlots, weather: Weather = USUAL_WEATHER, *, first_days: int = 28
) -> PublicForecast:
    """Return what a sample of homes teaches, from its sums [interval, sum] as `sum_sample` has them.

    The forecast is tried on the weeks after `first_days`, each fitted on what came before. Its error is relative to the
    mean import.
    """
    mean_wh, square, again = np.split(sums / homes, [len(BOUNDS_WH), len(BOUNDS_WH) + 1], axis=1)
    whole, later, before = mean_wh[:, -1], slice(SLOTS, None), slice(None, -SLOTS)
    made = fit_public_forecast(mean_wh, BOUNDS_WH, when, weather)
    use_wh = float(np.mean(whole - made.demand.fed_in_wh(when, weather)))
    lasting = float(np.mean(again[later, 0] - whole[later] * whole[before]))  # what is there again a day later
    own = float(np.mean(square[later, 0] - whole[later] ** 2)) - lasting
    spread = Spread(own=max(own, 0.0) ** 0.5 / use_wh, lasting=max(lasting, 0.0) ** 0.5 / use_wh)
    expected = forecast_unseen(whole[:, None], when, weather, first_days=first_days)[:, 0]
    error = float(np.sqrt(np.mean((whole[-len(expected) :] - expected) ** 2)) / np.maximum(whole, 0).mean())
    return replace(made, spread=spread, error=error)


def fit_public_forecast(
    mean_wh: FloatArray,
    bounds_wh: tuple[int, ...],
    when: CalendarSlots,
    weather: Weather = USUAL_WEATHER,
    spread: Spread = USUAL_SPREAD,
) -> PublicForecast:
    """Fit a forecast to the mean reading of a sample, each within a bound [interval, bound]; the last clips none.

    Of what is clipped, a share of what the sun adds is known by irradiance, and the rest by hour. Without irradiance
    all of it is known by hour: what is cut off above less what is cut off below.
    """
    of_hour = np.maximum(np.bincount(when.hour, minlength=HOURS), 1)
    demand, shares = fit_forecast(mean_wh[:, -1], when, weather), np.ones(len(bounds_wh))
    if demand.sun_wh < -MIN_FORECAST_WH:
        seen = [each.sun_wh for each in fit_forecasts(mean_wh, when, weather)]
        shares = np.minimum(np.maximum(np.array(seen) / demand.sun_wh, 0.0), 1.0)
    cut_wh = mean_wh[:, -1:] - mean_wh - (1 - shares) * demand.fed_in_wh(when, weather)[:, None]
    by_hour = [np.bincount(when.hour, weights=each, minlength=HOURS) / of_hour for each in cut_wh.T]
    return PublicForecast(
        source="an exact sample",
        time_zone="UTC",
        holidays=(),
        demand=demand,
        error=None,
        spread=spread,
        above=tuple(map(CutAbove, bounds_wh, by_hour)),
        below=tuple(map(CutBelow, bounds_wh, shares.tolist())),
    )


def expect_readings(public: PublicForecast, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
    """Return the forecast of a mean reading, clipped at each bound of the forecast [Wh: interval, bound]."""
    clipped = [public.with_range(each.bound_wh, each.bound_wh).clip_demand() for each in public.above]
    return np.stack([each.demand_wh(when, weather) for each in clipped], axis=1)


def expect_sun(public: PublicForecast, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
    """Return what the sun adds to these forecasts [Wh: interval, bound], below zero where roofs feed in."""
    shares = np.array([each.sun_share for each in public.below])
    return np.asarray(public.demand.fed_in_wh(when, weather)[:, None] * shares)
