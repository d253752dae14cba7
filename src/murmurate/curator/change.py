"""From one plan to the next: what the promises of each are worth under the sequence that really happens.

Each plan is proven for itself, as if it had always been in force and always would be. Prices after a change speak about
moments before it, and windows lie across it. So a change is proven once more, over all plans whose memory reaches:

- every moment that was lived under a plan keeps the leakage which that plan promises, under what was really released
  before and after it;
- every window across the change keeps each of its promises, or the weaker one of the same length and delta that
  another plan in the window makes.

A household is followed through the plans by what they say of it, never by the name of its kind (`history.paths`).
"""

from __future__ import annotations

from collections.abc import Sequence

from murmurate.curator.change_moments import refuse_moments
from murmurate.curator.change_windows import refuse_windows
from murmurate.curator.history import History, paths
from murmurate.curator.plan import Plan
from murmurate.errors import PrivacyError
from murmurate.privacy.leakage_over_time import memory_days
from murmurate.privacy.promise import MomentPromise, WindowPromise

_STRETCHES = 4  # times the memory: two that are checked, and two before them to forget what is not looked at


def reach(plans: Sequence[Plan]) -> int:
    """How many intervals back a change among these plans must look."""
    windows = [p.intervals for plan in plans for p in plan.zone.promises if isinstance(p, WindowPromise)]
    days = [memory_days(model) for plan in plans for kind in plan.zone.private_kinds for model in kind.models]
    moments = any(isinstance(promise, MomentPromise) for plan in plans for promise in plan.zone.promises)
    remembered = _STRETCHES * max(days, default=0) * plans[0].zone.intervals_per_day if moments else 0
    return max([*windows, remembered, 1])


def refuse_change(history: History, after: Plan) -> None:
    """Raise PrivacyError unless every window and every moment across a change to `after` keeps its promise.

    `after` is in force from the interval after the end of `history` on, for ever.
    """
    if not len(history):
        return
    before = history.plans[int(history.in_force[-1])]
    if before.zone.intervals_per_day != after.zone.intervals_per_day:
        allowed = f"must stay {before.zone.intervals_per_day}; open a new chain for another clock"
        raise PrivacyError("intervals_per_day", after.zone.intervals_per_day, allowed)
    _refuse_public(before, after)
    seen = history.last(reach([*history.plans, after]))
    plans = [seen.plans[number] for number in dict.fromkeys(seen.in_force.tolist())]
    for path in paths([*plans, after]):
        kind_of = dict(zip([*plans, after], path, strict=True))
        refuse_windows(seen, after, kind_of)
        refuse_moments(seen, after, kind_of)


def _refuse_public(before: Plan, after: Plan) -> None:
    """Who becomes public, or ceases to be, shows its occupancy on one side of the change; a moment cannot bear it."""
    both = (*before.zone.promises, *after.zone.promises)
    if any(isinstance(promise, MomentPromise) for promise in both) and _public(before) != _public(after):
        allowed = "must stay as they were in number and hours where a moment is promised"
        raise PrivacyError("public households", "others than before", allowed)


def _public(plan: Plan) -> list[int]:
    """[interval of the day] how many households are public."""
    kinds = plan.zone.kinds
    return [sum(kind.count for kind in kinds if kind.public[t]) for t in range(plan.zone.intervals_per_day)]
