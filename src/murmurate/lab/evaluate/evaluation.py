"""The whole evaluation: every way, size and promise, and what happens when the forecast or the homes change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from murmurate.lab.evaluate.comparison import SizeComparison, WayResult, measure_ways
from murmurate.lab.evaluate.parallel import run_tasks
from murmurate.lab.evaluate.promised_noise import PromisedNoise
from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.lab.evaluate.region import Region
from murmurate.lab.evaluate.supply import Supply
from murmurate.lab.evaluate.zone_pricing import Setting, Way, ZonePricing
from murmurate.units import FloatArray

WRONG_LEVEL = 0.9  # the forecast in the test of a wrong one, relative to what it would be
LESS_USE = 0.85  # what everybody uses after the change, relative to before
STRONG_ANSWER = 0.3  # elasticity in the test of prices that demand answers to strongly
_CHANGE_AFTER = 0.4  # of the days that count
_NOISE_SEED = 7


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


@dataclass(frozen=True, slots=True, eq=False)
class SizeStress:
    """Zones of one size under worse conditions, with the noise of the first promise."""

    wrong_forecast: StressResult  # 10 % too low; beside the forecast
    less_use: StressResult  # 15 % less from one day on; beside the forecast, from that day on
    strong_answer: StressResult  # convex curve, elasticity 0.3; beside the echo of exact demand


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """All that was measured."""

    promises: tuple[PromisedNoise, ...]
    setting: Setting
    comparisons: dict[int, tuple[SizeComparison, ...]]  # by size, one for each promise
    stress: dict[int, SizeStress]
    zones: dict[int, int]  # how many zones of each size
    counted_days: int
    change_day: int  # of the season: from it on everybody uses less
    forecast_error: float  # of the whole sample, on weeks that the fit has not seen

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.comparisons)


class _Task(NamedTuple):
    region: Region  # with the zones of one size
    homes: int
    setting: Setting
    noise: PromisedNoise | None  # None: the ways that use no noise
    stress: bool = False  # whether to measure worse conditions too


class _Measured(NamedTuple):
    comparison: SizeComparison
    stress: SizeStress | None


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
        small = region.with_size(homes)
        tasks += [
            _Task(small, homes, setting, noise, stress=number == 0) for number, noise in enumerate((*promises, None))
        ]
    found = iter(run_tasks(_run_task, tasks, jobs, lambda _: progress()))
    comparisons: dict[int, tuple[SizeComparison, ...]] = {}
    stress: dict[int, SizeStress] = {}
    for homes in region.zones:
        each, without = [next(found) for _ in promises], next(found).comparison.results
        stress.update((homes, one.stress) for one in each if one.stress is not None)
        comparisons[homes] = tuple(
            SizeComparison(homes, one.bound_wh, _in_order(without | one.results))
            for one in (measured.comparison for measured in each)
        )
    return Evaluation(
        promises=tuple(promises),
        setting=setting,
        comparisons=comparisons,
        stress=stress,
        zones={homes: len(group.level_wh) for homes, group in region.zones.items()},
        counted_days=(len(region.cold_k) - region.counted.start) // SLOTS,
        change_day=_change_at(region) // SLOTS,
        forecast_error=region.known.forecast_error,
    )


def count_tasks(sizes: int, promises: int) -> int:
    """How often `evaluate_region` reports progress."""
    return sizes * (promises + 1)


def _in_order(results: dict[Way, WayResult]) -> dict[Way, WayResult]:
    return {way: results[way] for way in Way}


def _run_task(task: _Task) -> _Measured:
    pricing = ZonePricing(task.region, task.homes, task.setting)
    if task.noise is None:
        ways = [way for way in Way if not way.uses_noise]
        return _Measured(SizeComparison(task.homes, 0, measure_ways(pricing, ways)), None)
    bound = pricing.choose_bound(task.noise.law)
    ways = [way for way in Way if way.uses_noise]
    results = measure_ways(pricing, ways, task.noise.law, bound, _NOISE_SEED)
    stress = _measure_stress(task, task.noise, bound) if task.stress else None
    return _Measured(SizeComparison(task.homes, bound, results), stress)


def _measure_stress(task: _Task, noise: PromisedNoise, bound: int) -> SizeStress:
    region, homes, setting = task.region, task.homes, task.setting
    at = _change_at(region)
    strong = Setting(Supply.CONVEX, STRONG_ANSWER, STRONG_ANSWER, setting.lead)

    def measure(pricing: ZonePricing, other: Way, counted: slice | None = None) -> StressResult:
        both = measure_ways(pricing, (Way.PRIVATE, other), noise.law, bound, _NOISE_SEED, counted)
        return StressResult(both[Way.PRIVATE], both[other])

    return SizeStress(
        measure(ZonePricing(region, homes, setting, forecast_factor=WRONG_LEVEL), Way.FORECAST),
        measure(ZonePricing(region, homes, setting, change=partial(_use_less, at)), Way.FORECAST, slice(at, None)),
        measure(ZonePricing(region, homes, strong), Way.EXACT_ECHO),
    )


def _change_at(region: Region) -> int:
    """The interval from which everybody uses less: a midnight."""
    days = (len(region.cold_k) - region.counted.start) / SLOTS
    return int(region.counted.start + SLOTS * round(_CHANGE_AFTER * days))


def _use_less(at: int, demand_wh: FloatArray) -> FloatArray:
    return np.concatenate([demand_wh[:at], LESS_USE * demand_wh[at:]])
