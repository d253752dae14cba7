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
from murmurate.prediction.forecast_sources import forecast_from_day
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.public_inputs import NO_SERIES, InputSeries
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.divergence import SecretPair
from murmurate.privacy.leakage import with_periodic_prior
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import Promise, parse_promise
from murmurate.time_zones import UTC_CLOCK, LocalClock, local_clock
from murmurate.types import check_zone_name
from murmurate.units import QUARTER_HOURS_PER_DAY, FloatArray

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

    `from_distributions` makes one from arrays. Habits are periodic: the constructor replaces the `initial` of each
    model by its periodic prior, so that a log may start at any interval of the day.

    Attributes:
        name: Name of the kind.
        count: Number of households, 1 or more.
        secret_pair: Distributions of the reading away and home, on -export bound, .., bound.
        models: The possible habits of one household, by standard time: the promises hold for each of them.
        public: Whether the occupancy is public at every offset of the clock [interval of the day].
        meters_file: The meter file of count and bound, if any.

    Raises:
        MeterError: There is no household.

    Example:
        >>> import murmurate as mm
        >>> flat, _ = mm.parse_zone(mm.EXAMPLE_ZONE_FILE).kinds
        >>> flat, flat.models
        (HouseholdKind(flat: 800 households, 0 to 1,000 Wh), (OccupancyChains(1 group of 1, 4 periods),))
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

    @classmethod
    def from_distributions(
        cls,
        name: str,
        count: int,
        *,
        bound_wh: int,
        away: Any,
        home: Any,
        occupancy: OccupancyChains | Sequence[OccupancyChains],
        export_bound_wh: int = 0,
        public: bool | Sequence[bool] = False,
    ) -> HouseholdKind:
        """Return a kind of household from the probabilities of its readings.

        Args:
            name: Name of the kind.
            count: Number of households, 1 or more.
            bound_wh: The most that a household may add to the demand of one interval, 1 or more [Wh].
            away: Probability of each reading of a household that is away, from -`export_bound_wh` on [Wh]. What is
                missing up to the bound is 0.
            home: The same of a household that is home [Wh].
            occupancy: The model of its occupancy, or several that an attacker may hold.
            export_bound_wh: The most that a household may feed in within one interval, 0 or more [Wh].
            public: Whether the occupancy is public: always or never, or for each interval of the day (UTC).

        Returns:
            The kind of household.

        Raises:
            ModelError: A distribution does not fit the bounds, or is none.
            MeterError: There is no household, or a bound is out of range.

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> shifts = {"day": "06:00", "night": "18:00"}
            >>> guard = mm.OccupancyChains.from_periods(shifts, {"day": 0.9, "night": 0}, {"day": 0, "night": 0.9})
            >>> even = np.full(201, 1 / 201)
            >>> mm.HouseholdKind.from_distributions("lodge", 40, bound_wh=900, away=[1], home=even, occupancy=guard)
            HouseholdKind(lodge: 40 households, 0 to 900 Wh)
        """
        if bound_wh < 1 or export_bound_wh < 0:
            raise MeterError("bound_wh", (-export_bound_wh, bound_wh), "must be a range from 0 Wh or less to 1 or more")
        size, laws = export_bound_wh + bound_wh + 1, {}
        for key, given in (("away", away), ("home", home)):
            law = np.asarray(given, np.float64)
            if law.ndim != 1 or len(law) > size:
                allowed = f"must be a list of at most {size}: one for each Wh from -export_bound_wh to bound_wh"
                raise ModelError(key, f"shaped {law.shape}", allowed)
            laws[key] = np.pad(law, (0, size - len(law)))
        models = (occupancy,) if isinstance(occupancy, OccupancyChains) else tuple(occupancy)
        if not models:
            raise ModelError("occupancy", "empty", "must be at least one model")
        hidden = (public,) * len(models[0].period) if isinstance(public, bool) else tuple(map(bool, public))
        pair = SecretPair(**laws, export_bound_wh=export_bound_wh)
        return cls(name=name, count=count, secret_pair=pair, models=models, public=hidden)

    @property
    def bound_wh(self) -> int:
        """The most that a household may add to the demand of one interval [Wh]."""
        return self.secret_pair.bound_wh

    @property
    def export_bound_wh(self) -> int:
        """The most that a household may feed in within one interval [Wh]."""
        return self.secret_pair.export_bound_wh

    @property
    def range_wh(self) -> int:
        """The sensitivity: a reading between -export bound and bound changes a demand by their sum at most."""
        return self.secret_pair.range_wh

    @property
    def always_public(self) -> bool:
        """Whether the occupancy is public in every interval of the day."""
        return all(self.public)

    def consumption_moments(self, intervals: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of one household under the first model. The mean may be negative.

        Args:
            intervals: Number of intervals of a day.

        Returns:
            Mean and variance [Wh, interval of the day] and [Wh^2, interval of the day].

        Example:
            >>> import murmurate as mm
            >>> flat, _ = mm.parse_zone(mm.EXAMPLE_ZONE_FILE).kinds
            >>> flat.consumption_moments(96)[0].round()[[0, 40, 80]].tolist()
            [214.0, 213.0, 290.0]
        """
        x = self.secret_pair.energy_wh
        means = np.array([self.secret_pair.away @ x, self.secret_pair.home @ x])
        squares = np.array([self.secret_pair.away @ x**2, self.secret_pair.home @ x**2])
        model = OccupancyModel(groups=(self.models[0],))
        home = occupancy_probability(model, (_BURN_IN_DAYS + 1) * intervals)[-intervals:, 0]
        mean = means[0] + (means[1] - means[0]) * home
        variance = squares[0] + (squares[1] - squares[0]) * home - mean**2
        return mean, variance

    def __repr__(self) -> str:
        households = f"{self.count:,} household{'' if self.count == 1 else 's'}"
        return f"HouseholdKind({self.name}: {households}, {-self.export_bound_wh:,} to {self.bound_wh:,} Wh)"


def sum_consumption_moments(kinds: Sequence[HouseholdKind], intervals: int) -> FloatArray:
    """Return mean and variance of the demand of all households [Wh and Wh^2, interval of the day]."""
    total = np.zeros((2, intervals))
    for kind in kinds:
        total += kind.count * np.array(kind.consumption_moments(intervals))
    return total


def forecast_from_occupancy(kinds: Sequence[HouseholdKind], clock: LocalClock) -> PublicForecast:
    """Return what the occupancy models expect of a household, the same every day."""
    day = len(kinds[0].public)
    mean_wh = sum_consumption_moments(kinds, day)[0] / sum(kind.count for kind in kinds)
    local_wh = np.roll(mean_wh, clock.slot_shifts(day)[0])
    made = forecast_from_day(local_wh, source="the occupancy models of the zone file", time_zone=clock.name)
    return PublicForecast.from_document(made.to_document())  # rounded, as in a plan


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
    """A tariff zone: its tariff, its households and its promises. Everything in it is public.

    `parse_zone` reads one from a zone file, `from_kinds` makes one in Python.

    Attributes:
        name: Name of the zone.
        currency: Currency of the prices, such as EUR.
        intervals_per_day: Number of intervals of a day; 96 are quarter hours.
        curve: Rate curve, prices in money/kWh.
        kinds: Kinds of households, each a `HouseholdKind`.
        promises: What the operator promises.
        distribution: Distribution of the noise; None: the one that needs least noise.
        predicted: Public forecast by which prices are made for the interval that pays; None: a price is made from the
            last release.
        clock: Local time of the hours in the zone file. Intervals of the day are those of UTC.
        learned: The occupancy models that were learned from a consented sample, and what that spent.
        source_text: The zone file, so that a reader can prove the plan again; empty for a zone made in Python, whose
            plan cannot be written to a file.

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

    @classmethod
    def from_kinds(
        cls,
        name: str,
        kinds: Sequence[HouseholdKind],
        *,
        currency: str,
        curve: RateCurve,
        promises: Sequence[str],
        time_zone: str = "UTC",
        distribution: NoiseDistribution | None = None,
        predict_prices: bool = False,
        source_text: str = "",
    ) -> Zone:
        """Return a zone that is described in Python, without a zone file.

        Args:
            name: Name of the zone.
            kinds: Kinds of households. Their models have as many intervals a day as the zone.
            currency: Currency of the prices, such as EUR.
            curve: Rate curve, prices in money/kWh.
            promises: Promises as in a zone file, such as "any 24 h: epsilon 1, delta 1e-6".
            time_zone: Name of the time zone whose clocks the households live by, such as Europe/Zurich.
            distribution: Distribution of the noise; None: the one that needs least noise.
            predict_prices: Whether prices are predicted for the interval that pays, from the occupancy models.
            source_text: The zone file that says the same, if there is one: it is part of a plan.

        Returns:
            The zone.

        Raises:
            MurmurateError: The name cannot be part of an address.
            MeterError: There is no kind of household, or a day has the wrong number of intervals.
            PrivacyError: There is no promise, or it cannot be read.
            ModelError: There is no such time zone.

        Example:
            >>> import murmurate as mm
            >>> curve = mm.RateCurve.affine(alpha="0.0002", beta="0.08", tick="0.00001")
            >>> kinds = mm.parse_zone(mm.EXAMPLE_ZONE_FILE).kinds
            >>> mm.Zone.from_kinds("hill", kinds, currency="EUR", curve=curve, promises=["interval: 0.5"])
            Zone(hill: 801 households of 2 kinds, 96 intervals a day; interval: 0.5)
        """
        day = len(kinds[0].public) if kinds else QUARTER_HOURS_PER_DAY
        clock = local_clock(time_zone)
        return cls(
            name=check_zone_name(name),
            currency=currency,
            intervals_per_day=day,
            curve=curve,
            kinds=tuple(kinds),
            promises=tuple(parse_promise(text, day) for text in promises),
            distribution=distribution,
            predicted=PredictedDemand(forecast_from_occupancy(kinds, clock)) if predict_prices and kinds else None,
            clock=clock,
            source_text=source_text,
        )

    def __repr__(self) -> str:
        kinds = f"{len(self.kinds)} kind{'' if len(self.kinds) == 1 else 's'}"
        promises = "; ".join(map(str, self.promises))
        households = f"{self.household_count:,} household{'' if self.household_count == 1 else 's'}"
        return f"Zone({self.name}: {households} of {kinds}, {self.intervals_per_day} intervals a day; {promises})"

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
