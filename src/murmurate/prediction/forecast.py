"""A public forecast of demand: by month, type of day and time of day, with a response to the weather.

It is fitted to public numbers, and its error is measured on days that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import DAY_TYPES, MONTHS, CalendarSlots
from murmurate.units import BoolArray, FloatArray

HEATING_BASE_C = 15.0  # below this outdoor temperature buildings are heated
HOURS = 24
SUN_UNIT = 300.0  # W/m^2
_MIN_DAYS = 5  # on which an hour of a month was seen, or it is taken from the other months
_RIDGE = 1e-3  # on parameters that the data do not determine
MIN_FORECAST_WH = 0.001  # of a household, in an interval
MIN_SHARE = 0.02  # of the mean demand: a forecast is at least this


class Weather(NamedTuple):
    """The weather of some intervals. Where a column is None or a value NaN, it is taken as usual for its month."""

    temperature_c: FloatArray | None = None  # outdoors
    irradiance: FloatArray | None = None  # on the horizontal plane [W/m^2]

    def select(self, chosen: slice | BoolArray) -> Weather:
        """That of some of the intervals."""
        return Weather(*(None if column is None else column[chosen] for column in self))


USUAL_WEATHER = Weather()


@dataclass(frozen=True, slots=True, eq=False)
class CalendarForecast:
    """Expected demand: a day of each type, what a month adds to each hour, and what cold, darkness and sun add.

    use = day_wh[type, slot] + month_wh[month, hour] + heat_wh_per_k[hour] * cold + dark_wh * dark, and at least
    `least_wh`; demand = use + sun_wh * sun. `cold` is in K below the heating base, `dark` between 0 and 1, `sun` in
    units of 300 W/m^2. Products and sums of single numbers: the same bits on every machine.
    """

    day_wh: FloatArray  # [day type, slot]
    month_wh: FloatArray  # [month, hour]
    heat_wh_per_k: FloatArray  # [hour]
    usual_cold_k: FloatArray  # [month] mean number of K below the heating base
    least_wh: float
    dark_wh: float = 0.0
    sun_wh: float = 0.0  # below zero where roofs feed in
    usual_irradiance: FloatArray = field(default_factory=lambda: np.zeros((MONTHS, HOURS)))  # [month, hour] W/m^2

    def __post_init__(self) -> None:
        parts = (self.day_wh, self.month_wh, self.heat_wh_per_k, self.usual_cold_k, self.usual_irradiance)
        shapes = tuple(part.shape for part in parts)
        hours = (MONTHS, HOURS)
        if self.day_wh.ndim != 2 or shapes != ((DAY_TYPES, self.slots_per_day), hours, (HOURS,), (MONTHS,), hours):
            raise ModelError("forecast", shapes, "must have 3 types of day, 12 months and 24 hours")

    @property
    def slots_per_day(self) -> int:
        return int(self.day_wh.shape[-1])

    @property
    def knows_sun(self) -> bool:
        """Whether the demand depends on irradiance."""
        return bool(self.dark_wh or self.sun_wh)

    @property
    def mean_wh(self) -> FloatArray:
        """Expected demand at the weather that was usual when it was fitted [month, day type, slot]."""
        return self._at_every_place(self.demand_wh)

    @property
    def mean_use_wh(self) -> FloatArray:
        """The same without what the sun adds [month, day type, slot]."""
        return self._at_every_place(self.use_wh)

    def _at_every_place(self, expect: Callable[[CalendarSlots], FloatArray]) -> FloatArray:
        places = np.indices((MONTHS, DAY_TYPES, self.slots_per_day))
        month, day_type, slot = (index.ravel() for index in places)
        return expect(CalendarSlots(month, day_type, slot, self.slots_per_day)).reshape(places.shape[1:])

    def demand_wh(self, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
        """Return the expected demand of intervals [Wh]."""
        return np.asarray(self.use_wh(when, weather) + self.fed_in_wh(when, weather))

    def use_wh(self, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
        """Return the expected use of intervals, without what the sun adds [Wh]."""
        expected = self.day_wh[when.day_type, when.slot] + self.month_wh[when.month, when.hour]
        expected = expected + self.heat_wh_per_k[when.hour] * self.cold_k(when, weather)
        if self.dark_wh:
            expected = expected + self.dark_wh * find_dark(self.irradiance(when, weather))
        return np.asarray(np.maximum(expected, self.least_wh))

    def fed_in_wh(self, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
        """Return what the sun adds to the demand of intervals [Wh]: below zero where roofs feed in."""
        if not self.sun_wh:
            return np.zeros(len(when))
        return np.asarray(self.sun_wh * (self.irradiance(when, weather) / SUN_UNIT))

    def cold_k(self, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
        """Return how cold intervals are [K below the heating base]."""
        usual = self.usual_cold_k[when.month]
        if weather.temperature_c is None:
            return np.asarray(usual)
        return np.where(np.isnan(weather.temperature_c), usual, degrees_below_base(weather.temperature_c))

    def irradiance(self, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> FloatArray:
        """Return the irradiance of intervals [W/m^2]."""
        usual = self.usual_irradiance[when.month, when.hour]
        if weather.irradiance is None:
            return np.asarray(usual)
        return np.where(np.isnan(weather.irradiance), usual, np.maximum(weather.irradiance, 0.0))

    def scaled(self, factor: float) -> CalendarForecast:
        """The forecast of more or fewer households of the same make."""
        names = ("day_wh", "month_wh", "heat_wh_per_k", "least_wh", "dark_wh", "sun_wh")
        return replace(self, **{name: getattr(self, name) * factor for name in names})

    @classmethod
    def of_day(cls, profile_wh: FloatArray) -> CalendarForecast:
        """The forecast that expects the same every day [slot]."""
        day = np.tile(np.asarray(profile_wh, np.float64), (DAY_TYPES, 1))
        return cls(day, np.zeros((MONTHS, HOURS)), np.zeros(HOURS), np.zeros(MONTHS), MIN_SHARE * float(day.mean()))


def degrees_below_base(temperature_c: FloatArray) -> FloatArray:
    return np.maximum(HEATING_BASE_C - np.asarray(temperature_c, np.float64), 0.0)


def find_dark(irradiance: FloatArray) -> FloatArray:
    """Return how dark it is: 1 at night, 0 where lamps are off by day.

    >>> find_dark(np.array([0.0, 60.0, 400.0])).tolist()
    [1.0, 0.5, 0.0]
    """
    return np.minimum(np.maximum((110.0 - irradiance) / 100.0, 0.0), 1.0)


def fit_forecast(demand_wh: FloatArray, when: CalendarSlots, weather: Weather = USUAL_WEATHER) -> CalendarForecast:
    """Fit a forecast to a history of demand by least squares. Months without data are as the mean of the others."""
    return fit_forecasts(np.asarray(demand_wh)[:, None], when, weather)[0]


def fit_forecasts(
    demand_wh: FloatArray, when: CalendarSlots, weather: Weather = USUAL_WEATHER
) -> list[CalendarForecast]:
    """Fit a forecast to each of several histories of the same intervals [interval, history].

    Intervals whose demand is NaN were not measured and are left out. Types of day that were never seen at some time of
    the day are as the mean of the others, and so are hours of a month that were not seen on enough days.
    """
    measured = find_measured(demand_wh)
    if not measured.all():
        demand_wh, when, weather = demand_wh[measured], when[measured], weather.select(measured)
    slots, row = when.slots_per_day, np.arange(len(when))
    cell, hour_of_month = when.day_type * slots + when.slot, when.month * HOURS + when.hour
    cold = np.zeros(len(when)) if weather.temperature_c is None else degrees_below_base(weather.temperature_c)
    irradiance = np.zeros(len(when)) if weather.irradiance is None else weather.irradiance
    heating = DAY_TYPES * slots + MONTHS * HOURS
    design = np.zeros((len(when), heating + HOURS + 2))  # type of day and slot, month, heating, dark, sun
    design[row, cell] = 1
    design[row, DAY_TYPES * slots + hour_of_month] = 1
    design[row, heating + when.hour] = cold
    if weather.irradiance is not None:
        design[:, -2], design[:, -1] = find_dark(irradiance), irradiance / SUN_UNIT
    gram = design.T @ design + _RIDGE * np.eye(design.shape[1])
    coefficients = np.linalg.solve(gram, design.T @ np.asarray(demand_wh, np.float64))
    of_month = np.bincount(when.month, minlength=MONTHS)
    usual = np.bincount(when.month, weights=cold, minlength=MONTHS) / np.maximum(of_month, 1)
    usual = np.where(of_month > 0, usual, usual[of_month > 0].mean())
    seen = np.bincount(cell, minlength=DAY_TYPES * slots).reshape(DAY_TYPES, -1) > 0
    count = np.bincount(hour_of_month, minlength=MONTHS * HOURS).reshape(MONTHS, HOURS)
    enough = count >= _MIN_DAYS * max(1, slots // HOURS)
    known = np.where(enough.any(axis=0), enough, count > 0)  # hours of a month; or those that were seen at all
    bright = np.bincount(hour_of_month, weights=irradiance, minlength=MONTHS * HOURS).reshape(MONTHS, HOURS)
    usual_irradiance = fill_unseen(bright / np.maximum(count, 1), count > 0)
    found = []
    for column in coefficients.T:
        day_wh, month_wh = column[: seen.size].reshape(seen.shape), column[seen.size : heating].reshape(MONTHS, HOURS)
        made = CalendarForecast(
            fill_unseen(day_wh, seen),
            fill_unseen(month_wh, known),
            np.asarray(column[heating : heating + HOURS], np.float64),
            usual,
            -np.inf,
            float(column[-2]),
            float(column[-1]),
            usual_irradiance,
        )
        found.append(replace(made, least_wh=MIN_SHARE * float(made.mean_use_wh.mean())))
    return found


def fill_unseen(values: FloatArray, known: BoolArray) -> FloatArray:
    """Return values [kind, time], those that are not known as the mean of the others at that time."""
    return np.where(known, values, (values * known).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def find_measured(demand_wh: FloatArray) -> BoolArray:
    """Return which intervals have a demand in every history [interval]."""
    return np.asarray(np.isfinite(demand_wh).all(axis=1))


def measure_residuals(
    demand_wh: FloatArray, when: CalendarSlots, weather: Weather = USUAL_WEATHER, *, first_days: int = 28
) -> FloatArray:
    """Return demand over the forecast of `forecast_unseen`, minus 1, for all intervals after the first days."""
    expected = forecast_unseen(demand_wh, when, weather, first_days=first_days)
    return np.asarray(demand_wh[-len(expected) :] / expected - 1)


def forecast_unseen(
    demand_wh: FloatArray, when: CalendarSlots, weather: Weather = USUAL_WEATHER, *, first_days: int = 28
) -> FloatArray:
    """Fit on what came before and forecast the next week, again and again [interval, history].

    Returns the forecast of all intervals after the first days. Intervals whose demand is NaN were not measured: the
    first days end when that number of days is full.
    """
    week, first = 7 * when.slots_per_day, first_days * when.slots_per_day
    so_far = np.cumsum(find_measured(demand_wh))
    if not len(so_far) or so_far[-1] < first + week:
        found = int(so_far[-1]) if len(so_far) else 0
        days = f"{found} intervals ({found / when.slots_per_day:.1f} days)"
        raise ModelError("history", days, f"must be {first + week} or more: five weeks ({first_days + 7} days)")
    begin = int(np.searchsorted(so_far, first)) + 1
    forecasts = np.zeros((len(when) - begin, demand_wh.shape[1]))
    for start in range(begin, len(when), week):
        before, now = slice(0, start), slice(start, min(start + week, len(when)))
        fitted = fit_forecasts(demand_wh[before], when[before], weather.select(before))
        expected = [forecast.demand_wh(when[now], weather.select(now)) for forecast in fitted]
        forecasts[start - begin : now.stop - begin] = np.stack(expected, axis=1)
    return forecasts
