"""A winter as a simulated region lives it: days and their types, temperature, and what moves many homes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray, IntArray

DAYS = 70
_WEEK = (DayType.WORKDAY,) * 5 + (DayType.SATURDAY, DayType.SUNDAY)
_HOLIDAYS = (0, 14, 33, 61)  # days of the season, a Monday first


class SharedShock(NamedTuple):
    """A deviation that all homes of a region or zone share."""

    sd: float
    hours: float  # time constant


USE_SHOCKS = (SharedShock(0.040, 4.0), SharedShock(0.045, 36.0), SharedShock(0.030, 240.0))
OCCUPANCY_SHOCK = SharedShock(0.35, 30.0)  # on the log odds of being home
LEVEL_SHOCK = SharedShock(0.02, 360.0)
DRIFT_SD = 0.035  # of habits from year to year: of the level, and of each of four harmonics of the day
ZONE_SHOCKS = (SharedShock(0.015, 6.0), SharedShock(0.02, 168.0))


@dataclass(frozen=True, slots=True, eq=False)
class Season:
    """Public conditions and shared shocks of a region, by interval."""

    day_type: IntArray
    temperature_c: FloatArray  # as it was
    forecast_c: FloatArray  # as it was forecast, about 1 K off
    use_factor: FloatArray  # of what homes use while people are at home
    level_factor: FloatArray  # of all that homes use, except heat and cars
    log_odds_home: FloatArray  # added to the log odds of being home

    @property
    def intervals(self) -> int:
        return len(self.day_type)

    @property
    def calendar(self) -> CalendarSlots:
        """Where its intervals fall in the calendar: all in one month, as far as the forecast is concerned."""
        slot = np.arange(self.intervals) % QUARTER_HOURS_PER_DAY
        return CalendarSlots(np.zeros_like(slot), self.day_type, slot, QUARTER_HOURS_PER_DAY)


def draw_shock(rng: np.random.Generator, shock: SharedShock, intervals: int, shape: tuple[int, ...] = ()) -> FloatArray:
    """Return a stationary AR(1) deviation [interval, ...]."""
    keep = float(np.exp(-0.25 / shock.hours))
    fresh = rng.normal(size=(intervals, *shape)) * shock.sd * np.sqrt(1 - keep**2)
    fresh[0] = rng.normal(size=shape) * shock.sd
    for t in range(1, intervals):
        fresh[t] += keep * fresh[t - 1]
    return np.asarray(fresh)


def _drift(rng: np.random.Generator, hour: FloatArray) -> FloatArray:
    """How habits of this year differ from those of other years, by time of day."""
    drift = rng.normal() * DRIFT_SD + np.zeros_like(hour)
    for turns in (1, 2):
        angle = 2 * np.pi * turns * hour / 24
        drift += DRIFT_SD * (rng.normal() * np.cos(angle) + rng.normal() * np.sin(angle))
    return drift


def draw_season(rng: np.random.Generator, *, days: int = DAYS, shock_factor: float = 1.0) -> Season:
    """Return the conditions of some days. `shock_factor` multiplies what homes share."""
    intervals = days * QUARTER_HOURS_PER_DAY
    hour = np.arange(intervals) % QUARTER_HOURS_PER_DAY / 4
    day = np.arange(intervals) // QUARTER_HOURS_PER_DAY
    day_type = np.array([DayType.SUNDAY if d in _HOLIDAYS else _WEEK[d % 7] for d in range(days)])[day]
    temperature = 4.0 + 2.5 * np.cos(2 * np.pi * (hour - 15) / 24) + draw_shock(rng, SharedShock(3.5, 80.0), intervals)
    for begin in rng.choice(days - 5, size=2, replace=False):  # cold snaps
        temperature[(day >= begin) & (day < begin + 4)] -= 7.0
    shocks = [draw_shock(rng, SharedShock(shock_factor * s.sd, s.hours), intervals) for s in USE_SHOCKS]
    use = np.asarray(1.0 + sum(shocks))
    level = 1.0 + draw_shock(rng, SharedShock(shock_factor * LEVEL_SHOCK.sd, LEVEL_SHOCK.hours), intervals)
    odds = draw_shock(rng, SharedShock(shock_factor * OCCUPANCY_SHOCK.sd, OCCUPANCY_SHOCK.hours), intervals)
    for snow in rng.choice(days, size=3, replace=False):  # people stay at home
        odds[(day == snow) & (hour > 6)] += 0.8
    for match in rng.choice(days, size=4, replace=False):  # television
        use[(day == match) & (hour >= 20) & (hour < 22)] += 0.08
    return Season(
        day_type=day_type,
        temperature_c=temperature,
        forecast_c=temperature + draw_shock(rng, SharedShock(1.0, 18.0), intervals),
        use_factor=np.maximum(use, 0.2),
        level_factor=level * (1 + _drift(rng, hour)),
        log_odds_home=odds,
    )
