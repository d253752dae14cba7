"""What a zone has lived through: which plan was in force in each interval, and which releases cost something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from murmurate.curator.plan import Plan
from murmurate.curator.zone import HouseholdKind
from murmurate.errors import PrivacyError
from murmurate.quantities import BoolArray, IntArray

_MAX_PATHS = 200

Path = tuple[HouseholdKind, ...]  # what one household is under each plan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class History:
    """The last intervals of a zone, the newest last. Everything in it is public."""

    plans: tuple[Plan, ...]  # in the order of their first use
    first: int  # number of the first interval
    in_force: IntArray  # [interval] position in `plans`
    measured: BoolArray  # [interval] whether its release cost something
    complete: bool  # whether nothing was released before `first`

    @classmethod
    def of(cls, releases: Sequence[tuple[Plan, bool]], *, first: int, complete: bool) -> History:
        """From the plan of each interval, and whether its release cost something."""
        plans = tuple(dict.fromkeys(plan for plan, _ in releases))
        place = {plan: number for number, plan in enumerate(plans)}
        in_force = np.array([place[plan] for plan, _ in releases], np.int64)
        measured = np.array([cost for _, cost in releases], np.bool_)
        return cls(plans=plans, first=first, in_force=in_force, measured=measured, complete=complete)

    def __len__(self) -> int:
        return len(self.in_force)

    @property
    def end(self) -> int:
        """Number of the first interval after it."""
        return self.first + len(self)

    def last(self, intervals: int) -> History:
        """The newest so many intervals."""
        cut = max(0, len(self) - intervals)
        return History(
            plans=self.plans,
            first=self.first + cut,
            in_force=self.in_force[cut:],
            measured=self.measured[cut:],
            complete=self.complete and cut == 0,
        )


def paths(plans: Sequence[Plan]) -> Iterator[Path]:
    """Every way in which one household may be described by these plans, one after the other.

    Names of kinds decide nothing. A household that is described alike under two plans stays what it was; a kind that
    the next plan does not have may become any of its kinds. What is public always stays so.
    """
    found: list[Path] = [(kind,) for kind in plans[0].zone.kinds]
    for before, after in pairwise(plans):
        pairs = set(_pairs(before.zone.kinds, after.zone.kinds))
        found = [(*path, kind) for path, kind in product(found, after.zone.kinds) if (path[-1], kind) in pairs]
        if len(found) > _MAX_PATHS:
            raise PrivacyError("households", f"{len(found)} ways", "are too many kinds in too many plans to compare")
    yield from found


def _pairs(before: Path, after: Path) -> Iterator[tuple[HouseholdKind, HouseholdKind]]:
    same = {(one, other) for one, other in product(before, after) if alike(one, other)}
    kept, met = {one for one, _ in same}, {other for _, other in same}
    for one, other in product(before, after):
        if (one, other) in same or ((one not in kept or other not in met) and one.always_public == other.always_public):
            yield one, other


def alike(one: HouseholdKind, other: HouseholdKind) -> bool:
    """The same secret: bound, laws, habits and public hours. How many there are, and the name, do not matter."""
    if one.public != other.public or len(one.models) != len(other.models):
        return False
    arrays = [(one.secret.away, other.secret.away), (one.secret.home, other.secret.home)]
    same = all(np.array_equal(left, right) for left, right in arrays)
    return same and all(
        np.array_equal(mine.transition[mine.period], yours.transition[yours.period])
        for mine, yours in zip(one.models, other.models, strict=True)
    )
