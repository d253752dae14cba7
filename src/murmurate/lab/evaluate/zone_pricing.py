"""Zones of one size, and every way to price them.

The ways are fixed prices, the echo of a measurement, and a prediction of the interval that pays.

Each zone is there twice: once as if demand did not answer to prices, which gives the error of what a price is made for,
and once as it answers, which gives prices and welfare. Both are played in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np

from murmurate.lab.evaluate.corrected_zones import CorrectedZones
from murmurate.lab.evaluate.market import Supply, answer, meeting_price
from murmurate.lab.evaluate.promised_noise import NoiseLaw
from murmurate.lab.evaluate.public_knowledge import BOUNDS_WH, SLOTS
from murmurate.lab.evaluate.region import Region
from murmurate.planning.bound_choice import find_least_error, try_bounds
from murmurate.prediction.forecast import HOURS
from murmurate.units import FloatArray

_EXACT_BOUND = BOUNDS_WH[-1]
_RETURN_INTERVALS = 16  # in which about two thirds of what was put off are used: four hours
_MIN_SHOWN = 0.05  # of the mean import: a demand below it is taken not to answer
_CLEARLY_WORSE = 1.05  # then a still higher bound only adds noise


class Way(Enum):
    """What a price is made from."""

    FLAT = "flat tariff"
    TIME_OF_USE = "time of use"
    FORECAST = "public forecast"
    REGIONAL_LOAD = "public forecast and regional load"
    NOISY_ECHO = "echo of noisy demand"
    PRIVATE = "private prediction"
    EXACT_ECHO = "echo of exact demand"
    EXACT = "prediction from exact demand"

    @property
    def uses_noise(self) -> bool:
        return self in {Way.NOISY_ECHO, Way.PRIVATE}

    @property
    def is_exact(self) -> bool:
        """Whether it shows exact demand."""
        return self in {Way.EXACT_ECHO, Way.EXACT}


@dataclass(frozen=True, slots=True)
class Setting:
    """How zones are priced and how demand answers."""

    supply: Supply = Supply.CONVEX
    elasticity: float = 0.1
    lead: int = 2
    shifted: float = 0.0  # share of what a price keeps homes from using that they use in the hours after it


class PricingWay(Protocol):
    """Observes each release and sets the price of a later interval."""

    predicted_error: float | None = None  # of the demand, as the way itself predicts it

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        """Take in interval `t`: the price that was paid, and what demand answered, relative to the reference price."""
        ...

    def decide(self, due: int) -> tuple[FloatArray, FloatArray]:
        """Return the demand that the price of an interval is made for [Wh, zone], and that price [zone]."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PricedSeason:
    """What was expected, paid and used [interval, zone]."""

    estimate_wh: FloatArray  # the demand that the price was made for
    price: FloatArray
    demand_wh: FloatArray
    wanted_wh: FloatArray  # at the reference price: what homes would use, and what they have put off


class ZonePricing:
    """Zones of one size of a region in a season, and what the public expects of them. Arrays have each zone twice."""

    def __init__(
        self,
        region: Region,
        homes: int,
        setting: Setting,
        *,
        level_factor: float = 1.0,
        change: Callable[[FloatArray], FloatArray] = lambda demand_wh: demand_wh,
    ) -> None:
        """`level_factor` makes the known level of zones wrong; `change` changes their demand [interval, ...]."""
        self.region, self.setting, group = region, setting, region.zones[homes]
        self.group = replace(group, demand_wh=change(group.demand_wh))
        self.zones = len(group.level_wh)
        self.demand_wh = twice(self.group.sums_wh(_EXACT_BOUND))  # [interval, zone] at the reference price
        self.scale = twice(level_factor * region.scale(group)[None])[0]  # [zone]
        self.expected_wh = region.expected_wh[:, -1:] * self.scale  # [interval, zone]
        self.deviation = region.follow_load(setting.lead + 1)  # [interval]
        self.mean_wh = np.maximum(self.demand_wh, 0).mean(axis=0)  # [zone] of the import: of the demand above zero
        self.elasticity = np.repeat([0.0, 1.0], self.zones) * setting.elasticity
        self.forecast_price = self.meet(self.expected_wh)

    def meet(self, estimate_wh: FloatArray) -> FloatArray:
        """Return the price at which supply and the answer of an expected demand meet."""
        return meeting_price(self.setting.supply, estimate_wh / self.mean_wh, self.elasticity)

    def choose_bound(self, noise: NoiseLaw) -> int:
        """Return the bound with the least predicted error, by the rule of a plan."""
        tried = try_bounds(
            BOUNDS_WH[:-1],
            lambda bound: self.plan_zones(bound, noise.sd * self.region.range_wh(bound)).tried,
            stop_at=_CLEARLY_WORSE,
        )
        return find_least_error(tried).bound_wh

    def released_wh(self, bound: int) -> FloatArray:
        """Return sums of clipped readings [interval, zone]; what is missing counts as forecast."""
        each_wh = self.region.expected_wh[:, [BOUNDS_WH.index(bound)]] * self.scale[: self.zones] / self.group.homes
        return np.asarray(self.group.sums_wh(bound) + self.group.silent * each_wh)

    def plan_zones(self, bound: int, noise_sd_wh: float) -> CorrectedZones:
        """Return zones that are predicted from releases with this bound and noise."""
        known, homes, lead = self.region.known, self.group.homes, self.setting.lead
        return CorrectedZones(known, bound, homes=homes, noise_sd_wh=noise_sd_wh, lead=lead, scale=self.scale)

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
                sd = [noise.sd * self.region.range_wh(each) for each in BOUNDS_WH]
                clipped = [float(np.mean(exact_wh - self.released_wh(each))) for each in BOUNDS_WH]
                best = BOUNDS_WH[int(np.argmin(np.hypot(sd, clipped)))]  # noise grows with the bound, clipped falls
                made = Echo(self, self.released_wh(best), noise.draw(rng, self.region.range_wh(best), no_noise.shape))
            case Way.EXACT_ECHO:
                made = Echo(self, exact_wh, no_noise)
            case Way.PRIVATE if noise is not None:
                range_wh = self.region.range_wh(bound)
                made = Predicted(self, bound, noise.sd * range_wh, noise.draw(rng, range_wh, no_noise.shape))
            case Way.EXACT:
                made = Predicted(self, _EXACT_BOUND, 0.0, no_noise)
            case _:
                known_wh = expected + self.deviation[:, None] * self.region.use_wh * self.scale
                made = FixedPrices(self.meet(known_wh), known_wh)
        return made

    def play_season(self, way: PricingWay, first_price: FloatArray, elasticity: FloatArray | float) -> PricedSeason:
        """Play a season: demand answers to the price, and the way sees what was used. What is fed in does not answer.

        `first_price` is paid before the first release takes effect.
        """
        price, used, estimate = first_price.copy(), np.zeros_like(self.demand_wh), self.expected_wh.copy()
        wanted, put_off = self.demand_wh.copy(), np.zeros(used.shape[1])
        answering = np.where(self.demand_wh > 0, elasticity, 0.0)
        shown = self.demand_wh > _MIN_SHOWN * self.mean_wh
        for t in range(len(used)):
            answered = answer(price[t], answering[t])
            returns = put_off / _RETURN_INTERVALS
            used[t], wanted[t] = self.demand_wh[t] * answered + returns, self.demand_wh[t] + returns
            put_off += self.setting.shifted * self.demand_wh[t] * (1 - answered) - returns
            way.observe(t, price[t], np.divide(used[t], self.demand_wh[t], out=np.ones_like(answered), where=shown[t]))
            due = t + self.setting.lead
            if due < len(used):
                estimate[due], price[due] = way.decide(due)
        return PricedSeason(estimate, price, used, wanted)


class FixedPrices(PricingWay):
    """Prices that were known before: a flat tariff, a tariff by time of use, or the forecast's."""

    def __init__(self, prices: FloatArray, estimate_wh: FloatArray) -> None:
        self._prices, self._estimate_wh = prices, estimate_wh  # [interval, zone]

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        pass

    def decide(self, due: int) -> tuple[FloatArray, FloatArray]:
        return self._estimate_wh[due], self._prices[due]


class Echo(PricingWay):
    """The price of the demand that was measured last, as the paper has it."""

    def __init__(self, pricing: ZonePricing, sums_wh: FloatArray, noise_wh: FloatArray) -> None:
        """`sums_wh` [interval, zone] is what is summed, at the reference price."""
        self._pricing, self._sums_wh, self._noise_wh = pricing, twice(sums_wh), twice(noise_wh)
        self._last_wh = np.zeros(0)

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:  # noqa: ARG002 - as every way
        self._last_wh = self._sums_wh[t] * answered + self._noise_wh[t]

    def decide(self, due: int) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002 - as every way
        return self._last_wh, self._pricing.setting.supply.price(self._last_wh / self._pricing.mean_wh)


class Predicted(PricingWay):
    """The price of the demand that forecast, regional load and corrections predict, with the answer to prices.

    The answer to earlier prices is taken out of a release, and the answer to the price is put back.
    """

    def __init__(self, pricing: ZonePricing, bound: int, noise_sd_wh: float, noise_wh: FloatArray) -> None:
        """`noise_wh` [interval, zone] is added to sums of readings within the bound."""
        region, group, at = pricing.region, pricing.group, BOUNDS_WH.index(bound)
        self._pricing, self._zones = pricing, pricing.plan_zones(bound, noise_sd_wh)
        self._sums_wh, self._noise_wh = twice(group.sums_wh(bound)), twice(noise_wh)
        self._silent = twice(group.silent * (bound < _EXACT_BOUND))
        self._seen_sun_wh, self._sun_wh = region.expected_sun_wh[:, at], region.expected_sun_wh[:, -1]
        self._seen_wh = region.expected_wh[:, at] - self._seen_sun_wh  # of a clipped reading, without the sun
        self._use_wh = region.expected_wh[:, -1] - self._sun_wh
        self.predicted_error = self._zones.tried.predicted_error

    def observe(self, t: int, price: FloatArray, answered: FloatArray) -> None:
        self._zones.observe(
            float(self._seen_wh[t]),
            _hour(t),
            self._sums_wh[t] * answered + self._noise_wh[t],
            float(self._pricing.deviation[t]),
            sun_wh=float(self._seen_sun_wh[t]),
            paid=answer(price, self._pricing.elasticity),
            silent=self._silent[t],
        )

    def decide(self, due: int) -> tuple[FloatArray, FloatArray]:
        deviation, sun_wh = float(self._pricing.deviation[due]), float(self._sun_wh[due])
        estimate_wh = self._zones.predict(float(self._use_wh[due]), _hour(due), deviation, sun_wh=sun_wh)
        return estimate_wh, self._pricing.meet(estimate_wh)


def _hour(t: int) -> int:
    return t % SLOTS * HOURS // SLOTS


def twice(of_zones: FloatArray) -> FloatArray:
    """Return the columns of zones, and the same once more."""
    return np.concatenate([of_zones, of_zones], axis=1)


def _time_of_use(values: FloatArray) -> FloatArray:
    """Means over night, day and evening [interval, zone]."""
    hour = np.arange(len(values)) % SLOTS * HOURS // SLOTS
    block = np.where((hour < 6) | (hour >= 23), 0, np.where((hour >= 17) & (hour < 22), 2, 1))
    found = np.zeros_like(values)
    for number in range(3):
        found[block == number] = values[block == number].mean(axis=0)
    return found
