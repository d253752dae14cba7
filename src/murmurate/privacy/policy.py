"""The households that need protection in each interval (kappa). The schedule is public before the first reading.

A household needs protection in interval t under model theta iff two states of positive prior differ in it alone (paper,
Algorithm 1, lines 5-7). Noise of full support never makes a possible state impossible, so the possible states are those
reachable on the zero pattern of the model: Booleans, no belief, no published rate (proof: `policy.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import ModelClass, OccupancyChains
from murmurate.units import BoolArray, IntArray, as_int64_array, raise_where

_CACHE_BLOCK_ELEMENTS = 2**15
BitPlanes = NDArray[np.uint8]  # last axis: kinds, one bit each


def reachable_states(chains: OccupancyChains) -> Iterator[BitPlanes]:
    """Yield mu^t of each kind of group, the support of P A^t, for interval 0, 1, 2, .. [state, byte].

    It depends on exact zeros, never on a belief.

    >>> chains = OccupancyChains.independent(initial=[0.0, 0.0], arrive=[[0.1, 0.0]], leave=[[0.2, 0.3]])
    >>> next(islice(reachable_states(chains), 1, None)).tolist()  # away: both kinds; home: the first one
    [[192], [128]]
    """
    possible = np.packbits(chains.initial > 0, axis=-1)
    transition = np.stack([np.packbits(row > 0, axis=-1) for row in chains.transition])
    for interval in count(1):
        yield possible
        step = transition[chains.period[interval % len(chains.period)]]
        reached = possible[0] & step[0]
        for state, reaches in zip(possible[1:], step[1:], strict=True):
            reached |= state & reaches
        possible = reached


def exposed_members(possible: BitPlanes) -> BitPlanes:
    """Return the members that are the only difference of two possible states (nu, then kappa) [member, byte]."""
    states = range(len(possible))
    members = range(len(states).bit_length() - 1)
    without = [[state for state in states if not state >> member & 1] for member in members]
    return np.stack(
        [
            reduce(np.bitwise_or, (possible[s] & possible[s | 1 << member] for s in without[member]))
            for member in members
        ]
    )


class HouseholdLayout:
    """The household numbers of some chains. Models with the same layout are united before the lookup."""

    def __init__(self, chains: OccupancyChains) -> None:
        self._members = tuple(_as_slice(households) for households in chains.members)  # [member]
        self._kind = _as_slice(chains.kind)  # [group]
        self._kinds = chains.initial.shape[-1]
        self.models: list[Iterator[BitPlanes]] = []  # reachable states

    @staticmethod
    def layout_key(chains: OccupancyChains) -> tuple[object, ...]:
        """Return a key that is equal for chains with the same arrays of households and kinds."""
        arrays = (chains.members, chains.kind)
        return chains.initial.shape[-1], *((a.__array_interface__["data"][0], a.shape, a.strides) for a in arrays)

    def mark_protected(self, protected: BoolArray) -> None:
        """Set `protected` [household] to True for each household that a model exposes in its next interval."""
        union = reduce(np.bitwise_or, (exposed_members(next(states)) for states in self.models))
        exposed = np.unpackbits(union, axis=-1, count=self._kinds).view(np.bool_)
        for households, kinds in zip(self._members, exposed, strict=True):
            protected[households] |= kinds[self._kind]


def _as_slice(indices: IntArray) -> IntArray | slice:
    """Return consecutive numbers as a slice, which NumPy reads without a copy."""
    if len(indices) and bool((np.diff(indices) == 1).all()):
        return slice(int(indices[0]), int(indices[-1]) + 1)
    return indices


class ProtectionRule(Enum):
    """The households that a policy protects.

    Attributes:
        EVERYONE: All households, always.
        EXCEPT_PUBLIC: All households, except premises while their occupancy is public.
        PAPER: Algorithm 1 as printed: the households in kappa, and none where kappa is empty.

    Example:
        >>> import murmurate as mm
        >>> mm.ProtectionRule("except-public")
        <ProtectionRule.EXCEPT_PUBLIC: 'except-public'>
    """

    EVERYONE = "everyone"
    EXCEPT_PUBLIC = "except-public"
    PAPER = "paper"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicSchedule:
    """Premises whose occupancy is public, and when: opening hours of a shop, holidays of a school, a vacant lot.

    Attributes:
        premise: Numbers of the premises among the households, each once [premise].
        is_public: Whether the occupancy is public [interval of the day, premise]. Days repeat.

    Raises:
        PrivacyError: The arrays do not fit each other, or a number is negative or occurs twice.

    Example:
        >>> import murmurate as mm
        >>> mm.PublicSchedule.always_public([3]).public_at(17).tolist()
        [True]
    """

    premise: IntArray
    is_public: BoolArray

    @classmethod
    def always_public(cls, premise: Any) -> PublicSchedule:
        """Return the schedule of premises whose occupancy is always public.

        Args:
            premise: Numbers of the premises among the households, each once [premise].

        Returns:
            A schedule of one interval a day.

        Raises:
            PrivacyError: A number is negative, occurs twice or is not whole.

        Example:
            >>> import murmurate as mm
            >>> mm.PublicSchedule.always_public([2, 5]).is_public.tolist()
            [[True, True]]
        """
        premises = as_int64_array(premise, "premise", PrivacyError)
        return cls(premise=premises, is_public=np.ones((1, len(premises)), np.bool_))

    def __post_init__(self) -> None:
        if self.is_public.dtype != np.bool_:
            raise PrivacyError("known", self.is_public.dtype, "must be True or False for each interval and premise")
        if len(np.unique(self.premise)) != len(self.premise):
            raise PrivacyError("premise", self.premise.tolist(), "must be declared once each")
        if self.is_public.ndim != 2 or self.is_public.shape[1:] != self.premise.shape or not len(self.is_public):
            raise PrivacyError(
                "known", self.is_public.shape, f"must be shaped (intervals, {len(self.premise)} premises)"
            )
        raise_where(self.premise < 0, "premise", self.premise, "must be a household number", PrivacyError)

    def public_at(self, interval: int) -> BoolArray:
        """Return which premises are public in an interval.

        Args:
            interval: Number of the interval, from 0.

        Returns:
            Whether the occupancy is public [premise].

        Example:
            >>> import murmurate as mm
            >>> mm.PublicSchedule.always_public([2, 5]).public_at(96).tolist()
            [True, True]
        """
        row: BoolArray = self.is_public[interval % len(self.is_public)]
        return row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """Which households are protected, and the least sensitivity of any interval.

    Attributes:
        rule: Which households are protected.
        public_schedule: Premises whose occupancy is public, with the rule EXCEPT_PUBLIC and only there.
        floor_wh: Least sensitivity of any interval [Wh]. None means the smallest range of the zone, so that the
            smallest household is hidden even where no household needs protection; with the rule PAPER it means 0, and
            the exact demand is published where kappa is empty.

    Raises:
        PrivacyError: Rule and schedule do not fit each other, or the floor is too small for the rule.

    Example:
        >>> import murmurate as mm
        >>> fish_market = mm.PublicSchedule.always_public([2])
        >>> mm.Policy(rule=mm.ProtectionRule.EXCEPT_PUBLIC, public_schedule=fish_market).rule.value
        'except-public'
    """

    rule: ProtectionRule = ProtectionRule.EVERYONE
    public_schedule: PublicSchedule | None = None
    floor_wh: int | None = None

    def __post_init__(self) -> None:
        if (self.public_schedule is None) == (self.rule is ProtectionRule.EXCEPT_PUBLIC):
            raise PrivacyError(
                "public", self.public_schedule, "must be given with the rule except-public, and with no other rule"
            )
        min_floor_wh = 0 if self.rule is ProtectionRule.PAPER else 1
        if self.floor_wh is not None and self.floor_wh < min_floor_wh:
            raise PrivacyError(
                "floor_wh", self.floor_wh, f"must be at least {min_floor_wh} Wh under the rule {self.rule.value}"
            )

    def sensitivity_floor(self, range_wh: IntArray) -> int:
        """Return the least sensitivity of an interval in a zone.

        Args:
            range_wh: Ranges of the households' readings: bound_wh + export_bound_wh [Wh, household].

        Returns:
            The least sensitivity [Wh].

        Example:
            >>> import murmurate as mm
            >>> import numpy as np
            >>> mm.Policy().sensitivity_floor(np.array([3000, 9000]))
            3000
        """
        if self.floor_wh is not None:
            return self.floor_wh
        return 0 if self.rule is ProtectionRule.PAPER else int(range_wh.min())


def kappa(model_class: ModelClass) -> Iterator[BoolArray]:
    """Yield kappa^t, the union over all models, as `protected` [household] for interval 0, 1, 2, ..

    >>> from murmurate.household.occupancy import OccupancyChains, OccupancyModel
    >>> home_at_first = OccupancyChains.independent(initial=[1.0], arrive=[[0.0]], leave=[[0.1]])
    >>> theta = ModelClass(models=(OccupancyModel(groups=(home_at_first,)),))
    >>> [protected.tolist() for protected in islice(kappa(theta), 3)]
    [[False], [True], [True]]
    """
    layouts: dict[object, HouseholdLayout] = {}
    for chains in (chains for model in model_class.models for chains in model.groups):
        key = HouseholdLayout.layout_key(chains)
        if key not in layouts:
            layouts[key] = HouseholdLayout(chains)
        layouts[key].models.append(reachable_states(chains))
    while True:
        protected = np.zeros(model_class.households, np.bool_)
        for layout in layouts.values():
            layout.mark_protected(protected)
        yield protected


def protected_households(policy: Policy, households: int, model_class: ModelClass | None = None) -> Iterator[BoolArray]:
    """Yield the protected households in interval 0, 1, 2, .. [household]. Only the paper's rule needs a model."""
    if policy.public_schedule is not None:
        out_of_range = policy.public_schedule.premise >= households
        raise_where(
            out_of_range, "premise", policy.public_schedule.premise, f"must be below {households}", PrivacyError
        )
    if policy.rule is ProtectionRule.PAPER:
        if model_class is None or model_class.households != households:
            modelled = None if model_class is None else model_class.households
            allowed = f"the paper's rule needs a model class of {households} households"
            raise PrivacyError("model_class", modelled, allowed)
        return kappa(model_class)

    def protected_at(interval: int) -> BoolArray:
        protected = np.ones(households, np.bool_)
        if policy.public_schedule is not None:
            protected[policy.public_schedule.premise] = ~policy.public_schedule.public_at(interval)
        return protected

    return map(protected_at, count())


def interval_sensitivity(protected: BoolArray, range_wh: IntArray, floor_wh: int) -> int:
    """lambda/alpha = max of the ranges u_h over protected h [Wh], at least `floor_wh` (Algorithm 1, line 8).

    >>> interval_sensitivity(np.array([True, False]), np.array([3000, 9000]), 1)
    3000
    """
    blocks = range(0, len(range_wh), _CACHE_BLOCK_ELEMENTS)  # small enough for the product to fit in the cache
    largest = (
        int((range_wh[a : a + _CACHE_BLOCK_ELEMENTS] * protected[a : a + _CACHE_BLOCK_ELEMENTS]).max()) for a in blocks
    )
    return max([floor_wh, *largest])


def sensitivity_schedule(
    policy: Policy, bound_wh: IntArray, horizon: int, model_class: ModelClass | None = None, export_bound_wh: Any = 0
) -> IntArray:
    """Return the sensitivity of each interval: the largest range of a protected household (Algorithm 1, line 8).

    A reading counts from -export_bound_wh to bound_wh, so a household changes the demand by their sum at most. The
    schedule is public, and fixed before the first reading.

    Args:
        policy: Which households are protected.
        bound_wh: Bounds of the households, 1 or more [Wh, household].
        horizon: Number of intervals.
        model_class: The occupancy models that an adversary may hold; for the rule PAPER alone.
        export_bound_wh: The most that a household may feed in, 0 or more: one number, or [Wh, household].

    Returns:
        The sensitivity [Wh, interval].

    Raises:
        PrivacyError: There is no household, a bound is too small, a public premise does not exist, or the rule PAPER
            has no model class of as many households.

    Example:
        >>> import murmurate as mm
        >>> mm.sensitivity_schedule(mm.Policy(), [3000, 3000, 50_000], horizon=2).tolist()
        [50000, 50000]
        >>> mm.sensitivity_schedule(mm.Policy(), [3000, 3000], horizon=1, export_bound_wh=[0, 2500]).tolist()
        [5500]
    """
    bounds = as_int64_array(bound_wh, "bound_wh", PrivacyError)
    if not len(bounds):
        raise PrivacyError("bound_wh", "empty", "must have one entry per household, at least one")
    raise_where(bounds < 1, "bound_wh", bounds, "must be at least 1 Wh", PrivacyError)
    exports = np.broadcast_to(as_int64_array(export_bound_wh, "export_bound_wh", PrivacyError), bounds.shape)
    raise_where(exports < 0, "export_bound_wh", exports, "must be at least 0 Wh", PrivacyError)
    range_wh = bounds + exports
    floor_wh = policy.sensitivity_floor(range_wh)
    steps = islice(protected_households(policy, len(bounds), model_class), horizon)
    return np.array([interval_sensitivity(protected, range_wh, floor_wh) for protected in steps], np.int64)
