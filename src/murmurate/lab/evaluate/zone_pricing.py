"""Zones of one size, and every way to price them.

Each zone is there twice: once as if demand did not answer to prices, which gives the error of what a price is made for,
and once as it answers, which gives prices and welfare. Both are played in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import numpy as np

from murmurate.lab.evaluate.promised_noise import NoiseLaw, pooled_deviation
from murmurate.lab.evaluate.public_knowledge import BOUNDS_WH, SLOTS
from murmurate.lab.evaluate.region import Region, ZoneGroup
from murmurate.lab.evaluate.ways import Echo, FixedPrices, Predicted, PricingWay, Supply, ZoneSeason, meeting_price
from murmurate.prediction.sensor import TriedBound, find_highest_as_good, find_least_error, try_bounds
from murmurate.prediction.structural_filter import STATES, StructuralFilter
from murmurate.units import FloatArray

_EXACT_BOUND = BOUNDS_WH[-1]
_NO_MEASUREMENT_SD_WH = 1e12
_EXACT_VARIANCE = 1e-6
_CLEARLY_WORSE = 1.05  # then a still higher bound only adds noise


class Way(Enum):
    """What a price is made from."""

    FLAT = "flat tariff"
    TIME_OF_USE = "time of use"
    FORECAST = "forecast only"
    REGIONAL_LOAD = "forecast and public regional load"
    NOISY_ECHO = "echo of noisy demand"
    PRIVATE = "private prediction"
    EXACT_ECHO = "echo of exact demand"
    EXACT = "prediction from exact demand"

    @property
    def uses_noise(self) -> bool:
        return self in {Way.NOISY_ECHO, Way.PRIVATE}


@dataclass(frozen=True, slots=True)
class Setting:
    """How zones are priced and how demand answers."""

    supply: Supply = Supply.CONVEX
    elasticity: float = 0.1
    assumed_elasticity: float = 0.1
    lead: int = 2


Change = Callable[[FloatArray], FloatArray]  # of demand [interval, ...]


def no_change(demand_wh: FloatArray) -> FloatArray:
    return demand_wh


class ZonePricing:
    """Zones of one size of a region."""

    def __init__(
        self,
        region: Region,
        homes: int,
        setting: Setting,
        *,
        forecast_factor: float = 1.0,
        change: Change = no_change,
    ) -> None:
        """`forecast_factor` makes the forecast wrong; `change` changes the demand of all zones."""
        self.region, self.setting = region, setting
        self._forecast_factor, self._change = forecast_factor, change
        group = region.zones[homes]
        self.group = ZoneGroup(homes, group.level_wh, change(group.demand_wh))
        self.zones = len(group.level_wh)
        demand = _twice(self.group.sums_wh(_EXACT_BOUND))
        self.season = ZoneSeason(
            demand_wh=demand,
            mean_wh=demand.mean(axis=0),
            expected_wh=_twice(self._expected_wh(_EXACT_BOUND)),
            cold_k=region.cold_k,
            lead=setting.lead,
        )
        answers = np.repeat([0.0, 1.0], self.zones)
        self.elasticity, self.assumed_elasticity = answers * setting.elasticity, answers * setting.assumed_elasticity
        expected_load = self.season.expected_wh / self.season.mean_wh
        self.forecast_price = meeting_price(setting.supply, expected_load, self.assumed_elasticity)

    def _expected_wh(self, bound: int) -> FloatArray:
        return self._forecast_factor * self.region.expected_sums_wh(self.group, bound)

    def choose_bound(self, noise: NoiseLaw) -> int:
        """The next bound above the one at which the filter predicts the least error for itself.

        Or a higher one, if its error is predicted to be within 1 % of the least: less is clipped, and what a sum of
        clipped readings does not show is what a sample tells least about.
        """
        tried = try_bounds(BOUNDS_WH[:-1], partial(self._try_bound, noise), stop_at=_CLEARLY_WORSE)
        least = BOUNDS_WH.index(find_least_error(tried).bound_wh)
        as_good = BOUNDS_WH.index(find_highest_as_good(tried).bound_wh)
        return BOUNDS_WH[min(max(least + 1, as_good), len(BOUNDS_WH) - 2)]

    def _try_bound(self, noise: NoiseLaw, bound: int) -> TriedBound:
        sensor = self.region.known.sensors[bound]
        zones = max(1, self.region.whole.homes // self.group.homes)
        gain = sensor.response * sensor.forecast.mean_wh[0, 0] * self.group.homes
        pool_variance = float(np.mean((noise.sd * bound / gain) ** 2)) / zones
        error = self._make_filter(bound, noise.sd * bound, pool_variance).predicted_error
        return TriedBound(bound, noise.sd * bound, error)

    def _make_filter(self, bound: int, noise_sd_wh: float, pool_variance: float | None) -> StructuralFilter:
        return self.region.known.make_filter(
            self.group.homes,
            self.region.known.sensors[bound],
            noise_sd_wh=noise_sd_wh,
            pool_variance=pool_variance,
            lead=self.setting.lead,
        )

    def make_way(self, way: Way, noise: NoiseLaw | None, bound: int, seed: int) -> tuple[PricingWay, float | None]:
        """A way, and what it says about its own error. Ways that use noise need `noise` and `bound`."""
        rng = np.random.default_rng([seed, self.group.homes, list(Way).index(way)])
        if way in {Way.FLAT, Way.TIME_OF_USE, Way.FORECAST}:
            return self._fixed(way), None
        if way in {Way.NOISY_ECHO, Way.EXACT_ECHO}:
            return self._echo(noise if way is Way.NOISY_ECHO else None, rng), None
        if way is Way.EXACT:
            return self._predicted(_EXACT_BOUND, 1.0, None, None, self.group.sums_wh(_EXACT_BOUND), self._no_noise())
        if way is Way.REGIONAL_LOAD or noise is None:
            pooled, _ = self._pool(_EXACT_BOUND, NoiseLaw(1e-6, 0.0), rng)
            return self._predicted(_EXACT_BOUND, _NO_MEASUREMENT_SD_WH, pooled, _EXACT_VARIANCE, None, self._no_noise())
        pooled, variance = self._pool(bound, noise, rng)
        drawn = noise.draw(rng, bound, self._no_noise().shape)
        return self._predicted(bound, noise.sd * bound, pooled, variance, self.group.sums_wh(bound), drawn)

    def _no_noise(self) -> FloatArray:
        return np.zeros((len(self.season.demand_wh), self.zones))

    def _fixed(self, way: Way) -> FixedPrices:
        expected, price = self.season.expected_wh, self.forecast_price
        if way is Way.FORECAST:
            return FixedPrices(price, expected)
        if way is Way.TIME_OF_USE:
            return FixedPrices(_time_of_use(price), _time_of_use(expected))
        return FixedPrices(
            np.repeat(price.mean(axis=0)[None], len(price), axis=0),
            np.broadcast_to(expected.mean(axis=0), expected.shape),
        )

    def _echo(self, noise: NoiseLaw | None, rng: np.random.Generator) -> Echo:
        season, supply = self.season, self.setting.supply
        if noise is None:
            return Echo(supply, season.mean_wh, season.demand_wh, np.zeros_like(season.demand_wh))
        bound = self._best_echo_bound(noise)
        drawn = noise.draw(rng, bound, self._no_noise().shape)
        return Echo(supply, season.mean_wh, _twice(self.group.sums_wh(bound)), _twice(drawn))

    def _pool(self, bound: int, noise: NoiseLaw, rng: np.random.Generator) -> tuple[FloatArray, float]:
        sensor = self.region.known.sensors[bound]
        return pooled_deviation(self.region, sensor, noise, self.group.homes, rng, self._change, self._forecast_factor)

    def _predicted(
        self,
        bound: int,
        noise_sd_wh: float,
        pooled: FloatArray | None,
        pool_variance: float | None,
        sums_wh: FloatArray | None,
        noise_wh: FloatArray,
    ) -> tuple[PricingWay, float]:
        its_filter = self._make_filter(bound, noise_sd_wh, pool_variance)
        way = Predicted(
            supply=self.setting.supply,
            season=self.season,
            filter=its_filter,
            states=np.zeros((STATES, 2 * self.zones)),
            sensor=self.region.known.sensors[bound],
            sums_wh=None if sums_wh is None else _twice(sums_wh),
            expected_sums_wh=_twice(self._expected_wh(bound)),
            noise_wh=_twice(noise_wh),
            pooled=pooled,
            pool_delay=sums_wh is None,
            assumed_elasticity=self.assumed_elasticity,
        )
        return way, its_filter.predicted_error

    def _best_echo_bound(self, noise: NoiseLaw) -> int:
        """The bound with the least error of an echo: noise grows with it, what is clipped falls."""
        demand = self.group.sums_wh(_EXACT_BOUND)
        clipped = [float(np.mean(demand - self.group.sums_wh(bound))) for bound in BOUNDS_WH]
        errors = [np.hypot(noise.sd * bound, lost) for bound, lost in zip(BOUNDS_WH, clipped, strict=True)]
        return BOUNDS_WH[int(np.argmin(errors))]


def _twice(of_zones: FloatArray) -> FloatArray:
    return np.concatenate([of_zones, of_zones], axis=1)


def _time_of_use(values: FloatArray) -> FloatArray:
    """Means over night, day and evening [interval, zone]."""
    hour = np.arange(len(values)) % SLOTS * 24 // SLOTS
    block = np.where((hour < 6) | (hour >= 23), 0, np.where((hour >= 17) & (hour < 22), 2, 1))
    found = np.zeros_like(values)
    for number in range(3):
        found[block == number] = values[block == number].mean(axis=0)
    return found
