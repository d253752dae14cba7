"""A zone as its operator describes it: households, tariff, promise. Everything here is public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmurate.errors import MeterError, PrivacyError
from murmurate.household.occupancy import Chains, OccupancyModel, occupancy_probability
from murmurate.pricing.forecast import Forecast
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.divergence import Secret
from murmurate.privacy.leakage import begun_periodically
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import Promise
from murmurate.quantities import FloatArray
from murmurate.time_zones import UTC_CLOCK, LocalClock

_SETTLING_DAYS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class HouseholdKind:
    """Households that are alike: so many, with one bound, two laws of consumption and the models of their day.

    Habits are periodic: whatever `initial` a model is given, it is replaced by the periodic prior, so that a chain may
    be opened at any interval of the day.
    """

    name: str
    count: int
    secret: Secret  # laws of consumption away and home on 0, .., bound
    models: tuple[Chains, ...]  # the habits that one such household may have; the calendar is that of standard time
    public: tuple[bool, ...]  # [interval of the day] whether anybody may know the occupancy, whatever the clocks show
    meters: str = ""  # the file that count and bound were read from, if they were

    def __post_init__(self) -> None:
        if self.count < 1:
            raise MeterError("count", self.count, "must be at least 1 household")
        object.__setattr__(self, "models", tuple(begun_periodically(model) for model in self.models))

    @property
    def bound_wh(self) -> int:
        return self.secret.bound_wh

    @property
    def always_public(self) -> bool:
        return all(self.public)

    def moments(self, intervals: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mean, variance and covariance with the interval before of one household, under the first model [Wh, Wh^2]."""
        x = np.arange(self.bound_wh + 1, dtype=np.float64)
        means = np.array([self.secret.away @ x, self.secret.home @ x])
        squares = np.array([self.secret.away @ x**2, self.secret.home @ x**2])
        model = OccupancyModel(groups=(self.models[0],))
        home = occupancy_probability(model, (_SETTLING_DAYS + 1) * intervals)[:, 0]
        stays = np.array([self.models[0].at(t)[1, 1, 0] for t in range(intervals)])
        now, before = home[-intervals:], home[-intervals - 1 : -1]
        mean = means[0] + (means[1] - means[0]) * now
        variance = squares[0] + (squares[1] - squares[0]) * now - mean**2
        covariance = (means[1] - means[0]) ** 2 * before * (stays - now)
        return mean, variance, covariance


@dataclass(frozen=True, kw_only=True, eq=False)
class Zone:
    """What a plan is made from."""

    name: str
    currency: str
    intervals_per_day: int
    curve: RateCurve
    kinds: tuple[HouseholdKind, ...]
    promises: tuple[Promise, ...]
    calibration: Calibration = Calibration.RANGE
    eta: float = 0.0
    law: NoiseLaw | None = None  # none: whichever needs less noise
    profile_wh: tuple[int, ...] | None = None  # none: expected from the first model of each kind
    filtered: bool = False  # whether prices are made from the filtered rather than the raw release
    tested: bool = False  # whether a consented sample passed the law test; `exact` and `robust` alone need it
    clock: LocalClock = UTC_CLOCK  # what the hours of the zone file are read on; intervals of the day are those of UTC
    uneven: bool = False  # whether the noise of a moment promise may differ by the time of day
    source: str = ""  # the zone file it was read from, so that anybody can prove the plan again

    def __post_init__(self) -> None:
        if not self.kinds:
            raise MeterError("households", "empty", "must have at least one kind of household")
        if not self.promises:
            raise PrivacyError("promise", "empty", "must promise something, or there is nothing to plan")
        for kind in self.kinds:
            lengths = {len(kind.public), *(len(model.period) for model in kind.models)}
            if lengths != {self.intervals_per_day}:
                allowed = f"must have {self.intervals_per_day} intervals a day, as the zone has"
                raise MeterError(f"day of {kind.name}", sorted(lengths), allowed)
        if self.profile_wh is not None and len(self.profile_wh) != self.intervals_per_day:
            allowed = f"must have one entry for each of the {self.intervals_per_day} intervals of the day"
            raise MeterError("profile", len(self.profile_wh), allowed)

    @property
    def households(self) -> int:
        return sum(kind.count for kind in self.kinds)

    @cached_property
    def protected(self) -> tuple[tuple[HouseholdKind, ...], ...]:
        """[interval of the day] the kinds that need protection; where none does, the one with the smallest bound."""
        smallest = min(self.kinds, key=lambda kind: kind.bound_wh)
        days = [tuple(kind for kind in self.kinds if not kind.public[t]) for t in range(self.intervals_per_day)]
        return tuple(kinds or (smallest,) for kinds in days)

    def is_protected(self, kind: HouseholdKind) -> tuple[bool, ...]:
        """[interval of the day] whether the noise is measured by this kind, among others."""
        return tuple(kind in kinds for kinds in self.protected)

    @property
    def private_kinds(self) -> tuple[HouseholdKind, ...]:
        """The kinds that have something to hide at some time of the day."""
        return tuple(kind for kind in self.kinds if not kind.always_public)

    @property
    def slot_shifts(self) -> tuple[int, ...]:
        """How many intervals the clocks are ahead of standard time."""
        shifts = self.clock.slot_shifts(self.intervals_per_day)
        return tuple(shift - shifts[0] for shift in shifts)

    @property
    def slot_changes(self) -> tuple[tuple[int, int, int], ...]:
        """(first interval of the day after a change of the clocks, shift before, shift after)"""
        standard = self.clock.slot_shifts(self.intervals_per_day)[0]
        changes = self.clock.slot_changes(self.intervals_per_day)
        return tuple((at, before - standard, after - standard) for at, before, after in changes)

    @cached_property
    def forecast(self) -> Forecast:
        """What anybody can expect: the public profile, and how the true demand strays from it."""
        day = self.intervals_per_day
        total = np.zeros((3, day))
        for kind in self.kinds:
            total += kind.count * np.array(kind.moments(day))
        mean, variance, covariance = total
        profile = mean if self.profile_wh is None else np.array(self.profile_wh, np.float64)
        carry = np.clip(covariance / np.maximum(np.roll(variance, 1), 1e-9), 0.0, 0.999)
        return Forecast(profile_wh=profile, variance=variance, carry=carry)
