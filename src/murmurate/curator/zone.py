"""A zone as its operator describes it: households, tariff, promise. Everything here is public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from murmurate.errors import MeterError, PrivacyError
from murmurate.household.independence import IndependenceTest
from murmurate.household.occupancy import Chains, ModelClass, OccupancyModel, occupancy_probability
from murmurate.pricing.forecast import Forecast
from murmurate.pricing.rate import RateCurve
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.divergence import Secret
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import Promise
from murmurate.quantities import FloatArray

_SETTLING_DAYS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class HouseholdKind:
    """Households that are alike: so many, with one bound, two laws of consumption and the models of their day."""

    name: str
    count: int
    secret: Secret  # laws of consumption away and home on 0, .., bound
    models: tuple[Chains, ...]  # the occupancy of one such household under each model of the class
    public: tuple[bool, ...]  # [interval of the day] whether anybody may know the occupancy
    meters: str = ""  # the file that count and bound were read from, if they were

    def __post_init__(self) -> None:
        if self.count < 1:
            raise MeterError("count", self.count, "must be at least 1 household")

    @property
    def bound_wh(self) -> int:
        return self.secret.bound_wh

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
    independence: IndependenceTest | None = None
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

    @cached_property
    def secrets_in_time(self) -> tuple[tuple[tuple[HouseholdKind, ...], ModelClass], ...]:
        """One household of each kind under each of its models, those with a common calendar side by side as columns.

        Kinds whose occupancy is always public have no secret and are left out.
        """
        columns: dict[tuple[int, ...], list[tuple[HouseholdKind, Chains]]] = {}
        for kind in self.kinds:
            for model in kind.models:
                if not all(kind.public):
                    columns.setdefault(tuple(model.period), []).append((kind, model))
        return tuple(
            (tuple(kind for kind, _ in found), _side_by_side([model for _, model in found]))
            for found in columns.values()
        )

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


def _side_by_side(models: list[Chains]) -> ModelClass:
    """Chains of one household each, with one calendar, as the columns of one."""
    joined = Chains(
        members=np.arange(len(models))[None, :],
        initial=np.concatenate([model.initial for model in models], axis=-1),
        transition=np.concatenate([model.transition for model in models], axis=-1),
        period=models[0].period,
        kind=np.arange(len(models)),
    )
    return ModelClass(models=(OccupancyModel(groups=(joined,)),))
