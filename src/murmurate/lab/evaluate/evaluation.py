"""The whole evaluation: every way, size and promise, and what happens when the forecast is wrong or homes change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from operator import call
from typing import NamedTuple

import numpy as np

from murmurate.lab.evaluate.market import Supply, meeting_price, waste
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.promised_noise import NoiseLaw, PromisedNoise
from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.lab.evaluate.region import Region
from murmurate.lab.evaluate.zone_pricing import Setting, Way, ZonePricing
from murmurate.units import FloatArray

WRONG_LEVEL = 0.9  # the level of zones in the test of a wrong one, relative to what is known of them
LESS_USE = 0.85  # what homes of a zone use after the change, relative to before
STRONG_ANSWER = 0.3  # elasticity in the test of prices that demand answers to strongly
SHIFTED_SHARE = 0.8  # of what a price keeps homes from using, in the test of use that is put off
_CHANGE_AFTER = 0.4  # of the days that count
_NOISE_SEED = 7
_DAYS_PER_YEAR = 365


@dataclass(frozen=True, slots=True)
class WayResult:
    """One way in zones of one size, in the intervals that count: means over zones."""

    way: Way
    error: float  # rms of the demand that was priced, relative to the mean import
    error_se: float  # its standard error over zones
    predicted_error: float | None  # as a plan predicts it
    loss: float  # welfare lost to the best price, money per household and year
    price_step_sd: float  # standard deviation of the change of price from one interval to the next [money/kWh]
    bill: float  # of a mean household [money/year]

    @property
    def is_single(self) -> bool:
        """Whether there is one zone only, and so no standard error."""
        return bool(np.isnan(self.error_se))


@dataclass(frozen=True, slots=True, eq=False)
class SizeComparison:
    """Zones of one size with one noise: which bound was chosen, and how each way did."""

    homes: int
    bound_wh: int
    results: dict[Way, WayResult]

    @property
    def value_of_data(self) -> float:
        """Share of what exact data add to forecast and regional load, in squares of the error; 0: they add nothing.

        Below 0 the noise does more harm than the data do good.
        """
        public, private, exact = (self.results[way].error for way in (Way.REGIONAL_LOAD, Way.PRIVATE, Way.EXACT))
        return (public**2 - private**2) / (public**2 - exact**2) if exact < public else 0.0

    @property
    def strongest_rival(self) -> WayResult:
        """The way with the least loss that shows no exact demand and is not the private prediction."""
        rivals = [each for way, each in self.results.items() if way is not Way.PRIVATE and not way.is_exact]
        return min(rivals, key=lambda result: result.loss)


def measure_ways(
    pricing: ZonePricing,
    ways: Collection[Way],
    noise: NoiseLaw | None = None,
    bound: int = 0,
    seed: int = 0,
    counted: slice | None = None,
) -> dict[Way, WayResult]:
    """Play the season in some ways. `counted`: the intervals that count, if others than the region's."""
    setting, homes = pricing.setting, pricing.group.homes
    still, answering, counted = slice(0, pricing.zones), slice(pricing.zones, None), counted or pricing.region.counted
    kwh_per_home = pricing.mean_wh.mean() / 1000 / homes
    found = {}
    for way in ways:
        pricing_way = pricing.make_way(way, noise, bound, seed)
        played = pricing.play_season(pricing_way, pricing.forecast_price, pricing.elasticity)
        demand_wh = pricing.demand_wh[counted, still]
        wrong_wh = played.estimate_wh[counted, still] - demand_wh
        error = np.sqrt(np.mean(wrong_wh**2, axis=0)) / np.maximum(demand_wh, 0).mean(axis=0)
        price, used = played.price[counted, answering], played.demand_wh[counted, answering]
        load = (played.wanted_wh / pricing.mean_wh)[counted, answering]
        best = meeting_price(setting.supply, load, setting.elasticity)
        lost = waste(setting.supply, load, price, best, setting.elasticity)
        found[way] = WayResult(
            way=way,
            error=float(np.sqrt(np.mean(error**2))),
            error_se=float(error.std(ddof=1) / np.sqrt(len(error))) if len(error) > 1 else float("nan"),
            predicted_error=pricing_way.predicted_error,
            loss=float(lost.mean() * kwh_per_home * SLOTS * _DAYS_PER_YEAR),
            price_step_sd=float(np.diff(price, axis=0).std()),
            bill=float((used / 1000 / homes * price).mean() * SLOTS * _DAYS_PER_YEAR),
        )
    return found


class StressResult(NamedTuple):
    """Two ways under a condition that is worse than usual: the private prediction and what it is compared with."""

    private: WayResult
    other: WayResult

    @property
    def error_ratio(self) -> float:
        return self.private.error / self.other.error

    @property
    def loss_ratio(self) -> float:
        return self.private.loss / self.other.loss

    @property
    def step_ratio(self) -> float:
        return self.private.price_step_sd / self.other.price_step_sd


class Stress(Enum):
    """A condition that is worse than usual, played with the noise of the first promise."""

    WRONG_LEVEL = auto()  # 10 % too low, in zones; compared with forecast and regional load
    LESS_USE = auto()  # 15 % less in zones from one day on, not in the region; likewise, from that day on
    STRONG_ANSWER = auto()  # convex curve, elasticity 0.3; compared with the echo of exact demand
    SHIFTED = auto()  # the same, and four fifths of what is not used return within hours, as cars and heat pumps do


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """All that was measured."""

    promises: tuple[PromisedNoise, ...]
    setting: Setting
    comparisons: dict[int, tuple[SizeComparison, ...]]  # by size, one for each promise
    stress: dict[int, dict[Stress, StressResult]]  # by size
    zones: dict[int, int]  # how many zones of each size
    counted_days: int
    change_day: int  # of the season: from it on homes of a zone use less
    forecast_error: float  # of the whole sample, on weeks that the fit has not seen
    own_readings: bool  # of a user; else simulated
    feeds_in: bool  # readings count down to minus the bound

    @property
    def main_size(self) -> int:
        """The size that sentences are about: that of the file, or the one in the middle."""
        return self.sizes[-1 if self.own_readings else len(self.sizes) // 2]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.comparisons)


def evaluate_region(
    region: Region,
    promises: Sequence[PromisedNoise],
    setting: Setting,
    *,
    jobs: int = 1,
    progress: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Price every zone in every way. `progress` is called `count_tasks` times."""
    tasks = []
    for homes in region.zones:
        small = replace(region, zones={homes: region.zones[homes]})  # all that a process needs
        for number, noise in enumerate((*promises, None)):
            tasks.append(partial(_measure_size, small, homes, setting, noise, with_stress=number == 0))
    found = iter(run_tasks(call, tasks, jobs, lambda _: progress()))
    comparisons: dict[int, tuple[SizeComparison, ...]] = {}
    stress: dict[int, dict[Stress, StressResult]] = {}
    for homes in region.zones:
        each, (without, _) = [next(found) for _ in promises], next(found)
        stress.update((homes, measured) for _, measured in each if measured is not None)
        comparisons[homes] = tuple(
            SizeComparison(homes, one.bound_wh, {way: (without.results | one.results)[way] for way in Way})
            for one, _ in each
        )
    return Evaluation(
        promises=tuple(promises),
        setting=setting,
        comparisons=comparisons,
        stress=stress,
        zones={homes: len(group.level_wh) for homes, group in region.zones.items()},
        counted_days=(len(region.expected_wh) - region.counted.start) // SLOTS,
        change_day=_change_at(region) // SLOTS,
        forecast_error=region.known.error or 0.0,
        own_readings=region.own_readings,
        feeds_in=region.feeds_in,
    )


def count_tasks(sizes: int, promises: int) -> int:
    """How often `evaluate_region` reports progress."""
    return sizes * (promises + 1)


def _measure_size(
    region: Region, homes: int, setting: Setting, noise: PromisedNoise | None, *, with_stress: bool
) -> tuple[SizeComparison, dict[Stress, StressResult] | None]:
    """Measure zones of one size: the ways that use this noise, or those that use none; and worse conditions."""
    pricing = ZonePricing(region, homes, setting)
    ways = [way for way in Way if way.uses_noise == (noise is not None)]
    if noise is None:
        return SizeComparison(homes, 0, measure_ways(pricing, ways)), None
    law, bound = noise.law, pricing.choose_bound(noise.law)
    comparison = SizeComparison(homes, bound, measure_ways(pricing, ways, law, bound, _NOISE_SEED))
    if not with_stress:
        return comparison, None

    at = _change_at(region)
    wrong = ZonePricing(region, homes, setting, level_factor=WRONG_LEVEL)
    less = ZonePricing(region, homes, setting, change=partial(_use_less, at=at))
    strong, shifted = (
        ZonePricing(region, homes, Setting(Supply.CONVEX, STRONG_ANSWER, setting.lead, share))
        for share in (0.0, SHIFTED_SHARE)
    )
    stress = {}
    for name, worse, other, counted in (
        (Stress.WRONG_LEVEL, wrong, Way.REGIONAL_LOAD, None),
        (Stress.LESS_USE, less, Way.REGIONAL_LOAD, slice(at, None)),
        (Stress.STRONG_ANSWER, strong, Way.EXACT_ECHO, None),
        (Stress.SHIFTED, shifted, Way.EXACT_ECHO, None),
    ):
        both = measure_ways(worse, (Way.PRIVATE, other), law, bound, _NOISE_SEED, counted)
        stress[name] = StressResult(both[Way.PRIVATE], both[other])
    return comparison, stress


def _use_less(demand_wh: FloatArray, at: int) -> FloatArray:
    """Return a demand whose import falls from an interval on. What is fed in stays as it is."""
    factor = np.where(demand_wh[at:] > 0, LESS_USE, 1.0)
    return np.concatenate([demand_wh[:at], factor * demand_wh[at:]])


def _change_at(region: Region) -> int:
    """Return the interval from which homes of a zone use less: a midnight."""
    days = (len(region.expected_wh) - region.counted.start) / SLOTS
    return int(region.counted.start + SLOTS * round(_CHANGE_AFTER * days))
