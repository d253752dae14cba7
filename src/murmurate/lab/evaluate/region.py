"""A region whose zones are priced: simulated homes, or the readings of a user.

Simulated: a consented sample of the year before, zones of several sizes, and their sums for each bound. Homes are
simulated in blocks, each with its own seed, so the number of processes changes nothing.

Readings: zones are groups of households, drawn at random. Forecasts are fitted week by week on what came before. How
households differ is learned from the first four weeks, and only the days after them count. Corrections are learned from
the third week on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.homes import (
    DAYS,
    ZONE_SHOCKS,
    Homes,
    Season,
    draw_season,
    draw_shock,
)
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.public_knowledge import (
    BOUNDS_WH,
    SLOTS,
    expect_readings,
    expect_sun,
    fit_public_forecast,
    learn_forecast,
    sum_clipped,
    sum_sample,
)
from murmurate.prediction.calendar import locate_intervals
from murmurate.prediction.forecast import USUAL_WEATHER, Weather
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.readings.imported_file import PastReadings
from murmurate.units import FloatArray

WARM_UP_DAYS = 28  # corrections are learned; only the days after it count
_BLOCK = 10_000  # homes that are simulated together
LEVEL_KNOWN = 0.03  # how well the level of a zone is known to the public, relative
_ZONES_UP_TO = ((1_000, 16), (3_000, 10))  # number of simulated zones up to each size; of larger ones:
_MIN_ZONES = 5
LEARNING_DAYS, FIRST_FIT_DAYS = 28, 14
REGION_DAYS = 14  # over which the public learns how the region's load leaves its forecast at a time of day
_USUAL_SIZES = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_MAX_ZONES = 16  # of one size


@dataclass(frozen=True, slots=True, eq=False)
class ZoneGroup:
    """Zones of one size in one season."""

    homes: int  # of each zone
    level_wh: FloatArray  # [zone] mean use of a home in an interval, as the public knows it
    demand_wh: FloatArray  # [interval, zone, bound] sum of readings, each within its bound; the last bound clips none
    silent: FloatArray  # [interval, zone] households without a reading: only the last bound counts them, as filled

    def sums_wh(self, bound_wh: int) -> FloatArray:
        """The sums of readings, each within a bound [interval, zone]."""
        return np.asarray(self.demand_wh[:, :, BOUNDS_WH.index(bound_wh)])


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What is priced. It begins at midnight."""

    known: PublicForecast  # of a mean home, and how homes differ
    expected_wh: FloatArray  # [interval, bound] of the clipped reading of a mean home, forecast
    expected_sun_wh: FloatArray  # [interval, bound] what the sun adds to it
    counted: slice  # the intervals after corrections are learned
    load_wh: FloatArray  # [interval] of the whole region, at the level of the forecast: public, an interval later
    zones: dict[int, ZoneGroup]  # by size
    own_readings: bool = False  # of a user; else simulated
    feeds_in: bool = False  # readings below zero count, down to minus the bound

    @property
    def use_wh(self) -> float:
        """Mean expected use of a home, without what the sun adds: a deviation is relative to it."""
        return float((self.expected_wh[:, -1] - self.expected_sun_wh[:, -1]).mean())

    def range_wh(self, bound_wh: int) -> int:
        """The range of a reading within a bound, which the noise is proportional to."""
        return bound_wh * (2 if self.feeds_in else 1)

    def scale(self, group: ZoneGroup) -> FloatArray:
        """How many mean homes each zone is like, at the level that is known of it [zone]."""
        return np.asarray(group.homes * group.level_wh / self.use_wh)

    def follow_load(self, late: int) -> FloatArray:
        """What the public says of all homes, from the region's load `late` intervals before [interval].

        As a share of their mean use: by how much the load left its forecast at that time of day, over two weeks, and
        what remained so far, on average, of how it left that `late` intervals before.
        """
        expected_wh = self.expected_wh[:, -1]
        shown, found = (self.load_wh - expected_wh) / self.use_wh, np.zeros(len(expected_wh))
        usual, last = np.zeros(SLOTS), np.zeros(len(shown))  # by time of day; and what is left of each interval
        both, square = 0.0, 1e-9
        for t in range(late, len(shown)):
            known = t - late
            last[known] = shown[known] - usual[known % SLOTS]
            usual[known % SLOTS] += last[known] / REGION_DAYS
            if known >= late:
                both, square = both + last[known] * last[known - late], square + last[known - late] ** 2
            found[t] = usual[t % SLOTS] + both / square * last[known]
        return found


@dataclass(frozen=True, slots=True)
class RegionSize:
    """How many homes are simulated, and for how long."""

    sample: int = 20_000  # homes that consented, the year before
    whole: int = 100_000  # homes of the region, whose load is public
    zones: int | None = None  # of each size; None: more of the small ones
    days: int = DAYS

    def zones_of(self, homes: int) -> int:
        """How many zones of a size are simulated."""
        if self.zones is not None:
            return self.zones
        return next((zones for size, zones in _ZONES_UP_TO if homes <= size), _MIN_ZONES)

    def homes_of(self, sizes: Sequence[int]) -> int:
        """How many homes are simulated for zones of these sizes."""
        return self.sample + self.whole + sum(self.zones_of(size) * size for size in sizes if size < self.whole)


USUAL_REGION = RegionSize()


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Some homes that are simulated together: of the sample, of a part of a zone, or of some zones."""

    seed: np.random.SeedSequence
    homes: int  # of each zone, or of its part
    season: Season
    zones: int = 1
    shares: tuple[FloatArray, ...] = ()  # of homes with electric heat and with a car, each [zone]; empty: as usual
    zone_factor: FloatArray | None = None  # shocks of zones [interval, zone]; None: homes of the sample

    @property
    def count(self) -> int:
        return self.homes * self.zones


def simulate_region(
    seed: int,
    sizes: Sequence[int],
    *,
    shock_factor: float = 1.0,
    scale: RegionSize = USUAL_REGION,
    jobs: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Region:
    """Simulate a region. Zones as large as the region are its sums, each with separate shocks.

    `progress` gets numbers of homes. `shock_factor` multiplies what homes share.
    """
    year_before, this_year, sample_seed, whole_seed, *size_seeds = np.random.SeedSequence(seed).spawn(4 + len(sizes))
    sample_season, season = (
        draw_season(np.random.default_rng(year), days=scale.days, shock_factor=shock_factor)
        for year in (year_before, this_year)
    )
    sample = [_Block(block_seed, count, sample_season) for block_seed, count in _split(sample_seed, scale.sample)]
    no_shocks = np.ones((season.intervals, 1))
    drawn = {0: [_Block(part, count, season, zone_factor=no_shocks) for part, count in _split(whole_seed, scale.whole)]}
    for size, size_seed in zip(sizes, size_seeds, strict=True):
        if size < scale.whole:
            drawn[size] = _draw_zones(size_seed, season, size, scale.zones_of(size), shock_factor)
    blocks = [*sample, *(block for group in drawn.values() for block in group)]
    found = run_tasks(_simulate_block, blocks, jobs, lambda block: progress(block.count))
    parts = iter(found)
    sampled = np.asarray(sum(next(parts)[:, 0] for _ in sample))
    sums = {size: [next(parts) for _ in group] for size, group in drawn.items()}
    whole_wh = np.asarray(sum(sums[0]))
    groups = {}
    for size, size_seed in zip(sizes, size_seeds, strict=True):
        rng, zones = np.random.default_rng(size_seed), scale.zones_of(size)
        if size >= scale.whole:
            factor = 1 + _zone_shocks(rng, season.intervals, shock_factor, zones)
            demand_wh = np.rint(whole_wh * (size / scale.whole) * factor[:, :, None])
        else:
            of_size = sums[size]
            each = max(1, len(of_size) // zones)  # blocks of one zone
            demand_wh = np.concatenate([sum(of_size[n : n + each]) for n in range(0, len(of_size), each)], axis=1)
        groups[size] = _make_group(size, demand_wh, rng)
    known = learn_forecast(sampled, scale.sample, sample_season.calendar, Weather(sample_season.forecast_c))
    expected_wh = expect_readings(known, season.calendar, Weather(season.forecast_c))
    load_wh = whole_wh[:, 0, -1]
    return Region(
        known=known,
        expected_wh=expected_wh,
        expected_sun_wh=np.zeros_like(expected_wh),
        counted=slice(WARM_UP_DAYS * SLOTS, None),
        load_wh=load_wh * (expected_wh[:, -1].mean() / load_wh.mean()),
        zones=groups,
    )


def _split(seed: np.random.SeedSequence, homes: int) -> list[tuple[np.random.SeedSequence, int]]:
    counts = [min(_BLOCK, homes - first) for first in range(0, homes, _BLOCK)]
    return list(zip(seed.spawn(len(counts)), counts, strict=True))


def _draw_zones(
    seed: np.random.SeedSequence, season: Season, homes: int, zones: int, shock_factor: float
) -> list[_Block]:
    """Return zones with separate shocks that differ in what their homes have: several in a block, or in parts."""
    rng = np.random.default_rng(seed)
    factor = 1 + _zone_shocks(rng, season.intervals, shock_factor, zones)
    heat, car = rng.uniform(0.17, 0.33, zones), rng.uniform(0.07, 0.17, zones)
    together = max(1, _BLOCK // homes)
    blocks = []
    for first, block_seed in zip(range(0, zones, together), seed.spawn(-(-zones // together)), strict=True):
        some = slice(first, min(first + together, zones))
        blocks += [
            _Block(part_seed, part, season, some.stop - first, (heat[some], car[some]), factor[:, some])
            for part_seed, part in _split(block_seed, homes)
        ]
    return blocks


def _simulate_block(block: _Block) -> FloatArray:
    """The sums of homes of zones [interval, zone, bound], or those of the sample [interval, 1, sum]."""
    rng, season = np.random.Generator(np.random.SFC64(block.seed)), block.season
    homes = Homes(rng, block.count, *(np.repeat(share, block.homes) for share in block.shares))
    found = []
    if block.zone_factor is not None:
        for t, factor in enumerate(block.zone_factor):
            one = float(factor[0]) if block.zones == 1 else np.repeat(factor.astype(np.float32), block.homes)
            found.append(sum_clipped(homes.step(season, t, one), block.zones))
        return np.array(found)
    yesterday = np.zeros((SLOTS, block.count), np.float32)
    for t in range(season.intervals):
        used = homes.step(season, t)
        found.append(sum_sample(used, yesterday[t % SLOTS])[None])
        yesterday[t % SLOTS] = used
    return np.array(found)


def _make_group(homes: int, demand_wh: FloatArray, rng: np.random.Generator) -> ZoneGroup:
    """Zones whose level the public knows to some percent."""
    level = demand_wh[:, :, -1].mean(axis=0) / homes
    level = level * (1 + LEVEL_KNOWN * rng.normal(size=len(level)))
    return ZoneGroup(homes, level, demand_wh, np.zeros(demand_wh.shape[:2]))


def _zone_shocks(rng: np.random.Generator, intervals: int, shock_factor: float, zones: int) -> FloatArray:
    """Shocks of each zone [interval, zone]."""
    return np.asarray(sum(draw_shock(rng, shock_factor * sd, hours, intervals, (zones,)) for sd, hours in ZONE_SHOCKS))


def choose_sizes(households: int, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that are wanted, or those of which there are two zones or more; and always that of the whole file.

    Raises ReadingError if a zone would have more homes than there are.

    >>> choose_sizes(2500, ())
    (100, 300, 1000, 2500)
    """
    if max(wanted, default=0) > households:
        found = f"{max(wanted):,} homes, with readings of {households:,} households"
        raise ReadingError("sizes", found, f"must be at most {households:,}; leave --sizes out to see which do")
    sizes = wanted or tuple(size for size in _USUAL_SIZES if 2 * size <= households)
    return (*sizes, *((households,) if households not in sizes else ()))


def region_of_readings(
    readings: PastReadings, sizes: Sequence[int], seed: int, weather: Weather = USUAL_WEATHER
) -> Region:
    """Return the region of some readings, with zones of some sizes: see `choose_sizes`.

    Raises ReadingError if homes feed in so much that a forecast needs the irradiance.
    """
    energy, begin = readings.energy_wh, FIRST_FIT_DAYS * SLOTS
    interval = readings.first_day * SLOTS + np.arange(len(energy))
    when = locate_intervals(interval, SLOTS)
    nothing = np.zeros_like(energy[0])
    sums = np.array([sum_sample(used, energy[t - SLOTS] if t >= SLOTS else nothing) for t, used in enumerate(energy)])
    learning = slice(0, LEARNING_DAYS * SLOTS)
    mean_wh = sums[:, : len(BOUNDS_WH)] / readings.households
    so_far = np.cumsum(mean_wh[:, -1])[begin - 1 :]
    if weather.irradiance is None and so_far.min() <= 0:
        allowed = (
            "must come with the irradiance: --weather weather.csv with the columns start, temperature_c, irradiance"
        )
        raise ReadingError("readings", "of homes that feed in more than they use", allowed)
    expected, sun = [], []
    for start in range(begin, len(mean_wh), 7 * SLOTS):  # each week is forecast from all before it
        fitted = fit_public_forecast(mean_wh[:start], BOUNDS_WH, when[:start], weather.select(slice(start)))
        week = slice(start, start + 7 * SLOTS)
        expected.append(expect_readings(fitted, when[week], weather.select(week)))
        sun.append(expect_sun(fitted, when[week], weather.select(week)))
    made = Region(
        known=learn_forecast(
            sums[learning], readings.households, when[learning], weather.select(learning), first_days=FIRST_FIT_DAYS
        ),
        expected_wh=np.concatenate(expected),
        expected_sun_wh=np.concatenate(sun),
        counted=slice(LEARNING_DAYS * SLOTS - begin, None),
        load_wh=mean_wh[begin:, -1],
        zones={},
        own_readings=True,
        feeds_in=readings.below_zero > 0,
    )
    rng = np.random.default_rng(seed)
    return replace(made, zones={size: _draw_group(readings, size, made.use_wh, rng) for size in sizes})


def _draw_group(readings: PastReadings, size: int, use_wh: float, rng: np.random.Generator) -> ZoneGroup:
    """Zones of households drawn without repetition. Their level is that of the import of their first four weeks."""
    zones = min(readings.households // size, _MAX_ZONES)
    order = rng.permutation(readings.households)[: zones * size]
    imported_wh = np.zeros(readings.households)  # of each household
    for used in readings.energy_wh[: LEARNING_DAYS * SLOTS]:
        imported_wh += np.maximum(used, 0)
    level = imported_wh[order].reshape(zones, size).mean(axis=1) / imported_wh.mean()
    demand, silent = [], []
    for t in range(FIRST_FIT_DAYS * SLOTS, readings.intervals):
        used = readings.energy_wh[t, order]
        gone = np.zeros(len(order), np.bool_) if readings.silent is None else readings.silent[t, order]
        silent.append(gone.reshape(zones, size).sum(axis=1))
        demand.append(sum_clipped(np.where(gone, 0, used), zones))
        demand[-1][:, -1] += (used * gone).reshape(zones, size).sum(axis=1)
    return ZoneGroup(size, level * use_wh, np.array(demand), np.array(silent, np.float64))
