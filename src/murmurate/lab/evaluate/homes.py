"""Simulated homes: occupancy, appliances, electric heat, cars and water heaters, a quarter of an hour at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.lab.evaluate.random_stream import Float32Array, RandomStream
from murmurate.lab.evaluate.season import Season
from murmurate.prediction.calendar import DayType
from murmurate.prediction.forecast import HEATING_BASE_C
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

MAX_READING_WH = 5500  # what a connection carries in a quarter of an hour
_SLOTS = QUARTER_HOURS_PER_DAY
_SPREAD = 1.15  # sd of the log of what a home uses beyond its base, while people are at home
_APPLIANCE_INTERVALS = 4
_KEEP = float(np.exp(-0.25 / 0.85))  # how long it stays that way: 51 minutes


class HomeShares(NamedTuple):
    """Which share of homes has what: one number for all, or one for each home."""

    heat: FloatArray | float = 0.25  # electric heat
    car: FloatArray | float = 0.12
    timer: float = 0.40  # of cars, charged from 23:00
    water: float = 0.20  # water heater on a timer


USUAL_SHARES = HomeShares()


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


def _activity() -> FloatArray:
    """What a home uses beyond its base while people are at home, relative to its mean, by time of day."""
    hour = np.arange(_SLOTS) / 4
    peaks = 0.45 + 0.45 * np.exp(-(((hour - 8.0) / 2.0) ** 2)) + 0.4 * np.exp(-(((hour - 12.6) / 2.2) ** 2))
    return np.asarray(peaks + 0.95 * np.exp(-(((hour - 19.3) / 3.0) ** 2)))


ACTIVITY = _activity()


@dataclass(slots=True, eq=False)
class Homes:
    """A number of homes, one state each."""

    random: RandomStream
    kind: NDArray[np.int8]
    mean_wh: Float32Array  # of its active use
    base_wh: Float32Array
    heat_wh: Float32Array  # per K below the heating base
    car: NDArray[np.int8]  # 0: none, 1: charged on coming home, 2: from 23:00
    water: list[NDArray[np.intp]]  # which homes heat water, by slot
    home: Float32Array  # 1: people are at home
    mood: Float32Array
    running: list[NDArray[np.intp]]  # homes whose appliance was switched on, in each of the last intervals
    charge_left: NDArray[np.int8]  # intervals

    @property
    def count(self) -> int:
        return len(self.base_wh)

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int, shares: HomeShares = USUAL_SHARES) -> Homes:
        """Draw homes from a population."""
        water_from = np.where(rng.random(count) < shares.water, rng.integers(84, 124, count) % _SLOTS, -_SLOTS)
        heated = rng.random(count) < shares.heat
        cars = (rng.random(count) < shares.car) * np.where(rng.random(count) < shares.timer, 2, 1)
        return cls(
            kind=rng.choice(len(_TYPE_SHARES), size=count, p=_TYPE_SHARES).astype(np.int8),
            mean_wh=(66 * rng.lognormal(-0.18, 0.6, count)).astype(np.float32),
            base_wh=(24 * rng.lognormal(-0.125, 0.5, count)).astype(np.float32),
            heat_wh=(heated * 9.0 * rng.lognormal(-0.08, 0.4, count)).astype(np.float32),
            car=cars.astype(np.int8),
            water=[
                np.flatnonzero((slot - water_from) % _SLOTS + _SLOTS * (water_from < 0) < 6) for slot in range(_SLOTS)
            ],
            home=(rng.random(count) < 0.8).astype(np.float32),
            mood=rng.standard_normal(count, np.float32),
            running=[np.zeros(0, np.intp)] * _APPLIANCE_INTERVALS,
            charge_left=np.zeros(count, np.int8),
            random=RandomStream(rng),
        )

    def step(self, season: Season, t: int, zone_factor: Float32Array | float = 1.0) -> Float32Array:
        """Return what each home uses in the next interval [Wh], whole numbers. `zone_factor`: of shocks of its zone."""
        slot = t % _SLOTS
        came = self._move(season, t)
        fresh = self.random.normal(self.count)
        fresh *= np.float32(np.sqrt(1 - _KEEP**2))
        self.mood *= np.float32(_KEEP)
        self.mood += fresh
        used = np.multiply(self.mood, np.float32(_SPREAD), out=fresh)
        np.exp(used, out=used)
        used *= self.mean_wh
        used *= self.home
        use_factor = season.use_factor[t]
        used *= np.float32(ACTIVITY[slot] * np.exp(-(_SPREAD**2) / 2) * use_factor)
        used += self.base_wh
        self._run_appliances(used, slot, float(use_factor))
        used[self.water[slot]] += 260
        used *= np.asarray(season.level_factor[t] * zone_factor, np.float32)
        cold = max(HEATING_BASE_C - float(season.temperature_c[t]), 0.0)
        heat = np.multiply(self.home, np.float32(0.25 * cold))
        heat += np.float32(0.75 * cold)
        heat *= self.heat_wh
        used += heat
        self._charge_cars(used, came, slot, int(season.day_type[t]))
        np.rint(used, out=used)
        return np.minimum(used, np.float32(MAX_READING_WH), out=used)

    def _move(self, season: Season, t: int) -> NDArray[np.intp]:
        """Some homes look anew whether people are at home, each about every hour and a half. Return who came home."""
        odds = _LOG_ODDS[:, season.day_type[t], t % _SLOTS] + season.log_odds_home[t]
        picked = self.random.pick(self.count, 0.16)
        chance = (1 / (1 + np.exp(-odds))).astype(np.float32)
        now = self.random.uniform(len(picked)) < chance[self.kind[picked]]
        came = picked[now & (self.home[picked] == 0)]
        self.home[picked] = now
        return np.asarray(came)

    def _run_appliances(self, used: Float32Array, slot: int, use_factor: float) -> None:
        picked = self.random.pick(self.count, 0.006 + 0.0055 * ACTIVITY[slot])
        self.running = [*self.running[1:], picked[self.home[picked] > 0]]
        used[np.concatenate(self.running)] += np.float32(190 * use_factor)  # once for each home

    def _charge_cars(self, used: Float32Array, came: NDArray[np.intp], slot: int, day_type: int) -> None:
        """Cars are charged when people come home in the evening, or from 23:00."""
        begins = came[self.car[came] == 1] if slot >= 60 else came[:0]
        if slot == 92:
            begins = np.concatenate([begins, np.flatnonzero((self.car == 2) & (self.home > 0))])
        begins = begins[self.random.uniform(len(begins)) < (0.5 if day_type == DayType.WORKDAY else 0.35)]
        begins = begins[self.charge_left[begins] == 0]
        self.charge_left[begins] = 3 + 9 * self.random.uniform(len(begins))
        charging = np.flatnonzero(self.charge_left)
        used[charging] += 1700
        self.charge_left[charging] -= 1
