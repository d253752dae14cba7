"""The history of a zone: the plan in force in each interval, and whether its release cost privacy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.plan import Plan
from murmurate.planning.zone import HouseholdKind
from murmurate.units import BoolArray, IntArray

_MAX_PATHS = 200

KindPath = tuple[HouseholdKind, ...]  # the kind of one household under each plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanHistory:
    """The last intervals of a zone, oldest first. All of it is public."""

    plans: tuple[Plan, ...]  # in the order of their first use
    first: int  # number of the first interval
    plan_index: IntArray  # [interval] position in `plans`
    measured: BoolArray  # [interval] whether its release cost privacy
    complete: bool  # whether nothing was released before `first`

    @classmethod
    def from_releases(cls, releases: Sequence[tuple[Plan, bool]], *, first: int, complete: bool) -> PlanHistory:
        """Build the history from the plan of each interval and whether its release cost privacy."""
        plans = tuple(dict.fromkeys(plan for plan, _ in releases))
        position = {plan: number for number, plan in enumerate(plans)}
        in_force = np.array([position[plan] for plan, _ in releases], np.int64)
        measured = np.array([cost for _, cost in releases], np.bool_)
        return cls(plans=plans, first=first, plan_index=in_force, measured=measured, complete=complete)

    def __len__(self) -> int:
        return len(self.plan_index)

    @property
    def end(self) -> int:
        """The number of the first interval after the history."""
        return self.first + len(self)

    def last_intervals(self, intervals: int) -> PlanHistory:
        """Return the history of the newest `intervals` intervals."""
        cut = max(0, len(self) - intervals)
        return PlanHistory(
            plans=self.plans,
            first=self.first + cut,
            plan_index=self.plan_index[cut:],
            measured=self.measured[cut:],
            complete=self.complete and cut == 0,
        )


def kind_paths(plans: Sequence[Plan]) -> Iterator[KindPath]:
    """Yield every sequence of kinds that one household may have under these plans, in order.

    The names of the kinds are ignored. A household keeps its kind if the next plan has the same kind. A kind that the
    next plan does not have may become any of its kinds. A household that is always public stays always public.
    """
    paths: list[KindPath] = [(kind,) for kind in plans[0].zone.kinds]
    for before, after in pairwise(plans):
        pairs = set(_matching_kinds(before.zone.kinds, after.zone.kinds))
        paths = [(*path, kind) for path, kind in product(paths, after.zone.kinds) if (path[-1], kind) in pairs]
        if len(paths) > _MAX_PATHS:
            raise PrivacyError("households", f"{len(paths)} paths", f"must be at most {_MAX_PATHS} across these plans")
    yield from paths


def _matching_kinds(before: KindPath, after: KindPath) -> Iterator[tuple[HouseholdKind, HouseholdKind]]:
    same = {(old, new) for old, new in product(before, after) if have_same_secret(old, new)}
    matched_old, matched_new = {old for old, _ in same}, {new for _, new in same}
    for old, new in product(before, after):
        unmatched = old not in matched_old or new not in matched_new
        if (old, new) in same or (unmatched and old.always_public == new.always_public):
            yield old, new


def have_same_secret(first: HouseholdKind, second: HouseholdKind) -> bool:
    """Whether two kinds have the same bound, habits and public hours. Count and name are ignored."""
    facts = [(kind.bound_wh, kind.public, len(kind.models)) for kind in (first, second)]
    return facts[0] == facts[1] and all(
        np.array_equal(first_model.transition[first_model.period], second_model.transition[second_model.period])
        for first_model, second_model in zip(first.models, second.models, strict=True)
    )
