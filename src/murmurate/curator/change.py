"""From one plan to the next: what holds for the stretches of time that see both.

Each plan is proven for itself. A window that begins under one and ends under the other has intervals of both, so it is
proven under the *quieter* of the two scales at every interval of the day: real noise is never less, and more Laplace
noise is less Laplace noise with something independent added (the ratio of the two characteristic functions is that of a
mixture of 0 and Laplace noise), so whatever holds for the quieter one holds, window by window and moment by moment. For
Gaussian noise the same follows from curves that fall as the scale grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from murmurate.curator.plan import Plan, prove
from murmurate.curator.zone import HouseholdKind
from murmurate.errors import PrivacyError
from murmurate.privacy.promise import MomentPromise, WindowPromise


def refuse_change(before: Plan, after: Plan, quiet: int = 0) -> None:
    """Raise PrivacyError unless whatever straddles the change keeps all promises of the one or all of the other.

    `quiet` is the number of intervals right before the change that cost nothing (forecast or withheld). Where it is as
    long as the longest window no window straddles, and any plan may follow, unless a moment is promised: a moment is
    protected against everything before and after it. Households are told apart by the name of their kind: one that
    changes its kind is a new household.
    """
    both = [*before.zone.promises, *after.zone.promises]
    windows = [promise.intervals for promise in both if isinstance(promise, WindowPromise)]
    moments = any(isinstance(promise, MomentPromise) for promise in both)
    if before.zone.intervals_per_day != after.zone.intervals_per_day:
        allowed = f"must stay {before.zone.intervals_per_day}; open a new chain for another clock"
        raise PrivacyError("intervals_per_day", after.zone.intervals_per_day, allowed)
    if not moments and quiet + 1 >= max(windows, default=1):
        return
    wait = "without moments" if moments else f"after {max(windows) - 1} intervals that cost nothing"
    otherwise = f"must stay as it was; another may follow only {wait}"
    if before.law is not after.law:
        raise PrivacyError("noise", after.law.value, otherwise)
    if before.zone.calibration is not after.zone.calibration or before.zone.eta != after.zone.eta:
        raise PrivacyError("calibration", after.zone.calibration.value, otherwise)
    common = _common(before, after, otherwise)
    if common and not _kept(before, after, common):
        allowed = f"must keep both promises with the quieter noise of either plan; another may follow only {wait}"
        raise PrivacyError("plan", f"{after.zone.name!r}", allowed)


class Used(NamedTuple):
    """A plan that releases were made under, and how many intervals ago the last of them cost something."""

    plan: Plan
    quiet: int


def refuse_straddling(used: Sequence[Used], after: Plan) -> None:
    """Raise PrivacyError unless every stretch of time across a change to `after` keeps its promise.

    Beside each earlier plan on its own all that one window may still see are taken together, as one
    plan with the quietest noise of any of them at each interval of the day. `used` is in the order of use.
    """
    for plan, quiet in used:
        refuse_change(plan, after, quiet)
    promises = [promise for plan in (*(plan for plan, _ in used), after) for promise in plan.zone.promises]
    longest = max((promise.intervals for promise in promises if isinstance(promise, WindowPromise)), default=1)
    seen = [(plan, quiet) for plan, quiet in used if quiet + 1 < longest]
    if len(seen) > 1:
        quietest = np.minimum.reduce([plan.scale_wh for plan, _ in seen])
        refuse_change(replace(seen[-1][0], scale_wh=quietest), after, min(quiet for _, quiet in seen))


def _common(before: Plan, after: Plan, otherwise: str) -> tuple[HouseholdKind, ...]:
    """The households that see both plans, which must be described alike in both."""
    were = {kind.name: kind for kind in before.zone.kinds}
    common = tuple(kind for kind in after.zone.kinds if kind.name in were)
    for kind in common:
        if not _alike(were[kind.name], kind):
            raise PrivacyError("households", f"{kind.name!r}", otherwise)
    return common


def _alike(one: HouseholdKind, other: HouseholdKind) -> bool:
    """The same secret: bound, laws, habits and public hours. How many there are does not matter."""
    if one.public != other.public or len(one.models) != len(other.models):
        return False
    arrays: list[tuple[Any, Any]] = [(one.secret.away, other.secret.away), (one.secret.home, other.secret.home)]
    for mine, yours in zip(one.models, other.models, strict=True):
        arrays += [(mine.initial, yours.initial), (mine.transition, yours.transition), (mine.period, yours.period)]
    return all(np.array_equal(left, right) for left, right in arrays)


def _kept(before: Plan, after: Plan, common: tuple[HouseholdKind, ...]) -> bool:
    quieter = np.minimum(before.scale_wh, after.scale_wh)
    for promises in (before.zone.promises, after.zone.promises):
        try:
            prove(replace(after.zone, kinds=common, promises=promises), after.law, quieter)
        except PrivacyError:
            continue
        return True
    return False
