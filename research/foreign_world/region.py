"""The region around the homes: weather, shocks, holidays, industry, zones; and what the public knows about all that.

Weather is the German test reference year of the region Mannheim (DWD, TRY2010_12) as richardsonpy ships it. The year
before, in which the sample was metered, has other weather, other shocks, and homes with less equipment.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from murmurate.prediction.calendar import CalendarSlots, locate_intervals
from murmurate.units import BoolArray, FloatArray, IntArray
from research.foreign_world.homes import SLOTS, Homes, Shares, Surroundings, locate_data, simulate_homes

NOW, YEAR_BEFORE = Shares(0.10, 0.10, 0.12, 0.15), Shares(0.08, 0.07, 0.09, 0.15)
SHARES_SD = 0.25  # by which shares of equipment differ between zones, relative
LEVEL_SD = 0.04  # by which the mean use of a zone is known, relative
REGIONAL_DELAY = 4  # intervals after which the load of the region is public
HOME_SHARE = 0.45  # of the region's load; the rest is industry and trade
_NEW_YEAR_2027 = 20_819  # days from 1970
_OTHER_HOMES = 2_000  # of the region, in no zone; they stand for all its homes
_LAG_INTERVALS = 58  # of walls behind the air: 14 hours


class Season(Enum):
    """The first day of a season, counted from New Year."""

    winter = 0
    summer = 135


class Weather(NamedTuple):
    """Weather as the public has it, half an hour before [interval]."""

    temperature_c: FloatArray
    irradiance: FloatArray  # on the horizontal plane [W/m^2]

    def __getitem__(self, chosen: slice) -> Weather:  # type: ignore[override]
        return Weather(self.temperature_c[chosen], self.irradiance[chosen])


class Year(NamedTuple):
    """A season of one year: what all its homes have in common, and what the public sees of it."""

    first_interval: int  # from 1970
    holidays: tuple[int, ...]  # days from 1970
    around: Surroundings  # without the shocks and clouds of a place
    weather: Weather
    when: CalendarSlots


class Public(NamedTuple):
    """All that anybody may know before and while a zone is priced. Meters are not in it, but for the sample's."""

    year: Year
    regional_load: FloatArray  # [interval], known `REGIONAL_DELAY` intervals later
    homes: int  # of each zone
    mean_wh: FloatArray  # [zone] what a home uses in an interval of the season, off by `LEVEL_SD`
    pv_share: FloatArray  # [zone] by the register of plants
    year_before: Year
    regional_load_before: FloatArray  # [interval]
    sample_wh: IntArray  # [interval, home] net readings of the consented sample, a year before
    sample_has_pv: BoolArray  # [home]


class World(NamedTuple):
    """A region in a season: zones and, apart from them, the sample of the year before and other homes."""

    year: Year
    zones: tuple[Homes, ...]
    others: Homes
    year_before: Year
    sample: Homes
    others_before: Homes
    seed: int

    def readings_wh(self, homes: int, *, pv: bool) -> list[IntArray]:
        """Return what the meters of the first homes of each zone read [Wh, interval, home]."""
        return [zone.readings_wh(homes, pv=pv) for zone in self.zones]

    def tell_public(self, homes: int, *, pv: bool) -> Public:
        """Return what the public knows about zones of a number of homes."""
        rng = np.random.default_rng([self.seed, homes])
        use_wh = np.array([zone.use_wh[:, :homes].mean() for zone in self.zones])
        return Public(
            year=self.year,
            regional_load=_regional_load(self.year, self.others, [self.seed, 8], pv=pv),
            homes=homes,
            mean_wh=use_wh * (1 + LEVEL_SD * rng.standard_normal(len(use_wh))),
            pv_share=np.array([np.mean(zone.pv_kw[:homes] > 0) if pv else 0.0 for zone in self.zones]),
            year_before=self.year_before,
            regional_load_before=_regional_load(self.year_before, self.others_before, [self.seed, 9], pv=pv),
            sample_wh=self.sample.readings_wh(self.sample.use_wh.shape[1], pv=pv),
            sample_has_pv=(self.sample.pv_kw > 0) & pv,
        )


def simulate_world(season: Season, seed: int, *, zones: int, homes: int, days: int, sample: int) -> World:
    """Return zones of a number of homes in a season, with their region. A zone is the same however many there are."""
    year, before = (simulate_year(season, [seed, number], days, back=number) for number in (0, 1))
    made = []
    for number in range(zones):
        rng = np.random.default_rng([seed, 2, number])
        shares = Shares(*(min(share * np.exp(SHARES_SD * rng.standard_normal()), 0.9) for share in NOW))
        made.append(simulate_homes(rng, homes, shares, _place(rng, year.around)))
    others, others_before, sampled = (
        simulate_homes(np.random.default_rng([seed, number]), count, shares, its.around)
        for number, count, shares, its in (
            (3, _OTHER_HOMES, NOW, year),
            (4, _OTHER_HOMES, YEAR_BEFORE, before),
            (5, sample, YEAR_BEFORE, before),
        )
    )
    return World(year, tuple(made), others, before, sampled, others_before, seed)


@cache
def read_weather() -> Weather:
    """Return the hours of the test reference year [day, hour]."""
    lines = locate_data("weather/TRY2010_12_Jahr.dat").read_text(encoding="latin-1").splitlines()
    rows = [line.split() for line in lines if line.startswith("12 ")]
    hours = np.array([[float(row[at]) for at in (8, 13, 14)] for row in rows[1:]])  # the first is of the day before
    return Weather(hours[:, 0].reshape(365, 24), hours[:, 1:].sum(axis=1).reshape(365, 24))


def simulate_year(season: Season, seed: Sequence[int], days: int, *, back: int) -> Year:
    """Return a season of 2027, or of the year before (`back` 1), whose weather is drawn from near days."""
    rng, first = np.random.default_rng(seed), _NEW_YEAR_2027 - 365 * back + season.value
    day = (season.value + np.arange(days)) % 365
    if back:  # four days in a row, each from within 12 days
        day = (day // 4 * 4 + rng.integers(-12, 13, 366)[day // 4] + day % 4) % 365
    hourly, quarter = read_weather(), np.arange(days * SLOTS) / 4 - 0.375  # the middle of an hour is its mean
    temperature, irradiance = (np.interp(quarter, np.arange(days * 24), part[day].ravel()) for part in hourly)
    if back:
        temperature += np.repeat(rng.normal(0, 0.8, days // 7 + 1), 7 * SLOTS)[: len(temperature)]
    irradiance = _cloud(rng, irradiance, 0.18)
    use = np.exp(_drift(rng, len(quarter), 0.025, 10) + _drift(rng, len(quarter), 0.03, 150))
    for evening in rng.choice(days, 3, replace=False):  # on which all homes watch the same
        use[evening * SLOTS + 78 : evening * SLOTS + 90] *= 1.15
    holidays = first + rng.choice(days, 1 + days // 28, replace=False)
    leave, holiday_week = np.full(days, 0.002), int(rng.integers(days // 5, days - 9))
    leave[holiday_week : holiday_week + 9] *= 4
    number = first + np.arange(days)
    is_holiday = np.isin(number, holidays)
    slow = lfilter([1 / _LAG_INTERVALS], [1, 1 / _LAG_INTERVALS - 1], temperature - temperature[0]) + temperature[0]
    known = Weather(
        temperature + _drift(rng, len(quarter), 0.3, 3),
        _cloud(rng, irradiance, 0.08) * rng.normal(1, 0.05, len(quarter)),
    )
    return Year(
        first_interval=first * SLOTS,
        holidays=tuple(holidays.tolist()),
        around=Surroundings(
            is_holiday | ((number + 3) % 7 >= 5), is_holiday, leave, temperature, slow, irradiance, use
        ),
        weather=known,
        when=locate_intervals(first * SLOTS + np.arange(len(quarter)), SLOTS, 0, holidays.tolist()),
    )


def _place(rng: np.random.Generator, around: Surroundings) -> Surroundings:
    """Return the surroundings of a zone, with shocks and clouds that other zones do not have."""
    count = len(around.use)
    shocks = np.exp(_drift(rng, count, 0.012, 6) + _drift(rng, count, 0.025, 170))
    return around._replace(use=around.use * shocks, irradiance=_cloud(rng, around.irradiance, 0.08))


def _regional_load(year: Year, others: Homes, seed: Sequence[int], *, pv: bool) -> FloatArray:
    """Return the load of the region: its homes, and industry that works by day and on workdays; 0.3 % noise."""
    rng, count = np.random.default_rng(seed), len(year.when)
    of_homes = others.readings_wh(others.use_wh.shape[1], pv=pv).mean(axis=1)
    by_day = 0.6 + 0.7 / (1 + np.exp(-(year.when.hour - 6.5) * 2)) / (1 + np.exp((year.when.hour - 17.5) * 1.5))
    works = np.where(np.repeat(year.around.free, SLOTS), 0.6, by_day)
    shocks = np.exp(_drift(rng, count, 0.02, 40) + _drift(rng, count, 0.012, 4))
    industry = works / works.mean() * shocks * others.use_wh.mean() * (1 / HOME_SHARE - 1)
    return np.asarray((of_homes + industry) * rng.normal(1, 0.003, count))


def _drift(rng: np.random.Generator, count: int, sd: float, hours: float) -> FloatArray:
    """Return an Ornstein-Uhlenbeck process in steps of a quarter of an hour."""
    keep = float(np.exp(-0.25 / hours))
    fresh = rng.standard_normal(count) * sd * np.sqrt(1 - keep**2)
    fresh[0] /= np.sqrt(1 - keep**2)
    return np.asarray(lfilter([1.0], [1.0, -keep], fresh))


def _cloud(rng: np.random.Generator, irradiance: FloatArray, sd: float) -> FloatArray:
    """Return irradiance under passing clouds, which last for an hour."""
    return np.clip(irradiance * (1 + _drift(rng, len(irradiance), sd, 1.1)), 0, 1050)
