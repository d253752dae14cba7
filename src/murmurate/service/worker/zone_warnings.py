"""Settings that give useless prices although releases go on: each with the numbers that do not fit and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from murmurate.publisher.desired_state import ShardOpening

MIN_METERS_PER_HOME, MAX_METERS_PER_HOME = 0.8, 2.0  # beyond that the plan was made for another zone
MIN_LEAD = 2  # with less the interval that pays has begun before the measured one is over


def warn_of_home_counts(homes_by_zone: Mapping[str, int], meters_by_zone: Mapping[str, int]) -> dict[str, str]:
    """Return the zones whose plan is made for far more or fewer homes than the meter table has meters there.

    >>> warn_of_home_counts({"harbour": 801, "hill": 100}, {"harbour": 2, "hill": 99})
    {'harbour': 'has 2 meters, and its plan is made for 801 homes: its price is mostly noise. Add the missing meters to the meter table, or change to a plan for these homes (murmurate plan, murmurate change)'}
    """  # noqa: E501
    remedy = "or change to a plan for these homes (murmurate plan, murmurate change)"
    warnings = {}
    for zone, meters in sorted(meters_by_zone.items()):
        homes = homes_by_zone.get(zone, 0)
        found = f"has {meters:,} {'meter' if meters == 1 else 'meters'}, and its plan is made for {homes:,} homes"
        if 0 < meters < MIN_METERS_PER_HOME * homes:
            warnings[zone] = f"{found}: its price is mostly noise. Add the missing meters to the meter table, {remedy}"
        elif 0 < MAX_METERS_PER_HOME * homes < meters:
            warnings[zone] = f"{found}: its forecast is far too low. Correct the zones of the meter table, {remedy}"
    return warnings


def warn_of_short_leads(shards: Mapping[str, ShardOpening], grace_s: int) -> dict[str, str]:
    """Return the shards whose prices all come too late, because the grace is as long as the lead leaves, or longer."""
    warnings = {}
    for name, opening in sorted(shards.items()):
        left_s = (opening.lead - 1) * opening.interval_s
        if grace_s >= left_s:
            remedy = (
                f"lower grace_s below {left_s} s" if left_s > 0 else f"open its zones with --lead {MIN_LEAD} or more"
            )
            reason = f"grace_s {grace_s} s is not less than the {max(left_s, 0)} s that lead {opening.lead} leaves"
            warnings[f"shard {name}"] = f"has no price in time: {reason}; {remedy}"
    return warnings
