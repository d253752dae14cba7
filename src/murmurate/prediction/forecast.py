"""A public forecast of demand: by month, type of day and time of day, with a response to temperature.

It is fitted to public numbers, and its error is measured on days that the fit has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from murmurate.errors import ModelError
from murmurate.prediction.calendar import DAY_TYPES, MONTHS, CalendarSlots
from murmurate.units import BoolArray, FloatArray

HEATING_BASE_C = 15.0  # below this outdoor temperature buildings are heated
HOURS = 24
_MIN_DAYS = 5  # on which an hour of a month was seen, or it is taken from the other months
_RIDGE = 1e-3  # on parameters that the data do not determine
MIN_FORECAST_WH = 0.001  # of a household, in an interval
MIN_SHARE = 0.02  # of the mean demand: a forecast is at least this


@dataclass(frozen=True, slots=True, eq=False)
class CalendarForecast:
    """Expected demand: a day of each type, what a month adds to each hour, and what a colder day adds.

    expected = day_wh[type, slot] + month_wh[month, hour] + heat_wh_per_k[hour] * cold, and at least `least_wh`, with
    `cold` in K below the heating base. Three products and sums of single numbers: the same bits on every machine.
    """

    day_wh: FloatArray  # [day type, slot]
    month_wh: FloatArray  # [month, hour]
    heat_wh_per_k: FloatArray  # [hour]
    usual_cold_k: FloatArray  # [month] mean number of K below the heating base
    least_wh: float

    def __post_init__(self) -> None:
        parts = (self.day_wh, self.month_wh, self.heat_wh_per_k, self.usual_cold_k)
        shapes = tuple(part.shape for part in parts)
        if self.day_wh.ndim != 2 or shapes != ((DAY_TYPES, self.slots_per_day), (MONTHS, HOURS), (HOURS,), (MONTHS,)):
            raise ModelError("forecast", shapes, "must have 3 types of day, 12 months and 24 hours")

    @property
    def slots_per_day(self) -> int:
        return int(self.day_wh.shape[-1])

    @property
    def mean_wh(self) -> FloatArray:
        """Expected demand at the temperatures that were usual when it was fitted [month, day type, slot]."""
        hour = np.arange(self.slots_per_day) * HOURS // self.slots_per_day
        of_month = self.month_wh + self.heat_wh_per_k * self.usual_cold_k[:, None]
        return np.asarray(self.day_wh + of_month[:, None, hour])

    def demand_wh(self, when: CalendarSlots, temperature_c: FloatArray | None = None) -> FloatArray:
        """Return the expected demand of intervals [Wh]; see `cold_k` for the temperature."""
        expected = self.day_wh[when.day_type, when.slot] + self.month_wh[when.month, when.hour]
        expected = expected + self.heat_wh_per_k[when.hour] * self.cold_k(when, temperature_c)
        return np.asarray(np.maximum(expected, self.least_wh))

    def cold_k(self, when: CalendarSlots, temperature_c: FloatArray | None = None) -> FloatArray:
        """Return how cold intervals are [K below the heating base]: as usual where the temperature is None or NaN."""
        usual = self.usual_cold_k[when.month]
        if temperature_c is None:
            return np.asarray(usual)
        return np.where(np.isnan(temperature_c), usual, degrees_below_base(temperature_c))

    def scaled(self, factor: float) -> CalendarForecast:
        """The forecast of more or fewer households of the same make."""
        parts = (self.day_wh * factor, self.month_wh * factor, self.heat_wh_per_k * factor)
        return CalendarForecast(*parts, self.usual_cold_k, self.least_wh * factor)

    @classmethod
    def of_day(cls, profile_wh: FloatArray) -> CalendarForecast:
        """The forecast that expects the same every day [slot]."""
        day = np.tile(np.asarray(profile_wh, np.float64), (DAY_TYPES, 1))
        return cls(day, np.zeros((MONTHS, HOURS)), np.zeros(HOURS), np.zeros(MONTHS), MIN_SHARE * float(day.mean()))


def degrees_below_base(temperature_c: FloatArray) -> FloatArray:
    return np.maximum(HEATING_BASE_C - np.asarray(temperature_c, np.float64), 0.0)


def fit_forecast(
    demand_wh: FloatArray, when: CalendarSlots, temperature_c: FloatArray | None = None
) -> CalendarForecast:
    """Fit a forecast to a history of demand by least squares. Months without data are as the mean of the others."""
    return fit_forecasts(np.asarray(demand_wh)[:, None], when, temperature_c)[0]


def fit_forecasts(
    demand_wh: FloatArray, when: CalendarSlots, temperature_c: FloatArray | None = None
) -> list[CalendarForecast]:
    """Fit a forecast to each of several histories of the same intervals [interval, history].

    Intervals whose demand is NaN were not measured and are left out. Types of day that were never seen at some time of
    the day are as the mean of the others, and so are hours of a month that were not seen on enough days.
    """
    measured = find_measured(demand_wh)
    if not measured.all():
        demand_wh, when = demand_wh[measured], when[measured]
        temperature_c = None if temperature_c is None else temperature_c[measured]
    slots, row = when.slots_per_day, np.arange(len(when))
    cell, hour_of_month = when.day_type * slots + when.slot, when.month * HOURS + when.hour
    cold = np.zeros(len(when)) if temperature_c is None else degrees_below_base(temperature_c)
    design = np.zeros((len(when), DAY_TYPES * slots + (MONTHS + 1) * HOURS))  # type of day and slot, month, heating
    design[row, cell] = 1
    design[row, DAY_TYPES * slots + hour_of_month] = 1
    design[row, DAY_TYPES * slots + MONTHS * HOURS + when.hour] = cold
    gram = design.T @ design + _RIDGE * np.eye(design.shape[1])
    coefficients = np.linalg.solve(gram, design.T @ np.asarray(demand_wh, np.float64))
    of_month = np.bincount(when.month, minlength=MONTHS)
    usual = np.bincount(when.month, weights=cold, minlength=MONTHS) / np.maximum(of_month, 1)
    usual = np.where(of_month > 0, usual, usual[of_month > 0].mean())
    seen = np.bincount(cell, minlength=DAY_TYPES * slots).reshape(DAY_TYPES, -1) > 0
    count = np.bincount(hour_of_month, minlength=MONTHS * HOURS).reshape(MONTHS, HOURS)
    enough = count >= _MIN_DAYS * max(1, slots // HOURS)
    known = np.where(enough.any(axis=0), enough, count > 0)  # hours of a month; or those that were seen at all
    found = []
    for column in coefficients.T:
        day_wh, month_wh = column[: seen.size].reshape(seen.shape), column[seen.size : -HOURS].reshape(MONTHS, HOURS)
        day_wh, month_wh = (
            np.where(there, values, (values * there).sum(axis=0) / np.maximum(there.sum(axis=0), 1))
            for values, there in ((day_wh, seen), (month_wh, known))
        )
        made = CalendarForecast(day_wh, month_wh, np.asarray(column[-HOURS:], np.float64), usual, 0.0)
        found.append(replace(made, least_wh=MIN_SHARE * float(made.mean_wh.mean())))
    return found


def find_measured(demand_wh: FloatArray) -> BoolArray:
    """Return which intervals have a demand in every history [interval]."""
    return np.asarray(np.isfinite(demand_wh).all(axis=1))


def measure_residuals(
    demand_wh: FloatArray, when: CalendarSlots, temperature_c: FloatArray | None = None, *, first_days: int = 28
) -> FloatArray:
    """Return demand over the forecast of `forecast_unseen`, minus 1, for all intervals after the first days."""
    expected = forecast_unseen(demand_wh, when, temperature_c, first_days=first_days)
    return np.asarray(demand_wh[-len(expected) :] / expected - 1)


def forecast_unseen(
    demand_wh: FloatArray, when: CalendarSlots, temperature_c: FloatArray | None = None, *, first_days: int = 28
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
        past_c, now_c = (None, None) if temperature_c is None else (temperature_c[before], temperature_c[now])
        fitted = fit_forecasts(demand_wh[before], when[before], past_c)
        expected = [forecast.demand_wh(when[now], now_c) for forecast in fitted]
        forecasts[start - begin : now.stop - begin] = np.stack(expected, axis=1)
    return forecasts
