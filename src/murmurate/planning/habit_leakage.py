"""How much prices leak about a household's habits, in a plan with a moment promise, and about a long absence.

A moment promise holds against an attacker who already knows the habits. The habits themselves (home by day or not)
affect every price, so the leakage about them grows without limit. The accountant bounds its growth: two households with
different habits differ in their trajectories, and the accountant bounds the cost of any two trajectories.
"""

from __future__ import annotations

from murmurate.planning.noise_schedule import NoiseSchedule
from murmurate.planning.privacy_cost import ZERO_COST_EVENT, kind_events
from murmurate.planning.zone import Zone
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent, count_events
from murmurate.privacy.promise import AbsenceGuessBound, HabitGuessBound, MomentPromise

HABIT_RISK_DAYS = (1, 7, 365)
ABSENCE_DAYS = 14
DAYTIME_HOURS = (8, 16)  # hours of local standard time
_GRID_STEPS = 40  # grid points per reach: a coarse grid errs on the safe side, by less than a percent over a year


def habit_inference_risks(zone: Zone, noise: NoiseSchedule) -> tuple[HabitGuessBound, ...]:
    """Bound the attacker's chance to guess a habit from a day, a week and a year of prices.

    The result is the largest bound over all kinds of household. It is empty for a zone without a moment promise.
    The chance is (1 + delta)/2. Here delta is the privacy curve of all these releases at epsilon 0: the total variation
    distance between the outputs under the two habits.
    """
    if not any(isinstance(promise, MomentPromise) for promise in zone.promises):
        return ()
    days = [kind_events(zone, noise, kind) for kind in zone.private_kinds]
    daytime = [
        [event if by_day else ZERO_COST_EVENT for event, by_day in zip(day, _is_daytime(zone), strict=True)]
        for day in days
    ]
    return tuple(
        HabitGuessBound(count, _guess_probability(days, count), _guess_probability(daytime, count))
        for count in HABIT_RISK_DAYS
    )


def absence_risk(zone: Zone, noise: NoiseSchedule) -> AbsenceGuessBound:
    """Bound the attacker's chance to guess from 14 days of prices whether a household was away for all of them.

    It is that of the worst household: at its bound in each interval, or at 0 in each. No promise about one moment
    bounds it, because no occupancy model of a plan has such a long absence.
    """
    days = [kind_events(zone, noise, kind) for kind in zone.private_kinds]
    return AbsenceGuessBound(ABSENCE_DAYS, _guess_probability(days, ABSENCE_DAYS))


def _is_daytime(zone: Zone) -> list[bool]:
    """Return, for each interval of the UTC day, whether it begins between 08:00 and 16:00 local standard time."""
    day, offset = zone.intervals_per_day, zone.clock.offsets_min[0]
    hours = ((t * 1440 // day + offset) % 1440 / 60 for t in range(day))
    return [DAYTIME_HOURS[0] <= hour < DAYTIME_HOURS[1] for hour in hours]


def _guess_probability(days: list[list[PrivacyEvent]], count: int) -> float:
    accountant = PldAccountant(grid_points=_GRID_STEPS)
    deltas = (accountant.delta([(event, times * count) for event, times in count_events(day)], 0.0) for day in days)
    return min(1.0, (1 + max(deltas, default=0.0)) / 2)
