"""What prices may teach about a household's habits, beside a promise about one moment.

A moment promise holds for somebody who knows the habits already. Habits themselves (home by day or not) show in every
price, so what is learnt about them grows without end. Windows bound how fast: two households with other habits differ
in their trajectories, and the accountant knows what any two trajectories cost.
"""

from __future__ import annotations

from murmurate.curator.noise_schedule import NoiseSchedule
from murmurate.curator.spending import FREE, kind_events
from murmurate.curator.zone import Zone
from murmurate.privacy.accountant import CurveAccountant, Event, counted
from murmurate.privacy.promise import Habits, MomentPromise

DAYS = (1, 7, 365)
BY_DAY = (8, 16)  # hours of local standard time
_STEPS = 40  # grid points per reach: a coarse grid errs on the safe side, by less than a percent over a year


def habits_taught(zone: Zone, noise: NoiseSchedule) -> tuple[Habits, ...]:
    """For a day, a week and a year of prices, the largest over all kinds; nothing where no moment is promised.

    The chance is (1 + delta)/2 with delta the privacy curve of all these releases at epsilon 0, which is the total
    variation between what the two habits make people see.
    """
    if not any(isinstance(promise, MomentPromise) for promise in zone.promises):
        return ()
    days = [kind_events(zone, noise, kind) for kind in zone.private_kinds]
    daytime = [[event if by_day else FREE for event, by_day in zip(day, _by_day(zone), strict=True)] for day in days]
    return tuple(Habits(count, _right(days, count), _right(daytime, count)) for count in DAYS)


def _by_day(zone: Zone) -> list[bool]:
    """[interval of the UTC day] whether it begins between 08:00 and 16:00 of local standard time."""
    day, offset = zone.intervals_per_day, zone.clock.offsets_min[0]
    hours = ((t * 1440 // day + offset) % 1440 / 60 for t in range(day))
    return [BY_DAY[0] <= hour < BY_DAY[1] for hour in hours]


def _right(days: list[list[Event]], count: int) -> float:
    accountant = CurveAccountant(steps=_STEPS)
    deltas = (accountant.delta([(event, times * count) for event, times in counted(day)], 0.0) for day in days)
    return min(1.0, (1 + max(deltas, default=0.0)) / 2)
