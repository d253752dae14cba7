"""What the public may know about a region before the first release: a forecast of one home, and how homes differ.

It comes from exact moments of a sample of homes, so it shows what a forecast could know at best. It never gets into a
forecast file or a plan. Those come from `prediction.private_sample`, with noise.
"""

from __future__ import annotations

import numpy as np

from murmurate.lab.evaluate.homes import MAX_READING_WH, Float32Array
from murmurate.prediction.calendar import CalendarSlots
from murmurate.prediction.corrections import USUAL_SPREAD, Spread
from murmurate.prediction.forecast import HOURS, USUAL_WEATHER, Weather, fit_forecast, measure_residuals
from murmurate.prediction.public_forecast import CutAbove, CutBelow, PublicForecast
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

SLOTS = QUARTER_HOURS_PER_DAY
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


def sum_sample(used_wh: Float32Array, day_before_wh: Float32Array) -> FloatArray:
    """Return the sums of clipped readings, of squares, and of products with the reading of the day before [sum]."""
    return np.append(sum_clipped(used_wh)[0], [np.dot(used_wh, used_wh), np.dot(used_wh, day_before_wh)])


def learn_forecast(
    sums: FloatArray, homes: int, when: CalendarSlots, weather: Weather = USUAL_WEATHER, *, first_days: int = 28
) -> PublicForecast:
    """Return what a sample of homes teaches, from its sums [interval, sum] as `sum_sample` has them.

    The forecast is tried on the weeks after `first_days`, each fitted on what came before.
    """
    mean_wh, square, again = np.split(sums / homes, [len(BOUNDS_WH), len(BOUNDS_WH) + 1], axis=1)
    whole, later, before = mean_wh[:, -1], slice(SLOTS, None), slice(None, -SLOTS)
    lasting = float(np.mean(again[later, 0] - whole[later] * whole[before]))  # what is there again a day later
    own = float(np.mean(square[later, 0] - whole[later] ** 2)) - lasting
    spread = Spread(own=max(own, 0.0) ** 0.5 / whole.mean(), lasting=max(lasting, 0.0) ** 0.5 / whole.mean())
    residuals = measure_residuals(whole[:, None], when, weather, first_days=first_days)
    return fit_public_forecast(mean_wh, BOUNDS_WH, when, weather, spread, float(np.sqrt(np.mean(residuals**2))))


def fit_public_forecast(
    mean_wh: FloatArray,
    bounds_wh: tuple[int, ...],
    when: CalendarSlots,
    weather: Weather = USUAL_WEATHER,
    spread: Spread = USUAL_SPREAD,
    error: float | None = None,
) -> PublicForecast:
    """Fit a forecast to the mean reading of a sample, each at most a bound [interval, bound]; the last clips none."""
    of_hour = np.maximum(np.bincount(when.hour, minlength=HOURS), 1)
    cut_wh = mean_wh[:, -1:] - mean_wh
    by_hour = [np.bincount(when.hour, weights=each, minlength=HOURS) / of_hour for each in cut_wh.T]
    return PublicForecast(
        source="an exact sample",
        time_zone="UTC",
        holidays=(),
        demand=fit_forecast(mean_wh[:, -1], when, weather),
        error=error,
        spread=spread,
        above=tuple(map(CutAbove, bounds_wh, by_hour)),
        below=(CutBelow(0, 1.0),),
    )


def expect_readings(public: PublicForecast, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
    """Return the forecast of a mean reading, clipped at each bound of the forecast [Wh: interval, bound]."""
    clipped = [public.with_range(each.bound_wh).clip_demand() for each in public.above]
    return np.stack([each.demand_wh(when, weather) for each in clipped], axis=1)
