"""Settings that give useless prices while releases are made: each with the numbers that do not fit and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from murmurate.planning.household_bounds import is_count_off
from murmurate.publisher.desired_state import ShardOpening
from murmurate.service.landing.meter_table import ZERO

MIN_LEAD = 2  # with less the interval that pays has begun before the measured one is over


def warn_of_household_counts(planned: Mapping[str, int], in_table: Mapping[str, int]) -> dict[str, str]:
    """Return the zones whose plan is made for far more or fewer households than the meter table has.

    >>> warn_of_household_counts({"harbour": 801, "hill": 100}, {"harbour": 2, "hill": 99})
    {'harbour': 'has 2 households in the meter table, and its plan is made for 801: its prices are off, because its forecast and its rate curve are made for another number. Its privacy is not. Correct the meter table, or change to a plan for these households (murmurate plan, murmurate zone change)'}
    """  # noqa: E501
    return {
        zone: f"has {count:,} {'household' if count == 1 else 'households'} in the meter table, and its plan is made "
        f"for {planned[zone]:,}: its prices are off, because its forecast and its rate curve are made for another "
        "number. Its privacy is not. Correct the meter table, or change to a plan for these households (murmurate "
        "plan, murmurate zone change)"
        for zone, count in sorted(in_table.items())
        if planned.get(zone) and is_count_off(planned[zone], count)
    }


def warn_of_zero_imputation(silent_meters: str, zones: Collection[str]) -> dict[str, str]:
    """Return a warning where `zones` have predicted prices, and silent meters count as zero in the table.

    >>> warn_of_zero_imputation("their constants", ["harbour"])
    {}
    >>> list(warn_of_zero_imputation("zero", ["harbour"]))
    ['meter table']
    """
    if silent_meters != ZERO or not zones:
        return {}
    effect = "a meter that does not report counts as no demand, and predicted prices are off by it"
    return {"meter table": f"states imputed_wh 0 for every meter, so {effect}. Leave the column out"}


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
