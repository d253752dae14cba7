"""A zone as its operator describes it: households, tariff, promises. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import MeterError, ModelError, PrivacyError
from murmurate.household.occupancy import OccupancyChains, OccupancyModel, occupancy_probability
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.public_inputs import NO_SERIES, InputSeries
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.leakage import with_periodic_prior
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import Promise
from murmurate.time_zones import UTC_CLOCK, LocalClock
from murmurate.units import FloatArray

_BURN_IN_DAYS = 5


class LearnedHabits(NamedTuple):
    """An occupancy model that was learned from a consented sample, and what that cost each of its households."""

    name: str  # of the occupancy model
    bound: str  # name of the model that leaks at least as much as each model within the noise
    epsilon: Fraction  # spent by each household of the sample
    households: int  # of the sample
    confidence: float  # probability that the habits of the sample lie within the noise
    proven: bool  # whether the bound has a proof, or tests only

    def to_document(self) -> dict[str, Any]:
        """Return the entry of `plan.json`."""
        return self._asdict() | {"epsilon": str(self.epsilon)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LearnedHabits:
        """Return an entry of `plan.json`. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(**{**document, "epsilon": Fraction(document["epsilon"])})


@dataclass(frozen=True, kw_only=True, eq=False)
class HouseholdKind:
    """A number of similar households: one range of readings with two distributions, and models of their occupancy.

    Habits are periodic. The constructor replaces the `initial` of each model by its periodic prior, so that a log may
    start at any interval of the day.
    """

    name: str
    count: int
    secret_pair: SecretPair  # distributions of the reading away and home on -export bound, .., bound
    models: tuple[OccupancyChains, ...]  # the possible habits of one household, by standard time
    public: tuple[bool, ...]  # [interval of the day] whether the occupancy is public at every offset of the clock
    meters_file: str = ""  # the meter file of count and bound, if any

    def __post_init__(self) -> None:
        if self.count < 1:
            raise MeterError("count", self.count, "must be at least 1 household")
        object.__setattr__(self, "models", tuple(with_periodic_prior(model) for model in self.models))

    @property
    def bound_wh(self) -> int:
        return self.secret_pair.bound_wh

    @property
    def export_bound_wh(self) -> int:
        return self.secret_pair.export_bound_wh

    @property
    def range_wh(self) -> int:
        """The sensitivity: a reading between -export bound and bound changes a demand by their sum at most."""
        return self.secret_pair.range_wh

    @property
    def always_public(self) -> bool:
        return all(self.public)

    def consumption_moments(self, intervals: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of one household under the first model [Wh, Wh^2]. The mean may be negative."""
        x = self.secret_pair.energy_wh
        means = np.array([self.secret_pair.away @ x, self.secret_pair.home @ x])
        squares = np.array([self.secret_pair.away @ x**2, self.secret_pair.home @ x**2])
        model = OccupancyModel(groups=(self.models[0],))
        home = occupancy_probability(model, (_BURN_IN_DAYS + 1) * intervals)[-intervals:, 0]
        mean = means[0] + (means[1] - means[0]) * home
        variance = squares[0] + (squares[1] - squares[0]) * home - mean**2
        return mean, variance


def sum_consumption_moments(kinds: Sequence[HouseholdKind], intervals: int) -> FloatArray:
    """Return mean and variance of the demand of all households [Wh and Wh^2, interval of the day]."""
    total = np.zeros((2, intervals))
    for kind in kinds:
        total += kind.count * np.array(kind.consumption_moments(intervals))
    return total


@dataclass(frozen=True, slots=True, eq=False)
class PredictedDemand:
    """What the operator says about the demand of the zone: prices are made for a prediction."""

    forecast: PublicForecast  # of one household
    level: float = 1.0  # what a household of the zone uses, relative to the forecast's
    elasticity: float = 0.0  # percent of demand for one percent of price
    reference_price: Fraction | None = None  # at which demand is as forecast [money/kWh]; None: that of the forecast
    series: InputSeries = NO_SERIES  # of public inputs
    read_meters: bool = True  # False: prices are made from public numbers alone

    def __post_init__(self) -> None:
        self.series.check()
        demand = self.forecast.demand
        for role, knows in (
            ("temperature", bool(demand.heat_wh_per_k.any())),
            ("irradiance", demand.knows_sun),
        ):
            if getattr(self.series, role) and not knows:
                allowed = "needs a forecast that knows it: murmurate forecast with --weather makes one"
                raise ModelError(role, repr(getattr(self.series, role)), allowed)


@dataclass(frozen=True, kw_only=True, eq=False)
class Zone:
    """A tariff zone: its tariff, its households and its promises. Everything in it is public. See `parse_zone`.

    Attributes:
        name: Name of the zone.
        currency: Currency of the prices, such as EUR.
        intervals_per_day: Number of intervals of a day; 96 are quarter hours.
        curve: Rate curve, prices in money/kWh.
        kinds: Kinds of households: count, range of readings [Wh], their distributions, occupancy models, public hours.
        promises: What the operator promises.
        distribution: Distribution of the noise; None: the one that needs least noise.
        predicted: Public forecast by which prices are made for the interval that pays; None: a price is made from the
            last release.
        clock: Local time of the hours in the zone file. Intervals of the day are those of UTC.
        learned: The occupancy models that were learned from a consented sample, and what that spent.
        source_text: The zone file, so that a reader can prove the plan again.

    Raises:
        MeterError: There is no kind of household, or a day has the wrong number of intervals.
        PrivacyError: There is no promise.

    Example:
        >>> import murmurate as mm
        >>> zone = mm.parse_zone(mm.EXAMPLE_ZONE_FILE)
        >>> zone.name, zone.currency, zone.intervals_per_day, [kind.name for kind in zone.kinds]
        ('harbour', 'EUR', 96, ['flat', 'fish market'])
    """

    name: str
    currency: str
    intervals_per_day: int
    curve: RateCurve
    kinds: tuple[HouseholdKind, ...]
    promises: tuple[Promise, ...]
    distribution: NoiseDistribution | None = None
    predicted: PredictedDemand | None = None
    clock: LocalClock = UTC_CLOCK
    learned: tuple[LearnedHabits, ...] = ()
    source_text: str = ""

    def __post_init__(self) -> None:
        if not self.kinds:
            raise MeterError("households", "empty", "must have at least one kind of household")
        if not self.promises:
            raise PrivacyError("promise", "empty", "must have at least one promise")
        for kind in self.kinds:
            lengths = {len(kind.public), *(len(model.period) for model in kind.models)}
            if lengths != {self.intervals_per_day}:
                allowed = f"must have {self.intervals_per_day} intervals a day, as the zone has"
                raise MeterError(f"day of {kind.name}", sorted(lengths), allowed)

    @property
    def household_count(self) -> int:
        """Number of households of all kinds."""
        return sum(kind.count for kind in self.kinds)

    @cached_property
    def protected_kinds(self) -> tuple[tuple[HouseholdKind, ...], ...]:
        """The kinds that need protection; where none does, the one with the smallest range [interval of the day]."""
        smallest = min(self.kinds, key=lambda kind: kind.range_wh)
        days = [tuple(kind for kind in self.kinds if not kind.public[t]) for t in range(self.intervals_per_day)]
        return tuple(kinds or (smallest,) for kinds in days)

    def protected_intervals(self, kind: HouseholdKind) -> tuple[bool, ...]:
        """Return when a kind of household is protected.

        Args:
            kind: One of `kinds`.

        Returns:
            Whether the noise is measured by this kind, among others [interval of the day].

        Example:
            >>> import murmurate as mm
            >>> zone = mm.parse_zone(mm.EXAMPLE_ZONE_FILE)
            >>> [any(zone.protected_intervals(kind)) for kind in zone.kinds]  # the fish market is public always
            [True, False]
        """
        return tuple(kind in kinds for kinds in self.protected_kinds)

    @property
    def private_kinds(self) -> tuple[HouseholdKind, ...]:
        """The kinds whose occupancy is secret in at least one interval of the day."""
        return tuple(kind for kind in self.kinds if not kind.always_public)

    @property
    def slot_shifts(self) -> tuple[int, ...]:
        """How far local clocks are ahead of standard time, for each offset [intervals]."""
        shifts = self.clock.slot_shifts(self.intervals_per_day)
        return tuple(shift - shifts[0] for shift in shifts)

    @property
    def slot_changes(self) -> tuple[tuple[int, int, int], ...]:
        """Tuples (first interval of the day after a clock change, shift before, shift after)."""
        standard = self.clock.slot_shifts(self.intervals_per_day)[0]
        changes = self.clock.slot_changes(self.intervals_per_day)
        return tuple((at, before - standard, after - standard) for at, before, after in changes)

    @cached_property
    def forecast_moments(self) -> FloatArray:
        """Mean and variance of the demand that the first model of each kind expects [Wh and Wh^2, interval of the day].

        The mean is the forecast: it uses no reading.
        """
        return sum_consumption_moments(self.kinds, self.intervals_per_day)
