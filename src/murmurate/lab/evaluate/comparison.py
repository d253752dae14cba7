"""Measure ways to price zones: the error of the demand, welfare, price steps and bills."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from murmurate.lab.evaluate.public_knowledge import SLOTS
from murmurate.lab.evaluate.simulated_noise import NoiseLaw
from murmurate.lab.evaluate.supply import meeting_price, waste
from murmurate.lab.evaluate.ways import price_season
from murmurate.lab.evaluate.zone_pricing import Way, ZonePricing
from murmurate.units import FloatArray

_DAYS_PER_YEAR = 365


@dataclass(frozen=True, slots=True)
class WayResult:
    """One way in zones of one size, in the intervals that count: means over zones."""

    way: Way
    error: float  # rms of the demand that was priced, relative to the mean demand
    error_se: float  # its standard error over zones
    predicted_error: float | None  # what the filter says about itself
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
        """Share of what exact data, predicted, add to the forecast: 0 to 1, in squares of the error."""
        forecast, private, exact = (self.results[way].error for way in (Way.FORECAST, Way.PRIVATE, Way.EXACT))
        return (forecast**2 - private**2) / (forecast**2 - exact**2)


def measure_ways(
    pricing: ZonePricing,
    ways: Collection[Way],
    noise: NoiseLaw | None = None,
    bound: int = 0,
    seed: int = 0,
    counted: slice | None = None,
) -> dict[Way, WayResult]:
    """Play the season in some ways. `counted`: the intervals that count, if others than the region's."""
    return {way: _measure(pricing, way, noise, bound, seed, counted or pricing.region.counted) for way in ways}


def _measure(
    pricing: ZonePricing, way: Way, noise: NoiseLaw | None, bound: int, seed: int, counted: slice
) -> WayResult:
    season, setting, homes = pricing.season, pricing.setting, pricing.group.homes
    its_way, predicted_error = pricing.make_way(way, noise, bound, seed)
    played = price_season(season, its_way, pricing.forecast_price, pricing.elasticity)
    still, answering = slice(0, pricing.zones), slice(pricing.zones, None)
    error = _relative_rms(played.estimate_wh[counted, still], season.demand_wh[counted, still])
    price, used = played.price[counted, answering], played.demand_wh[counted, answering]
    load = (season.demand_wh / season.mean_wh)[counted, answering]
    best = meeting_price(setting.supply, load, setting.elasticity)
    lost = waste(setting.supply, load, price, best, setting.elasticity)
    kwh_per_home = season.mean_wh.mean() / 1000 / homes
    return WayResult(
        way=way,
        error=float(np.sqrt(np.mean(error**2))),
        error_se=float(error.std(ddof=1) / np.sqrt(len(error))) if len(error) > 1 else float("nan"),
        predicted_error=predicted_error,
        loss=float(lost.mean() * kwh_per_home * SLOTS * _DAYS_PER_YEAR),
        price_step_sd=float(np.diff(price, axis=0).std()),
        bill=float((used / 1000 / homes * price).mean() * SLOTS * _DAYS_PER_YEAR),
    )


def _relative_rms(estimate_wh: FloatArray, demand_wh: FloatArray) -> FloatArray:
    wrong = estimate_wh - demand_wh
    return np.asarray(np.sqrt(np.mean(wrong**2, axis=0)) / demand_wh.mean(axis=0))
