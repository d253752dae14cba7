"""Check a change of plan: the promises of each plan must hold under the actual sequence of plans.

Each plan is proven alone, as if it were always in force. Prices after a change also leak about moments before it, and
windows may contain intervals of both plans. So a change needs another proof, over all plans that still matter:

- every moment under a plan keeps the leakage that this plan promises, given all actual releases before and after it;
- every window across the change keeps each of its promises, or the weaker promise of the same length and delta that
  another plan in the window makes.

A household is matched between plans by its description, never by the name of its kind (`plan_history.kind_paths`).
"""

from __future__ import annotations

from collections.abc import Sequence

from murmurate.errors import PrivacyError
from murmurate.planning.plan import Plan
from murmurate.planning.plan_change_moments import check_moments_across_change
from murmurate.planning.plan_change_windows import check_windows_across_change
from murmurate.planning.plan_history import PlanHistory, kind_paths
from murmurate.privacy.leakage_over_time import mixing_time_days
from murmurate.privacy.promise import MomentPromise, WindowPromise

_MEMORY_MULTIPLE = (
    4  # mixing times: two that are checked, and two before them so that earlier releases no longer matter
)


def lookback_intervals(plans: Sequence[Plan]) -> int:
    """Return how many intervals before a change the check must include."""
    windows = [p.intervals for plan in plans for p in plan.zone.promises if isinstance(p, WindowPromise)]
    days = [mixing_time_days(model) for plan in plans for kind in plan.zone.private_kinds for model in kind.models]
    moments = any(isinstance(promise, MomentPromise) for plan in plans for promise in plan.zone.promises)
    memory = _MEMORY_MULTIPLE * max(days, default=0) * plans[0].zone.intervals_per_day if moments else 0
    return max([*windows, memory, 1])


def check_plan_change(history: PlanHistory, after: Plan) -> None:
    """Raise PrivacyError unless every window and every moment across a change to `after` keeps its promise.

    `after` is in force from the interval after the end of `history` on, for ever.
    """
    if not len(history):
        return
    before = history.plans[int(history.plan_index[-1])]
    if before.zone.intervals_per_day != after.zone.intervals_per_day:
        allowed = f"must stay {before.zone.intervals_per_day}: no proof covers windows with intervals of two lengths"
        raise PrivacyError("intervals_per_day", after.zone.intervals_per_day, allowed)
    _check_public_households(before, after)
    recent = history.last_intervals(lookback_intervals([*history.plans, after]))
    plans = [recent.plans[number] for number in dict.fromkeys(recent.plan_index.tolist())]
    for path in kind_paths([*plans, after]):
        kind_of = dict(zip([*plans, after], path, strict=True))
        check_windows_across_change(recent, after, kind_of)
        check_moments_across_change(recent, after, kind_of)


def _check_public_households(before: Plan, after: Plan) -> None:
    """Raise PrivacyError if a moment is promised and the number of public households changes in any interval.

    A household that is public on one side of the change publishes its occupancy there. A moment promise on the other
    side does not cover that.
    """
    promises = (*before.zone.promises, *after.zone.promises)
    if any(isinstance(promise, MomentPromise) for promise in promises) and _public_household_counts(
        before
    ) != _public_household_counts(after):
        allowed = "must keep their number and hours if a moment is promised"
        raise PrivacyError("public households", "changed", allowed)


def _public_household_counts(plan: Plan) -> list[int]:
    """Return the number of public households in each interval of the day."""
    kinds = plan.zone.kinds
    return [sum(kind.count for kind in kinds if kind.public[t]) for t in range(plan.zone.intervals_per_day)]
