"""Slow corrections of a forecast by noisy releases: 27 numbers of a zone, and how wrong it was of late.

    demand  = scale (use + sun + mean_wh h . x)          h: loadings, x: corrections, relative
    x      <- keep x,  then  x + gain h_c e              e: release less what was expected of it, over scale mean_wh

One correction is of the level, one is fast, one is of the sun, and each hour of the day has one. They fade in weeks,
the fast one in hours. h_c are the loadings of the sum of clipped readings. Gains are constants of the plan, each found
as if its correction were the only one: the equation for what measuring for long leaves of it has a closed form. Where
noise dominates, gains vanish and the public forecast remains.

The last state is the mean of e^2 over four weeks, less what the plan expects: a log judges its own forecast. All of it
depends on public numbers alone. States change by products and sums of single numbers in a fixed order, so every machine
computes the same bits.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np

from murmurate.prediction.calendar import DAY_TYPES, MONTHS, CalendarSlots
from murmurate.prediction.forecast import HOURS, CalendarForecast
from murmurate.units import FloatArray

LEVEL, FAST, SUN, HOUR = 0, 1, 2, 3  # corrections; HOUR is that of the first of 24
CORRECTIONS = HOUR + HOURS
SQUARE = CORRECTIONS  # the last state
STATES = CORRECTIONS + 1
MAX_STATE = 2.0
MIN_USE = 0.05  # of what is expected: a zone is taken to use at least this
MEASURED_DAYS = 28.0  # over which a log judges its forecast
DAY_TYPE_WEIGHTS = (5 / 7, 1 / 7, 1 / 7)
_FADING_HOURS = np.array([2000.0, 5.0, 2000.0] + [2000.0] * HOURS)
_SPREAD = np.array([0.05, 0.023, 0.36] + [0.035] * HOURS)  # sd of corrections where nothing is measured
_COMMON_SD = 0.025  # by which all zones leave what is foreseen, relative to the use
_SUN_SD = 0.12  # the same of the sun: clouds that public irradiance does not show


class Spread(NamedTuple):
    """How far households and forecasts are from the mean use of a household, relative to it."""

    own: float = 1.4  # sd of a reading around what its household usually uses at that hour
    lasting: float = 0.6  # sd of that between households
    base: float = 0.0  # sd of the noise in an hour of the forecast


USUAL_SPREAD = Spread()  # where no sample tells


class UsualYear(NamedTuple):
    """What a household uses at usual weather [place]: every month, type of day and interval, with its share."""

    use_wh: FloatArray
    sun_wh: FloatArray
    hour: FloatArray  # [hour, place] 1 in that hour
    share: FloatArray  # of the year

    @classmethod
    def of(cls, forecast: CalendarForecast) -> UsualYear:
        slots = forecast.slots_per_day
        month, day_type, slot = (index.ravel() for index in np.indices((MONTHS, DAY_TYPES, slots)))
        when = CalendarSlots(month, day_type, slot, slots)
        share = np.array(DAY_TYPE_WEIGHTS)[day_type] / (MONTHS * slots)
        hour = np.eye(HOURS)[when.hour].T
        return cls(forecast.use_wh(when), forecast.fed_in_wh(when), hour, share)

    @property
    def mean_use_wh(self) -> float:
        return float(self.share @ self.use_wh)

    def loadings(self, mean_wh: float) -> FloatArray:
        """Return each loading [correction, place]."""
        use = self.use_wh / mean_wh
        return np.concatenate([np.stack([use, use, self.sun_wh / mean_wh]), self.hour * use])


class PlannedCorrections(NamedTuple):
    """Gains of a zone, and the errors that follow from them."""

    gain: FloatArray  # [correction] 0 where no release shows the correction
    error: float  # rms of the predicted demand, relative to the mean use
    surprise_square: float  # mean of e^2


def fading(slots_per_day: int) -> FloatArray:
    """Return the share of each correction that remains after an interval [correction]."""
    return np.exp(-HOURS / slots_per_day / _FADING_HOURS)


def plan_corrections(
    demand: CalendarForecast,
    clipped: CalendarForecast,
    spread: Spread,
    *,
    households: int,
    scale: float,
    noise_variance: float,
    lead: int,
) -> PlannedCorrections:
    """Return the gains for a zone. `clipped` is the forecast of clipped readings, of one household as `demand` is.

    `noise_variance` is the mean one of its releases [Wh^2], `scale` how many households of the forecast it is like.
    """
    whole, seen = UsualYear.of(demand), UsualYear.of(clipped)
    mean_wh, keep = whole.mean_use_wh, fading(demand.slots_per_day)
    loading, shown = whole.loadings(mean_wh), seen.loadings(mean_wh)
    by_hour = HOURS * seen.hour @ (seen.share * seen.use_wh) / mean_wh
    sd = _SPREAD.copy()
    sd[HOUR:] = np.sqrt(sd[HOUR:] ** 2 + (spread.lasting**2 / households + spread.base**2) / by_hour**2)
    by_chance = spread.own**2 / households
    noise = noise_variance / (scale * mean_wh) ** 2
    square = shown**2 @ seen.share
    variance = noise + by_chance + _COMMON_SD**2 + _SUN_SD**2 * square[SUN]  # of a release, without corrections
    left = solve_variance(square / variance, (1 - keep**2) * sd**2, keep)

    def total(year: UsualYear, loadings: FloatArray, intervals: int) -> float:
        ahead = keep ** (2 * intervals)
        squares = loadings**2
        unseen = _COMMON_SD**2 * squares[LEVEL] + _SUN_SD**2 * squares[SUN] + by_chance * year.use_wh / mean_wh
        return float(year.share @ ((left * ahead + sd**2 * (1 - ahead)) @ squares + unseen))

    gain = np.where(square > 0, left / variance, 0.0)
    # A sum may show as much less of use and of sun than expected, for long, as the range cuts off of them.
    of_sum, of_all = (each[[LEVEL, SUN]] @ seen.share for each in (shown, loading))
    cut_off = 1 - np.divide(of_sum, of_all, out=np.ones(2), where=of_all != 0)  # of use and of sun
    misled = loading.T @ respond_to(cut_off[:, None] * shown[[LEVEL, SUN]], shown, seen.share, gain, keep)
    return PlannedCorrections(
        gain=gain,
        error=(total(whole, loading, lead) + float(whole.share @ (misled**2).sum(axis=1))) ** 0.5,
        surprise_square=total(seen, shown, 1) + noise,
    )


def respond_to(
    off: FloatArray, loadings: FloatArray, share: FloatArray, gain: FloatArray, keep: FloatArray
) -> FloatArray:
    """Return where corrections settle [correction, kind] if releases are always off by `off` [kind, place].

    They fade by as much as they gain: (1 - keep) x = gain mean(h (off - h . x)), with loadings h [correction, place].
    """
    told = gain[:, None] * loadings * share
    return np.asarray(np.linalg.solve(np.diag(1 - keep) + told @ loadings.T, told @ off.T))


def solve_variance(told: FloatArray, fresh: FloatArray, keep: FloatArray) -> FloatArray:
    """Return the variance p that measuring for long leaves of a correction: 1/p = 1/(keep^2 p + fresh) + told.

    >>> left = solve_variance(np.array([4.0]), np.array([0.01]), np.array([0.99]))
    >>> bool(abs(1 / left - 1 / (0.99**2 * left + 0.01) - 4)[0] < 1e-9)
    True
    """
    half = told * fresh + 1 - keep**2
    root = np.sqrt(half**2 + 4 * told * keep**2 * fresh)
    return np.asarray(2 * fresh / (root + half))


def make_loadings(use_wh: float, sun_wh: float, mean_wh: float, hour: int) -> FloatArray:
    """Return how much of each correction is in a demand [correction], relative to the mean use."""
    found = np.zeros(CORRECTIONS)
    found[LEVEL] = found[FAST] = found[HOUR + hour] = use_wh / mean_wh
    found[SUN] = sun_wh / mean_wh
    return found


def weigh(states: FloatArray, loading: FloatArray) -> FloatArray:
    """Return the sum of corrections times loadings [zone], added in their order."""
    return np.asarray(reduce(np.add, states[:CORRECTIONS] * loading[:, None]))


def correct(
    states: FloatArray,
    loading: FloatArray,
    gain: FloatArray,
    surprise: FloatArray,
    surprise_square: FloatArray,
    slots_per_day: int,
) -> FloatArray:
    """Return states after a release [state, zone]. They have faded already; `surprise` is e, `gain` [correction, zone].

    `surprise_square` is the mean of e^2 that the plan expects [zone].
    """
    after = states.copy()
    after[:CORRECTIONS] += gain * loading[:, None] * surprise
    after[SQUARE] += (surprise * surprise - surprise_square - states[SQUARE]) / (MEASURED_DAYS * slots_per_day)
    return np.minimum(np.maximum(after, -MAX_STATE), MAX_STATE)
