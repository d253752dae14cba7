"""Replay a plan over past readings and bill every household.

The functions of the service predict the prices, each from the releases up to `lead` intervals before it. Several draws
of noise are replayed at once, and with them the same plan without noise and without releases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from murmurate import __version__
from murmurate.errors import ReadingError
from murmurate.lab.backtest.bills import (
    BillChange,
    Bills,
    NoiseEffect,
    Rate,
    ReplayedPrices,
    make_bills,
    measure_change,
    measure_noise,
)
from murmurate.planning.household_bounds import round_household_count
from murmurate.planning.release_terms import ReleaseTerms, parse_plan
from murmurate.prediction.corrections import STATES
from murmurate.prediction.zone_prediction import (
    ZonePrediction,
    advance_states,
    predict_zones,
)
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.noise import NoiseDistribution, SeededNoise
from murmurate.readings.imported_file import PastReadings
from murmurate.time_zones import utc_offset_min
from murmurate.units import FloatArray, IntArray

_MAX_RATIO = 2  # of households of the plan to those with readings, or the other way round
_FORECAST, _EXACT, _PRIVATE = 0, 1, slice(2, None)  # columns of prices that are replayed together


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """A plan, with what a back-test needs in addition to the terms of a release."""

    terms: ReleaseTerms
    households: int
    bound_wh: int  # the largest
    time_zone: str
    bounds: Mapping[str, int] = field(default_factory=dict)  # by kind
    export_bounds: Mapping[str, int] = field(default_factory=dict)  # by kind

    @classmethod
    def from_json(cls, text: str) -> ZonePlan:
        """Read a `plan.json`. Raises PrivacyError if it is none, or was changed."""
        terms = ReleaseTerms.from_json(text)
        document = parse_plan(text)[0]
        kinds = document["households"]
        count, bound_wh = sum(int(kind["count"]) for kind in kinds), max(int(kind["bound_wh"]) for kind in kinds)
        bounds = {str(kind["name"]): int(kind["bound_wh"]) for kind in kinds}
        exports = {str(kind["name"]): int(kind.get("export_bound_wh", 0)) for kind in kinds}
        return cls(terms, count, bound_wh, str(document["clock"]["time_zone"]), bounds, exports)

    def scale_of(self, readings: PastReadings) -> float:
        """Return how many times the demand of these households the plan is made for: 1 where numbers are rounded."""
        by_kind = Counter(readings.kinds or ("",) * readings.households)
        rounded = sum(round_household_count(count) for count in by_kind.values())
        is_same = self.households in (rounded, readings.households)
        return 1.0 if is_same else self.households / readings.households

    def zone_demand(self, readings: PastReadings) -> IntArray:
        """Return the demand of the zone: clipped readings, scaled to the households of the plan [Wh, interval]."""
        ratio = self.scale_of(readings)
        if not 1 / _MAX_RATIO <= ratio <= _MAX_RATIO:
            found = f"for {self.households:,} households, with readings of {readings.households:,}"
            raise ReadingError("plan", found, "must be a plan for about as many: set count or meters in its zone file")
        bounds = [self.bounds.get(kind, self.bound_wh) for kind in readings.kinds] or [self.bound_wh]
        largest_wh = max(self.export_bounds.values(), default=0)
        lowest = [-self.export_bounds.get(kind, largest_wh) for kind in readings.kinds] or [-largest_wh]
        clipped = np.clip(readings.energy_wh, np.array(lowest), np.array(bounds)).sum(axis=1, dtype=np.int64)
        return np.asarray(np.rint(clipped * ratio).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackTestOptions:
    """How a plan is replayed."""

    lead: int  # intervals from a release to the one that pays
    draws: int  # of the noise; the first is billed
    seed: int
    above_percent: float


@dataclass(frozen=True, slots=True, eq=False)
class ZoneBackTest:
    """What was computed, and from what."""

    plan: ZonePlan
    readings: PastReadings
    options: BackTestOptions
    bills: Bills
    changes: dict[Rate, BillChange]  # without the flat rate
    noise: NoiseEffect

    @property
    def currency(self) -> str:
        return self.plan.terms.currency

    @property
    def period(self) -> tuple[str, str]:
        """The first and the last local day."""
        first, days = self.readings.first_interval, []
        for interval in (first, first + self.readings.intervals - 1):
            at_s = interval * self.readings.interval_s
            local = datetime.fromtimestamp(at_s, UTC) + timedelta(minutes=utc_offset_min(self.plan.time_zone, at_s))
            days.append(f"{local:%Y-%m-%d}")
        return days[0], days[1]

    def to_document(self) -> dict[str, Any]:
        """Return `results.json`. It has no number of a single household."""
        first_day, last_day = self.period
        return {
            "murmurate": __version__,
            "zone": self.plan.terms.zone,
            "plan": self.plan.terms.plan_digest,
            "currency": self.currency,
            "first_day": first_day,
            "last_day": last_day,
            "time_zone": self.plan.time_zone,
            "households": self.readings.households,
            "plan_households": self.plan.households,
            "demand_times": self.plan.scale_of(self.readings),
            "left_out": self.readings.left_out,
            "readings_filled": self.readings.filled,
            "energy_kwh": float(self.bills.energy_kwh.sum()),
            "rate_curve": describe_curve(self.plan.terms.curve, self.currency),
            "lead": self.options.lead,
            "draws": self.options.draws,
            "seed": self.options.seed,
            "revenue": self.bills.revenue,
            "flat_price": self.bills.factors[Rate.FLAT],
            "factors": {rate.value: self.bills.factors[rate] for rate in self.changes},
            "above_percent": self.options.above_percent,
            "changes": {rate.value: asdict(change) for rate, change in self.changes.items()},
            "noise": asdict(self.noise),
            "months": [
                {
                    "month": month,
                    "days": int(self.bills.days[at]),
                    "energy_kwh": float(self.bills.energy_kwh[at].mean()),
                    "bills": {rate.value: float(self.bills.by_rate[rate][at].mean()) for rate in Rate},
                    "noise_percent": self.noise.month_percent[at],
                }
                for at, month in enumerate(self.bills.months)
            ],
        }


def back_test_zone(
    plan: ZonePlan,
    readings: PastReadings,
    options: BackTestOptions,
    progress: Callable[[int], None] = lambda _: None,
) -> ZoneBackTest:
    """Return what households would have paid. `progress` is called with numbers of intervals."""
    terms, first = plan.terms, readings.first_interval
    demand_wh = plan.zone_demand(readings)
    noise_wh = draw_noise(terms, first, readings.intervals, options.draws, options.seed)
    prices = replay_prices(terms, first, demand_wh, noise_wh, lead=options.lead, progress=progress)
    bills = make_bills(readings, prices, terms.curve.tick, plan.time_zone)
    changes: dict[Rate, BillChange] = {
        rate: measure_change(bills, rate, options.above_percent) for rate in Rate if rate is not Rate.FLAT
    }
    return ZoneBackTest(plan, readings, options, bills, changes, measure_noise(bills, prices))


def describe_curve(curve: RateCurve, currency: str) -> str:
    """Return the rate curve in words.

    >>> describe_curve(RateCurve.affine(alpha="0.0008", beta="0.08", tick="0.00001", floor=0, cap=2), "EUR")
    '0.08 EUR/kWh, plus 0.0008 EUR/kWh for each kWh of demand in an interval; at least 0, at most 2'
    """
    if len(curve.segments) == 1:
        only = curve.segments[0]
        start = float(only.price - only.slope * only.from_wh / 1000)
        text = (
            f"{start:g} {currency}/kWh, plus {float(only.slope):g} {currency}/kWh for each kWh of demand in an interval"
        )
    else:
        prices = [float(curve.price(segment.from_wh)) for segment in curve.segments]
        text = f"{len(prices)} pieces from {min(prices):g} to {max(prices):g} {currency}/kWh or more"
    limits = [("at least", curve.floor), ("at most", curve.cap)]
    stated = ", ".join(f"{name} {float(limit):g}" for name, limit in limits if limit is not None)
    return f"{text}; {stated}" if stated else text


def draw_noise(terms: ReleaseTerms, first_interval: int, intervals: int, draws: int, seed: int) -> IntArray:
    """Return the noise of a plan for a simulation [Wh: interval, draw]."""
    slot = np.array([terms.slot_of_day(first_interval + t) for t in range(intervals)])
    shape = (intervals, draws)
    scale_wh = np.broadcast_to(terms.scale_wh[slot, None], shape)
    huber = terms.distribution is NoiseDistribution.HUBER
    core_wh = np.broadcast_to(terms.core_wh[slot, None], shape) if huber else None
    return SeededNoise(seed).draw(terms.distribution, scale_wh, core_wh)


def replay_prices(
    terms: ReleaseTerms,
    first_interval: int,
    demand_wh: IntArray,
    noise_wh: IntArray,
    *,
    lead: int,
    progress: Callable[[int], None] = lambda _: None,
) -> ReplayedPrices:
    """Return the prices under a plan, from past demand [interval] and noise [interval, draw].

    A price paid in an interval is made from releases up to `lead` intervals before it. The demand is taken as that at
    the plan's reference price. `progress` is called with the number of intervals since the call before.
    """
    released = np.concatenate([demand_wh[:, None] * np.array([0, 1]), demand_wh[:, None] + noise_wh], axis=1)
    if terms.prediction is None:  # the last release alone, and the forecast before the first one takes effect
        slot = np.array([terms.slot_of_day(first_interval + t) for t in range(len(released))])
        prices = np.repeat(terms.forecast_ticks[slot, None], released.shape[1], axis=1)
        prices[lead:, _EXACT:] = terms.curve.price_ticks(released[: len(released) - lead, _EXACT:])
        progress(len(demand_wh))
    else:
        expected_wh = _predict_demand(terms.prediction, first_interval, released, lead, progress)
        met = terms.prediction.price_response.meet(terms.curve, expected_wh.ravel())
        prices = met.reshape(expected_wh.shape)
    return ReplayedPrices(prices[:, _FORECAST], prices[:, _EXACT], prices[:, _PRIVATE])


def _predict_demand(
    zone: ZonePrediction, first_interval: int, released_wh: IntArray, lead: int, progress: Callable[[int], None]
) -> FloatArray:
    """Return the demand that prices are made for [interval, column]. The first column uses no release."""
    columns = released_wh.shape[1]
    zones, states = [zone] * columns, np.zeros((columns, STATES), np.int64)
    usable, as_it_is = np.arange(columns) != _FORECAST, np.ones(columns)
    expected = np.zeros(released_wh.shape)
    for t in range(min(lead, len(expected))):  # before the first release takes effect
        expected[t] = predict_zones(zones, states, first_interval + t, 0)
    for t in range(len(expected) - lead):
        interval = first_interval + t
        states = advance_states(zones, states, interval, released_wh[t], usable, as_it_is)
        expected[t + lead] = predict_zones(zones, states, interval, lead)
        progress(1)
    progress(min(lead, len(expected)))
    return expected
