"""Simulated homes in a winter: occupancy, appliances, electric heat, cars and water heaters, a quarter hour at a time.

A season has the days and their types, the temperature, and the deviations that many homes share. Random numbers come
from the raw bits of a generator: sixteen bits make a number, so that a draw costs a quarter of what the functions of a
generator take. They are not for the noise of a release.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from murmurate.prediction.calendar import CalendarSlots, DayType
from murmurate.prediction.forecast import HEATING_BASE_C
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray, IntArray

Float32Array = NDArray[np.float32]
DAYS = 70
MAX_READING_WH = 5500  # what a connection carries in a quarter of an hour
_SLOTS = QUARTER_HOURS_PER_DAY
_WEEK = (DayType.WORKDAY,) * 5 + (DayType.SATURDAY, DayType.SUNDAY)
_HOLIDAYS = (0, 14, 33, 61)  # days of the season, a Monday first
_VALUES = 1 << 16
_NORMAL = ndtri((np.arange(_VALUES) + 0.5) / _VALUES).astype(np.float32)
_SPREAD = 1.15  # sd of the log of what a home uses beyond its base, while people are at home
_APPLIANCE_INTERVALS = 4
_TIMER_SHARE, _WATER_SHARE = 0.40, 0.20  # of cars, charged from 23:00; of homes, with a water heater on a timer
_KEEP = float(np.exp(-0.25 / 0.85))  # how long it stays that way: 51 minutes


# Deviations that all homes of a region or zone share: standard deviation, time constant [h]
USE_SHOCKS = ((0.040, 4.0), (0.045, 36.0), (0.030, 240.0))
OCCUPANCY_SHOCK = (0.35, 30.0)  # on the log odds of being home
LEVEL_SHOCK = (0.02, 360.0)
ZONE_SHOCKS = ((0.015, 6.0), (0.02, 168.0))
DRIFT_SD = 0.035  # of habits from year to year: of the level, and of each of four harmonics of the day


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
        slot = np.arange(self.intervals) % _SLOTS
        return CalendarSlots(np.zeros_like(slot), self.day_type, slot, _SLOTS)


def draw_shock(
    rng: np.random.Generator, sd: float, hours: float, intervals: int, shape: tuple[int, ...] = ()
) -> FloatArray:
    """Return a stationary AR(1) deviation with a standard deviation and a time constant [interval, ...]."""
    keep = float(np.exp(-0.25 / hours))
    fresh = rng.normal(size=(intervals, *shape)) * sd * np.sqrt(1 - keep**2)
    fresh[0] = rng.normal(size=shape) * sd
    for t in range(1, intervals):
        fresh[t] += keep * fresh[t - 1]
    return np.asarray(fresh)


def draw_season(rng: np.random.Generator, *, days: int = DAYS, shock_factor: float = 1.0) -> Season:
    """Return the conditions of some days. `shock_factor` multiplies what homes share."""
    intervals = days * _SLOTS
    hour = np.arange(intervals) % _SLOTS / 4
    day = np.arange(intervals) // _SLOTS
    day_type = np.array([DayType.SUNDAY if d in _HOLIDAYS else _WEEK[d % 7] for d in range(days)])[day]
    temperature = 4.0 + 2.5 * np.cos(2 * np.pi * (hour - 15) / 24) + draw_shock(rng, 3.5, 80.0, intervals)
    for begin in rng.choice(days - 5, size=2, replace=False):  # cold snaps
        temperature[(day >= begin) & (day < begin + 4)] -= 7.0
    shocks = [draw_shock(rng, shock_factor * sd, hours, intervals) for sd, hours in USE_SHOCKS]
    use = np.asarray(1.0 + sum(shocks))
    level = 1.0 + draw_shock(rng, shock_factor * LEVEL_SHOCK[0], LEVEL_SHOCK[1], intervals)
    odds = draw_shock(rng, shock_factor * OCCUPANCY_SHOCK[0], OCCUPANCY_SHOCK[1], intervals)
    for snow in rng.choice(days, size=3, replace=False):  # people stay at home
        odds[(day == snow) & (hour > 6)] += 0.8
    for match in rng.choice(days, size=4, replace=False):  # television
        use[(day == match) & (hour >= 20) & (hour < 22)] += 0.08
    forecast_c = temperature + draw_shock(rng, 1.0, 18.0, intervals)
    drift = rng.normal() * DRIFT_SD + np.zeros_like(hour)  # how habits of this year differ, by time of day
    for turns in (1, 2):
        angle = 2 * np.pi * turns * hour / 24
        drift += DRIFT_SD * (rng.normal() * np.cos(angle) + rng.normal() * np.sin(angle))
    return Season(
        day_type=day_type,
        temperature_c=temperature,
        forecast_c=forecast_c,
        use_factor=np.maximum(use, 0.2),
        level_factor=level * (1 + drift),
        log_odds_home=odds,
    )


class RandomStream:
    """Draws from one generator."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def normal(self, count: int) -> Float32Array:
        """Return standard normal numbers, each one of 65,536 quantiles."""
        return np.take(_NORMAL, self._bits(count), mode="wrap")  # quicker than a check of each

    def uniform(self, count: int) -> Float32Array:
        """Return numbers between 0 and 1."""
        return (self._bits(count).astype(np.float32) + np.float32(0.5)) * np.float32(1 / _VALUES)

    def pick(self, count: int, chance: float) -> NDArray[np.intp]:
        """Return some of the numbers below `count`, each with a chance and independent of the others.

        Numbers are drawn at random, so often that each is missed with probability 1 - chance. One may be there twice.
        """
        thrown = int(self._rng.poisson(-count * np.log1p(-chance)))
        return (self._bits(thrown).astype(np.intp) * count) >> 16

    def _bits(self, count: int) -> NDArray[np.uint16]:
        raw = self._rng.bit_generator.random_raw(-(-count // 4))
        return np.asarray(raw, np.uint64).view(np.uint16)[:count]


def _presence(leave: float, back: float, stay: float) -> FloatArray:
    """The chance to be home by time of day: away between two hours except for a share that stays."""
    hour = np.arange(_SLOTS) / 4
    away = 1 / (1 + np.exp(-(hour - leave) * 2)) / (1 + np.exp((hour - back) * 1.2))
    return np.asarray(0.97 - (0.97 - stay) * away)


# [type, day type, slot]: full-time workers, part-time, at home, late shift
PRESENCE = np.array(
    [
        [_presence(7.5, 17.5, 0.08), _presence(10.5, 16, 0.55), _presence(11.5, 17, 0.62)],
        [_presence(8.0, 13.0, 0.20), _presence(10.0, 15, 0.60), _presence(11.5, 17, 0.65)],
        [_presence(9.5, 11.5, 0.60), _presence(9.5, 12, 0.60), _presence(10.0, 12, 0.68)],
        [_presence(13.0, 22.5, 0.10), _presence(12.0, 20, 0.50), _presence(12.0, 19, 0.60)],
    ]
)
_TYPE_SHARES = (0.42, 0.20, 0.28, 0.10)
_LOG_ODDS = np.log(PRESENCE / (1 - PRESENCE))


# What a home uses beyond its base while people are at home, relative to its mean, by time of day
_HOUR = np.arange(_SLOTS) / 4
ACTIVITY = (
    0.45
    + 0.45 * np.exp(-(((_HOUR - 8.0) / 2.0) ** 2))
    + 0.4 * np.exp(-(((_HOUR - 12.6) / 2.2) ** 2))
    + 0.95 * np.exp(-(((_HOUR - 19.3) / 3.0) ** 2))
)


class Homes:
    """A number of homes, one state each."""

    def __init__(
        self, rng: np.random.Generator, count: int, heat: FloatArray | float = 0.25, car: FloatArray | float = 0.12
    ) -> None:
        """Draw homes from a population. `heat` and `car` are shares of homes that have one, for all or for each."""
        self.count = count
        water_from = np.where(rng.random(count) < _WATER_SHARE, rng.integers(84, 124, count) % _SLOTS, -_SLOTS)
        heated = rng.random(count) < heat
        cars = (rng.random(count) < car) * np.where(rng.random(count) < _TIMER_SHARE, 2, 1)
        self._kind = rng.choice(len(_TYPE_SHARES), size=count, p=_TYPE_SHARES).astype(np.int8)
        self._mean_wh = (66 * rng.lognormal(-0.18, 0.6, count)).astype(np.float32)  # of its active use
        self._base_wh = (24 * rng.lognormal(-0.125, 0.5, count)).astype(np.float32)
        self._heat_wh = (heated * 9.0 * rng.lognormal(-0.08, 0.4, count)).astype(np.float32)  # per K below the base
        self._car = cars.astype(np.int8)  # 0: none, 1: charged on coming home, 2: from 23:00
        since_on = [(slot - water_from) % _SLOTS + _SLOTS * (water_from < 0) for slot in range(_SLOTS)]
        self._water = [np.flatnonzero(intervals < 6) for intervals in since_on]  # which homes heat water, by slot
        self._home = (rng.random(count) < 0.8).astype(np.float32)  # 1: people are at home
        self._mood = rng.standard_normal(count, np.float32)
        self._running = [np.zeros(0, np.intp)] * _APPLIANCE_INTERVALS  # homes that switched one on, by interval
        self._charge_left = np.zeros(count, np.int8)  # intervals
        self._random = RandomStream(rng)

    def step(self, season: Season, t: int, zone_factor: Float32Array | float = 1.0) -> Float32Array:
        """Return what each home uses in the next interval [Wh], whole numbers. `zone_factor`: of shocks of its zone."""
        slot, use_factor = t % _SLOTS, season.use_factor[t]
        came = self._move(season, t)
        fresh = self._random.normal(self.count)
        fresh *= np.float32(np.sqrt(1 - _KEEP**2))
        self._mood *= np.float32(_KEEP)
        self._mood += fresh
        used = np.multiply(self._mood, np.float32(_SPREAD), out=fresh)
        np.exp(used, out=used)
        used *= self._mean_wh
        used *= self._home
        used *= np.float32(ACTIVITY[slot] * np.exp(-(_SPREAD**2) / 2) * use_factor)
        used += self._base_wh
        picked = self._random.pick(self.count, 0.006 + 0.0055 * ACTIVITY[slot])
        self._running = [*self._running[1:], picked[self._home[picked] > 0]]
        used[np.concatenate(self._running)] += np.float32(190 * float(use_factor))  # once for each home
        used[self._water[slot]] += 260
        used *= np.asarray(season.level_factor[t] * zone_factor, np.float32)
        cold = max(HEATING_BASE_C - float(season.temperature_c[t]), 0.0)
        heat = np.multiply(self._home, np.float32(0.25 * cold))
        heat += np.float32(0.75 * cold)
        heat *= self._heat_wh
        used += heat
        # cars are charged when people come home in the evening, or from 23:00
        begins = came[self._car[came] == 1] if slot >= 60 else came[:0]
        if slot == 92:
            begins = np.concatenate([begins, np.flatnonzero((self._car == 2) & (self._home > 0))])
        chance = 0.5 if season.day_type[t] == DayType.WORKDAY else 0.35
        begins = begins[self._random.uniform(len(begins)) < chance]
        begins = begins[self._charge_left[begins] == 0]
        self._charge_left[begins] = 3 + 9 * self._random.uniform(len(begins))
        charging = np.flatnonzero(self._charge_left)
        used[charging] += 1700
        self._charge_left[charging] -= 1
        np.rint(used, out=used)
        return np.minimum(used, np.float32(MAX_READING_WH), out=used)

    def _move(self, season: Season, t: int) -> NDArray[np.intp]:
        """Return the homes to which people come. Whether they are home is drawn again every hour and a half or so."""
        odds = _LOG_ODDS[:, season.day_type[t], t % _SLOTS] + season.log_odds_home[t]
        picked = self._random.pick(self.count, 0.16)
        chance = (1 / (1 + np.exp(-odds))).astype(np.float32)
        now = self._random.uniform(len(picked)) < chance[self._kind[picked]]
        came = picked[now & (self._home[picked] == 0)]
        self._home[picked] = now
        return np.asarray(came)
