"""Replay a plan over past readings, bill every household, and describe what was done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from murmurate import __version__
from murmurate.errors import ReadingError
from murmurate.lab.backtest.bill_statistics import BillStatistics, measure_bills
from murmurate.lab.backtest.bills import Bills, make_bills
from murmurate.lab.backtest.past_readings import PastReadings
from murmurate.lab.backtest.replayed_prices import draw_noise, replay_prices
from murmurate.planning.household_bounds import round_household_count
from murmurate.planning.release_terms import ReleaseTerms, parse_plan
from murmurate.pricing.rate import RateCurve
from murmurate.time_zones import utc_offset_min
from murmurate.units import IntArray

_MAX_RATIO = 2  # of households of the plan to those with readings, or the other way round


@dataclass(frozen=True, slots=True)
class ZonePlan:
    """A plan, with what a back-test needs beside the terms of a release."""

    terms: ReleaseTerms
    households: int
    bound_wh: int  # the largest
    time_zone: str
    bounds: Mapping[str, int] = field(default_factory=dict)  # by kind

    @classmethod
    def from_json(cls, text: str) -> ZonePlan:
        """Read a `plan.json`. Raises PrivacyError if it is none, or was changed."""
        terms = ReleaseTerms.from_json(text)
        document = parse_plan(text)[0]
        kinds = document["households"]
        count, bound_wh = sum(int(kind["count"]) for kind in kinds), max(int(kind["bound_wh"]) for kind in kinds)
        bounds = {str(kind["name"]): int(kind["bound_wh"]) for kind in kinds}
        return cls(terms, count, bound_wh, str(document["clock"]["time_zone"]), bounds)

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
        clipped = np.minimum(readings.energy_wh, np.array(bounds)).sum(axis=1, dtype=np.int64)
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
    statistics: BillStatistics

    @property
    def currency(self) -> str:
        return self.plan.terms.currency

    @property
    def period(self) -> tuple[str, str]:
        """The first and the last local day."""
        length, first = self.readings.interval_s, self.readings.first_interval
        ends = (first, first + self.readings.intervals - 1)
        first_day, last_day = (_local_date(at * length, self.plan.time_zone) for at in ends)
        return first_day, last_day

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
            **self.statistics.to_document(),
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
    return ZoneBackTest(plan, readings, options, bills, measure_bills(bills, prices, options.above_percent))


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


def _local_date(at_s: int, time_zone: str) -> str:
    local = datetime.fromtimestamp(at_s, UTC) + timedelta(minutes=utc_offset_min(time_zone, at_s))
    return f"{local:%Y-%m-%d}"
