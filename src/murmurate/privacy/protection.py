"""Who needs protection when (kappa), as a public schedule known before the first reading.

A house needs protection in interval t under model theta iff two states of positive prior differ in it alone (paper,
Algorithm 1, lines 5-7). Noise of full support never makes a possible state impossible, so the possible states are those
reachable on the zero pattern of the model: Booleans, no belief, no published rate (proof: `protection.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import count, islice
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.household.occupancy import ModelClass
from murmurate.privacy.reachable import Layout, Reachable
from murmurate.quantities import BoolArray, IntArray, integers, refuse_where

_BLOCK = 2**15


class Rule(Enum):
    """Whom a schedule protects."""

    EVERYONE = "everyone"
    EXCEPT_PUBLIC = "except-public"  # everyone but premises while their schedule is public
    PAPER = "paper"  # Algorithm 1 as printed: kappa, and nothing where kappa is empty


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublicSchedule:
    """Premises whose occupancy anybody may know, and when: a shop's opening hours, a school's holidays, a vacant lot.

    >>> PublicSchedule.always([3]).known_at(17).tolist()
    [True]
    """

    premise: IntArray  # [premise] household numbers
    known: BoolArray  # [interval of the day, premise]

    @classmethod
    def always(cls, premise: Any) -> PublicSchedule:
        premises = integers(premise, "premise", PrivacyError)
        return cls(premise=premises, known=np.ones((1, len(premises)), np.bool_))

    def __post_init__(self) -> None:
        if self.known.dtype != np.bool_:
            raise PrivacyError("known", self.known.dtype, "must be True or False for each interval and premise")
        if len(np.unique(self.premise)) != len(self.premise):
            raise PrivacyError("premise", self.premise.tolist(), "must be declared once each")
        if self.known.ndim != 2 or self.known.shape[1:] != self.premise.shape or not len(self.known):
            raise PrivacyError("known", self.known.shape, f"must be shaped (intervals, {len(self.premise)} premises)")
        refuse_where(self.premise < 0, "premise", self.premise, "must be a household number", PrivacyError)

    def known_at(self, interval: int) -> BoolArray:
        row: BoolArray = self.known[interval % len(self.known)]
        return row


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """A rule, and the least sensitivity any interval is given [Wh].

    Without a `floor_wh` of its own, a policy takes the smallest bound of the zone, so that an empty kappa still hides
    the smallest household. The paper's rule alone has floor 0, and publishes the exact demand where kappa is empty.
    """

    rule: Rule = Rule.EVERYONE
    public: PublicSchedule | None = None
    floor_wh: int | None = None

    def __post_init__(self) -> None:
        if (self.public is None) == (self.rule is Rule.EXCEPT_PUBLIC):
            raise PrivacyError(
                "public", self.public, "a public schedule goes with the rule except-public, and only there"
            )
        least = 0 if self.rule is Rule.PAPER else 1
        if self.floor_wh is not None and self.floor_wh < least:
            raise PrivacyError(
                "floor_wh", self.floor_wh, f"must be at least {least} Wh under the rule {self.rule.value}"
            )

    def floor(self, bound_wh: IntArray) -> int:
        """The least sensitivity of an interval in a zone with these bounds [Wh]."""
        if self.floor_wh is not None:
            return self.floor_wh
        return 0 if self.rule is Rule.PAPER else int(bound_wh.min())


def kappa(model_class: ModelClass) -> Iterator[BoolArray]:
    """kappa^t, the union over all models: `protected` [household] for interval 0, 1, 2, .. without end.

    >>> from murmurate.household.occupancy import Chains, OccupancyModel
    >>> home_at_first = Chains.independent(initial=[1.0], arrive=[[0.0]], leave=[[0.1]])
    >>> theta = ModelClass(models=(OccupancyModel(groups=(home_at_first,)),))
    >>> [protected.tolist() for protected in islice(kappa(theta), 3)]
    [[False], [True], [True]]
    """
    layouts: dict[object, tuple[Layout, list[Reachable]]] = {}
    for chains in (chains for model in model_class.models for chains in model.groups):
        key = Layout.key(chains)
        if key not in layouts:
            layouts[key] = Layout.of(chains), []
        layouts[key][1].append(Reachable.at_start(chains))
    for interval in count(1):
        protected = np.zeros(model_class.households, np.bool_)
        for layout, reachable in layouts.values():
            layout.mark(reachable, protected)
            reachable[:] = (chains.enter(interval) for chains in reachable)
        yield protected


def protected_households(policy: Policy, households: int, model_class: ModelClass | None = None) -> Iterator[BoolArray]:
    """Whom `policy` protects in interval 0, 1, 2, .. without end [household]. Only the paper's rule asks a model."""
    if policy.public is not None:
        stranger = policy.public.premise >= households
        refuse_where(stranger, "premise", policy.public.premise, f"must be below {households}", PrivacyError)
    if policy.rule is not Rule.PAPER:
        return _declared(policy.public, households)
    if model_class is None or model_class.households != households:
        found = None if model_class is None else model_class.households
        raise PrivacyError("model_class", found, f"the paper's rule needs a model class of {households} households")
    return kappa(model_class)


def _declared(public: PublicSchedule | None, households: int) -> Iterator[BoolArray]:
    for interval in count():
        protected = np.ones(households, np.bool_)
        if public is not None:
            protected[public.premise] = ~public.known_at(interval)
        yield protected


def sensitivity(protected: BoolArray, bound_wh: IntArray, floor_wh: int) -> int:
    """lambda/alpha = max of u_h over protected h [Wh], at least `floor_wh` (Algorithm 1, line 8).

    >>> sensitivity(np.array([True, False]), np.array([3000, 9000]), 1)
    3000
    """
    blocks = range(0, len(bound_wh), _BLOCK)  # small enough that the product never leaves the cache
    largest = (int((bound_wh[a : a + _BLOCK] * protected[a : a + _BLOCK]).max()) for a in blocks)
    return max([floor_wh, *largest])


def sensitivity_schedule(
    policy: Policy, bound_wh: IntArray, horizon: int, model_class: ModelClass | None = None
) -> IntArray:
    """`sensitivity_wh` [interval] of the first `horizon` intervals: public, and fixed before the first reading."""
    bounds = integers(bound_wh, "bound_wh", PrivacyError)
    if not len(bounds):
        raise PrivacyError("bound_wh", "empty", "must have one entry per household, at least one")
    refuse_where(bounds < 1, "bound_wh", bounds, "must be at least 1 Wh", PrivacyError)
    floor_wh = policy.floor(bounds)
    steps = islice(protected_households(policy, len(bounds), model_class), horizon)
    return np.array([sensitivity(protected, bounds, floor_wh) for protected in steps], np.int64)
