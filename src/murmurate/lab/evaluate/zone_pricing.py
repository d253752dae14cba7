"""Zones of one size, and every way to price them.

The ways are fixed prices, the echo of a measurement, and a prediction of the interval that pays.

Each zone is there twice: once as if demand did not answer to prices, which gives the error of what a price is made for,
and once as it answers, which gives prices and welfare. Both are played in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from murmurate.lab.evaluate.market import Supply, answer, meeting_price
from murmurate.lab.evaluate.promised_noise import NoiseLaw
from murmurate.lab.evaluate.public_knowledge import BOUNDS_WH, SLOTS
from murmurate.lab.evaluate.region import Region, ZoneGroup
from murmurate.prediction.sensor import TriedBound, find_least_error, try_bounds, with_what_is_cut_off
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
    lead: int = 2


class PricingWay(Protocol):
    """Observes each release and sets the price of a later interval."""

    predicted_error: float | None = None  # of the demand, as the way itself predicts it

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        """Take in interval `t`: the price that was paid, and what demand answered, relative to the reference price."""
        ...

    def estimate(self, due: int) -> FloatArray:
        """Return the demand that the price of an interval is made for [Wh, zone]."""
        ...

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:
        """Return the price of an interval [zone]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PricedSeason:
    """What was expected, paid and used [interval, zone]."""

    estimate_wh: FloatArray  # the demand that the price was made for
    price: FloatArray
    demand_wh: FloatArray


class ZonePricing:
    """Zones of one size of a region in a season, and what the public expects of them. Arrays have each zone twice."""

    def __init__(
        self,
        region: Region,
        homes: int,
        setting: Setting,
        *,
        forecast_factor: float = 1.0,
        change: Callable[[FloatArray], FloatArray] = lambda demand_wh: demand_wh,
    ) -> None:
        """`forecast_factor` makes the forecast wrong; `change` changes the demand of all zones [interval, ...]."""
        self.region, self.setting = region, setting
        self._forecast_factor, self._change = forecast_factor, change
        group = region.zones[homes]
        self.group = ZoneGroup(homes, group.level_wh, change(group.demand_wh))
        self.zones = len(group.level_wh)
        self.demand_wh = twice(self.group.sums_wh(_EXACT_BOUND))  # [interval, zone] at the reference price
        self.expected_wh = self.expected_sums_wh(_EXACT_BOUND)  # [interval, zone]
        self.mean_wh = self.demand_wh.mean(axis=0)  # [zone]
        self.elasticity = np.repeat([0.0, 1.0], self.zones) * setting.elasticity
        self.forecast_price = meeting_price(setting.supply, self.expected_wh / self.mean_wh, self.elasticity)

    def expected_sums_wh(self, bound: int) -> FloatArray:
        """Return the forecast of each zone's sum of clipped readings [interval, zone]."""
        return twice(self._forecast_factor * self.region.expected_sums_wh(self.group, bound))

    def choose_bound(self, noise: NoiseLaw) -> int:
        """Return the bound with the least predicted error, by the rule of a plan."""

        def try_bound(bound: int) -> TriedBound:
            sensor = self.region.known.sensors[bound]
            zones = max(1, self.region.whole.homes // self.group.homes)
            gain = sensor.response * sensor.forecast.mean_wh[0, 0] * self.group.homes
            pool_variance = float(np.mean((noise.sd * bound / gain) ** 2)) / zones
            error = self.make_filter(bound, noise.sd * bound, pool_variance).predicted_error
            stated = with_what_is_cut_off(error, sensor, self.region.known.forecast)
            return TriedBound(bound, noise.sd * bound, stated)

        return find_least_error(try_bounds(BOUNDS_WH[:-1], try_bound, stop_at=_CLEARLY_WORSE)).bound_wh

    def make_filter(self, bound: int, noise_sd_wh: float, pool_variance: float | None) -> StructuralFilter:
        """Return the filter for releases with this bound and noise. `pool_variance`: None if there is no pool."""
        return self.region.known.make_filter(
            self.group.homes,
            self.region.known.sensors[bound],
            noise_sd_wh=noise_sd_wh,
            pool_variance=pool_variance,
            lead=self.setting.lead,
        )

    def make_way(self, way: Way, noise: NoiseLaw | None, bound: int, seed: int) -> PricingWay:
        """Return a way of pricing. Ways that use noise need `noise`, and the private prediction `bound`."""
        rng = np.random.default_rng([seed, self.group.homes, list(Way).index(way)])
        expected, price, group = self.expected_wh, self.forecast_price, self.group
        exact_wh, no_noise = group.sums_wh(_EXACT_BOUND), np.zeros((len(expected), self.zones))
        made: PricingWay
        match way:
            case Way.FORECAST:
                made = FixedPrices(price, expected)
            case Way.TIME_OF_USE:
                made = FixedPrices(_time_of_use(price), _time_of_use(expected))
            case Way.FLAT:
                flat = np.repeat(price.mean(axis=0)[None], len(price), axis=0)
                made = FixedPrices(flat, np.broadcast_to(expected.mean(axis=0), expected.shape))
            case Way.NOISY_ECHO if noise is not None:
                clipped = [float(np.mean(exact_wh - group.sums_wh(each))) for each in BOUNDS_WH]
                errors = [np.hypot(noise.sd * each, lost) for each, lost in zip(BOUNDS_WH, clipped, strict=True)]
                best = BOUNDS_WH[int(np.argmin(errors))]  # noise grows with the bound, what is clipped falls
                made = Echo(self, group.sums_wh(best), noise.draw(rng, best, no_noise.shape))
            case Way.EXACT_ECHO:
                made = Echo(self, exact_wh, no_noise)
            case Way.PRIVATE if noise is not None:
                pooled, variance = self._pool(bound, noise, rng)
                drawn = noise.draw(rng, bound, no_noise.shape)
                its_filter = self.make_filter(bound, noise.sd * bound, variance)
                made = Predicted(self, bound, its_filter, group.sums_wh(bound), drawn, pooled)
            case Way.EXACT:
                made = Predicted(self, _EXACT_BOUND, self.make_filter(_EXACT_BOUND, 1.0, None), exact_wh, no_noise)
            case _:
                pooled, _ = self._pool(_EXACT_BOUND, NoiseLaw(1e-6, 0.0), rng)
                its_filter = self.make_filter(_EXACT_BOUND, _NO_MEASUREMENT_SD_WH, _EXACT_VARIANCE)
                made = Predicted(self, _EXACT_BOUND, its_filter, None, no_noise, pooled)
        return made

    def _pool(self, bound: int, noise: NoiseLaw, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Return the deviation that all releases of the region show together [interval], and its usual variance."""
        whole, sensor = self.region.whole, self.region.known.sensors[bound]
        expected = self._forecast_factor * self.region.expected_sums_wh(whole, bound)[:, 0]
        zones = max(1, whole.homes // self.group.homes)
        noise_wh = noise.draw(rng, bound, (len(expected), zones)).sum(axis=1)
        slot = np.arange(len(expected)) % SLOTS
        shown = sensor.read_deviation(self._change(whole.sums_wh(bound))[:, 0] + noise_wh, expected, slot)
        variance = zones * (noise.sd * bound) ** 2 * np.mean(1 / (sensor.response[slot] * expected) ** 2)
        return shown, float(variance)

    def play_season(self, way: PricingWay, first_price: FloatArray, elasticity: FloatArray | float) -> PricedSeason:
        """Play a season: demand answers to the price, and the way sees what was used.

        `first_price` is paid before the first release takes effect.
        """
        price, used, estimate = first_price.copy(), np.zeros_like(self.demand_wh), self.expected_wh.copy()
        for t in range(len(used)):
            answered = answer(price[t], elasticity)
            used[t] = self.demand_wh[t] * answered
            way.observe(t, price[t], answered)
            due = t + self.setting.lead
            if due < len(used):
                estimate[due] = way.estimate(due)
                price[due] = way.price(due, estimate[due])
        return PricedSeason(estimate, price, used)


class FixedPrices(PricingWay):
    """Prices that were known before: a flat tariff, a tariff by time of use, or the forecast's."""

    def __init__(self, prices: FloatArray, estimate_wh: FloatArray) -> None:
        self._prices, self._estimate_wh = prices, estimate_wh  # [interval, zone]

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        pass

    def estimate(self, due: int) -> FloatArray:
        return np.asarray(self._estimate_wh[due])

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        return np.asarray(self._prices[due])


class Echo(PricingWay):
    """The price of the demand that was measured last, as the paper has it."""

    def __init__(self, pricing: ZonePricing, sums_wh: FloatArray, noise_wh: FloatArray) -> None:
        """`sums_wh` [interval, zone] is what is summed, at the reference price."""
        self._pricing, self._sums_wh, self._noise_wh = pricing, twice(sums_wh), twice(noise_wh)
        self._last_wh = np.zeros(0)

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:  # noqa: ARG002 - as every way
        self._last_wh = self._sums_wh[t] * answered + self._noise_wh[t]

    def estimate(self, due: int) -> FloatArray:  # noqa: ARG002 - as every way
        return self._last_wh

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        return self._pricing.setting.supply.price(estimate_wh / self._pricing.mean_wh)


class Predicted(PricingWay):
    """The price of the demand that the filter predicts, with the answer to prices taken out and put back."""

    def __init__(
        self,
        pricing: ZonePricing,
        bound: int,
        its_filter: StructuralFilter,
        sums_wh: FloatArray | None,
        noise_wh: FloatArray,
        pooled: FloatArray | None = None,
    ) -> None:
        """`sums_wh` and `noise_wh` [interval, zone] make the releases, `pooled` [interval] is what all zones show.

        Without `sums_wh` no release is used, and `pooled` is known an interval later, as a region's load is.
        """
        self._pricing, self._filter, self._sensor = pricing, its_filter, pricing.region.known.sensors[bound]
        self._sums_wh = None if sums_wh is None else twice(sums_wh)
        self._expected_sums_wh, self._noise_wh = pricing.expected_sums_wh(bound), twice(noise_wh)
        self._pooled, self._cold_k = pooled, pricing.region.cold_k
        self._states = np.zeros((STATES, 2 * pricing.zones))  # of the filter, after the interval observed last
        self.predicted_error = its_filter.predicted_error

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        if self._sums_wh is None and t > 0:
            self._pool(t - 1)
        measured = np.zeros(self._states.shape[1])
        if self._sums_wh is not None:
            release = (self._sums_wh[t] * answered + self._noise_wh[t]) / answer(price, self._pricing.elasticity)
            measured = self._sensor.read_deviation(release, self._expected_sums_wh[t], t % SLOTS)
        usable, cold_k = np.full(measured.shape, self._sums_wh is not None), float(self._cold_k[t])
        self._states = self._filter.step(self._states, t % SLOTS, cold_k, measured, usable)
        if self._sums_wh is not None:
            self._pool(t)

    def _pool(self, t: int) -> None:
        if self._pooled is not None:
            cold_k = float(self._cold_k[t])
            self._states = self._filter.pool(self._states, t % SLOTS, cold_k, float(self._pooled[t]))

    def estimate(self, due: int) -> FloatArray:
        cold_k = float(self._cold_k[due])
        relative = self._filter.predict(self._states, due % SLOTS, cold_k, self._pricing.setting.lead)
        return np.asarray(self._pricing.expected_wh[due] * relative)

    def price(self, due: int, estimate_wh: FloatArray) -> FloatArray:  # noqa: ARG002 - as every way
        pricing = self._pricing
        return meeting_price(pricing.setting.supply, estimate_wh / pricing.mean_wh, pricing.elasticity)


def twice(of_zones: FloatArray) -> FloatArray:
    """Return the columns of zones, and the same once more."""
    return np.concatenate([of_zones, of_zones], axis=1)


def _time_of_use(values: FloatArray) -> FloatArray:
    """Means over night, day and evening [interval, zone]."""
    hour = np.arange(len(values)) % SLOTS * 24 // SLOTS
    block = np.where((hour < 6) | (hour >= 23), 0, np.where((hour >= 17) & (hour < 22), 2, 1))
    found = np.zeros_like(values)
    for number in range(3):
        found[block == number] = values[block == number].mean(axis=0)
    return found
