"""Homes of the foreign world: who is awake and at home, and what that uses in each quarter of an hour.

Occupancy follows the Markov chains of Richardson, Thomson and Infield (2008, doi:10.1016/j.enbuild.2008.02.006), fitted
to the UK time use survey and read from the data files of the package richardsonpy. Around it stand simple physical
models: light by irradiance, meals, washing, instantaneous water heaters, heat pumps behind the lag of a building, cars,
photovoltaics. Nothing is shared with `murmurate.lab.evaluate`. Equations in a docstring are in W and Wh.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from murmurate.units import BoolArray, FloatArray, IntArray

SLOTS, STEPS = 96, 144  # of a day: quarters of an hour; 10 minutes of the chains
_SIZES = (0.40, 0.34, 0.12, 0.10, 0.04)  # of homes with 1, 2, .. 5 residents
_STATES = 7  # active residents, 0 to 6
_HOUR = np.arange(SLOTS) / 4
_PV_RATIO = 0.82  # of what a module yields to what its rated power promises
_MAX_WH = np.iinfo(np.int16).max


def locate_data(name: str) -> Path:
    """Return a data file of richardsonpy. The package is found, not imported. Raises ModuleNotFoundError."""
    spec = find_spec("richardsonpy")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("The foreign world reads data of richardsonpy. Run: pip install richardsonpy")
    return Path(spec.submodule_search_locations[0]) / "inputs" / name


@cache
def read_chains() -> FloatArray:
    """Return cumulative transition chances [workday or free day, residents - 1, step of 10 min, from, to]."""
    table = np.array(
        [
            [np.loadtxt(locate_data(f"constants/tpm{size}_{kind}.csv"), delimiter=";")[:, 2:] for size in range(1, 6)]
            for kind in ("wd", "we")
        ]
    ).reshape(2, 5, STEPS, _STATES, _STATES)
    table[table.sum(axis=-1) <= 0] = np.eye(_STATES)[0]  # a number of residents that was never seen: nobody is active
    return np.asarray(np.cumsum(table / table.sum(axis=-1, keepdims=True), axis=-1), np.float32)


class Surroundings(NamedTuple):
    """What the homes of one place have in common."""

    free: BoolArray  # [day] weekends and holidays
    holiday: BoolArray  # [day]
    leave_chance: FloatArray  # [day] that a home travels from this day on
    temperature_c: FloatArray  # [interval]
    slow_temperature_c: FloatArray  # [interval] as walls feel it
    irradiance: FloatArray  # [interval] on the horizontal plane [W/m^2]
    use: FloatArray  # [interval] factor of habits: shocks of the region and of the place


class Shares(NamedTuple):
    """Shares of homes that own something."""

    heat_pump: float
    car: float
    pv: float
    water_heater: float  # instantaneous


class Homes(NamedTuple):
    """What homes of one place use, and their photovoltaics, which can be left out."""

    use_wh: IntArray  # [interval, home] 16 bits
    pv_kw: FloatArray  # [home] rated power, 0: none
    pv_tilt: FloatArray  # [home] above 0: faces west
    irradiance: FloatArray  # [interval]

    def readings_wh(self, homes: int, *, pv: bool) -> IntArray:
        """Return the net energy that meters of the first homes read [Wh, interval, home]; negative: fed in."""
        if not pv:
            return self.use_wh[:, :homes]
        net_wh = self.use_wh[:, :homes].copy()
        owners = np.flatnonzero(self.pv_kw[:homes])
        lean = np.maximum(1 + self.pv_tilt[owners] * ((np.arange(len(net_wh)) % SLOTS / 4)[:, None] - 12.5) / 4, 0)
        made_wh = self.pv_kw[owners] / 4 * _PV_RATIO * self.irradiance[:, None] * lean  # kW of 1,000 W/m^2, hours
        net_wh[:, owners] -= np.rint(made_wh).astype(np.int16)
        return net_wh


class Cycles:
    """An appliance that runs through a profile once it has started, in each of some homes."""

    def __init__(
        self,
        rng: np.random.Generator,
        owned: BoolArray,
        profile: tuple[float, ...],
        power: tuple[int, int],
        *,
        shortest: int | None = None,
    ) -> None:
        """`profile` is in Wh for each W of `power`, drawn at each start; a run may be as short as `shortest`."""
        self._rng, self._owned, self._profile, self._range = rng, owned, np.array(profile), power
        self._shortest = shortest or len(profile)
        self._left, self._power = np.zeros(len(owned), np.int64), np.zeros(len(owned))

    def run(self, chance: FloatArray, used_wh: FloatArray) -> None:
        """Start at some chance [home], and add what is used in this interval [home]."""
        starts = np.flatnonzero((self._left == 0) & self._owned & (self._rng.random(len(chance), np.float32) < chance))
        self._left[starts] = self._rng.integers(self._shortest, len(self._profile) + 1, len(starts))
        self._power[starts] = self._rng.uniform(*self._range, len(starts))
        running = np.flatnonzero(self._left)
        used_wh[running] += self._power[running] * self._profile[len(self._profile) - self._left[running]]
        self._left[running] -= 1


class HeatPumps:
    """Heat pumps that follow the loss of their buildings and switch on and off.

    loss = ua (target - 3 K - slow temperature), divided by COP = 3.1 + 0.07 (temperature - 2), at least 1.8.
    """

    def __init__(self, rng: np.random.Generator, owned: BoolArray) -> None:
        self.at = np.flatnonzero(owned)
        self._ua, self._target = rng.uniform(80, 230, len(self.at)), rng.uniform(19.5, 22.0, len(self.at))  # W/K, °C
        self._power = rng.uniform(1500, 4500, len(self.at))
        self._owed, self._on = np.zeros(len(self.at)), np.zeros(len(self.at), np.bool_)  # Wh that it still must use

    def run(self, slot: int, temperature_c: float, slow_c: float, away: BoolArray) -> FloatArray:
        """Return what is used in an interval [Wh, owner]."""
        lowered = np.where(away[self.at], 4.0, 1.2 if slot < 22 or slot >= 90 else 0.0)
        loss = np.maximum(self._ua * (self._target - lowered - 3 - slow_c), 0.0)
        self._owed += loss / max(1.8, 3.1 + 0.07 * (temperature_c - 2)) / 4
        if 20 <= slot < 25:  # rooms and water are warmed in the morning
            self._owed += 0.5 * self._ua
        self._on = (self._owed > 0.4 * self._power) | (self._on & (self._owed > 0.03 * self._power))
        used = np.where(self._on, np.minimum(self._owed, self._power / 4), 0.0)
        self._owed -= used
        return used


class Cars:
    """Cars that come home in the evening and charge, most of them at once, some by a timer from 22 h on."""

    def __init__(self, rng: np.random.Generator, owned: BoolArray) -> None:
        self.at, self._rng = np.flatnonzero(owned), rng
        count = len(self.at)
        self._quarter_wh = rng.choice([11_000, 3_700, 2_300], count, p=[0.45, 0.35, 0.20]) / 4
        self._first_slot = np.where(rng.random(count) < 0.25, 88, 0)
        self._owed_wh, self._trip_wh, self._home_slot = np.zeros(count), np.zeros(count), np.zeros(count)

    def plan_day(self, *, free: bool) -> None:
        """Draw the trips of a day: on 55 % of workdays and 40 % of others, 9 kWh on average."""
        count, rng = len(self.at), self._rng
        drives = rng.random(count) < (0.4 if free else 0.55)
        self._trip_wh = np.where(drives, rng.gamma(2.0, 4500.0, count), 0.0)
        self._home_slot = np.clip(rng.normal(66, 14, count) if free else rng.normal(72.5, 7, count), 30, 95).astype(int)

    def charge(self, slot: int, away: BoolArray) -> FloatArray:
        """Return what is charged in an interval [Wh, owner]. What is left is charged until 6 h."""
        self._owed_wh += np.where((self._home_slot == slot) & ~away[self.at], self._trip_wh, 0.0)
        plugged = (slot < 24) | (slot >= np.maximum(self._home_slot, self._first_slot))
        used = np.where(plugged & ~away[self.at], np.minimum(self._owed_wh, self._quarter_wh), 0.0)
        self._owed_wh -= used
        return used


def simulate_homes(rng: np.random.Generator, count: int, shares: Shares, around: Surroundings) -> Homes:
    """Return what homes of one place use, interval by interval."""
    pump_owner, car_owner, pv_owner, heated = (rng.random(count) < share for share in shares)
    residents = rng.choice(len(_SIZES), count, p=_SIZES)  # less one
    standby, light, screens = (rng.lognormal(np.log(w), sd, count) for w, sd in ((45, 0.6), (70, 0.6), (110, 0.5)))
    habit = rng.lognormal(-0.08, 0.4, count)  # how much more than others of its size a home uses; mean 1
    cooks, fridge = rng.lognormal(0.0, 0.5, count), rng.uniform(25, 70, count)
    phase = rng.integers(0, 9, count)
    everyone = np.ones(count, np.bool_)
    meals = Cycles(rng, everyone, (0.25,) * 4, (700, 2300), shortest=1)
    washing = Cycles(rng, rng.random(count) < 0.85, (0.45, 0.45, 0.1, 0.1, 0.1, 0.1), (500, 1100))
    dishes = Cycles(rng, rng.random(count) < 0.60, (330, 70, 70, 330, 70), (1, 1))
    dryer = Cycles(rng, rng.random(count) < 0.40, (560,) * 4, (1, 1))
    pumps, cars = HeatPumps(rng, pump_owner), Cars(rng, car_owner)
    awake_state, back = np.zeros(count, np.int64), np.zeros(count, np.int64)  # back: first day at home again
    days = len(around.free)
    use_wh = np.zeros((days * SLOTS, count), np.int16)
    for day in range(days):
        free, holiday, span = bool(around.free[day]), bool(around.holiday[day]), slice(day * SLOTS, (day + 1) * SLOTS)
        leaves = (back <= day) & (rng.random(count) < around.leave_chance[day])
        back[leaves] = day + rng.integers(4, 12, int(leaves.sum()))
        away = back > day
        awake = np.zeros((SLOTS, count), np.int64)
        awake_state = follow_chains(rng, awake_state, residents, free=free, found=awake)
        awake = np.where(away, 0, np.minimum(awake, residents + 1))
        use = around.use[span]
        cold_box = (np.arange(SLOTS)[:, None] + day * SLOTS + phase) % 9 < 4
        used = standby / 4 + np.where(cold_box, fridge, 4.0) / 2
        used += use_while_awake(rng, awake, use[:, None] * habit, around.irradiance[span, None], light, screens)
        morning = ((_HOUR > 6) & (_HOUR < 9))[:, None]
        showers = heated & (rng.random(used.shape, np.float32) < np.where(morning, 0.045, 0.01) * np.sqrt(awake))
        used[showers] += rng.uniform(800, 2600, int(showers.sum()))
        cars.plan_day(free=free)
        for slot in range(SLOTS):
            active, now, row = (awake[slot] > 0) * habit * use[slot], day * SLOTS + slot, used[slot]
            meals.run(active * cooks * (meal_chance(slot, free=free) * (1.25 if holiday else 1.0)), row)
            washing.run(active * (0.0075 * (1.5 if free else 1.0)), row)
            dishes.run(active * (0.010 * (2.0 if slot > 74 else 0.7) if slot > 32 else 0.0), row)
            dryer.run(active * 0.0035, row)
            heat = pumps.run(slot, float(around.temperature_c[now]), float(around.slow_temperature_c[now]), away)
            row[pumps.at] += heat
            row[cars.at] += cars.charge(slot, away)
        use_wh[span] = np.rint(np.minimum(used, _MAX_WH))
    pv_kw = np.where(pv_owner, rng.uniform(4, 11, count), 0.0)
    return Homes(cast("IntArray", use_wh), pv_kw, rng.uniform(-0.35, 0.35, count), around.irradiance)


def follow_chains(
    rng: np.random.Generator, state: IntArray, residents: IntArray, *, free: bool, found: IntArray
) -> IntArray:
    """Write the number of active residents of a day into `found` [slot, home]; return the last one [home]."""
    chains, chance = read_chains()[int(free)], rng.random((STEPS, len(state)), np.float32)
    for step in range(STEPS):
        state = (chance[step, :, None] > chains[residents, step, state, :-1]).sum(axis=1)
        found[step * 2 // 3] = state
    return state


def use_while_awake(
    rng: np.random.Generator,
    awake: IntArray,
    use: FloatArray,
    irradiance: FloatArray,
    light: FloatArray,
    screens: FloatArray,
) -> FloatArray:
    """Return what light, screens and kettles use while residents are awake [Wh, slot, home]."""
    chance = rng.random((4, *awake.shape), np.float32)
    dark = 1 / (1 + np.exp((irradiance - 60) / 25))
    lit = light / 4 * dark * (0.7 + 0.3 * awake) * (0.6 + 0.8 * chance[0])
    shown = 0.2 * screens * np.minimum(awake, 2) * (0.3 + 1.1 * chance[1])
    boiled = np.where(chance[2] < 0.042 * awake * use, 50 + 60 * chance[3], 0.0)
    return np.asarray(np.where(awake > 0, (lit + shown) * use + boiled, 0.0))


def meal_chance(slot: int, *, free: bool) -> float:
    """Return the chance that an active home begins to cook: at breakfast, noon and in the evening."""
    peaks = ((7.3, 0.9, 0.13 * (0.5 if free else 1.0)), (12.4, 1.0, 0.12 * (1.2 if free else 0.4)), (18.5, 1.1, 0.30))
    bells = [height * np.exp(-0.5 * ((slot / 4 - hour) / width) ** 2) for hour, width, height in peaks]
    return float(0.5 * (0.012 + sum(bells)))
