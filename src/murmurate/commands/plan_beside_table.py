"""Compare a plan with the meter table before zones come under it: households with households."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from murmurate.errors import PrivacyError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.service.landing.meter_table import read_households_by_zone
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.zone_warnings import warn_of_household_counts

_NOT_COMPARED = (
    "no meter table is known, so it was not checked whether the plan hides every household: give it with --meters. The "
    "service checks it in every interval, and releases the fallback price of a zone in which one is not hidden."
)


def compare_with_table(terms: Mapping[str, ReleaseTerms], meters: Path | None, state: PostgresStateStore) -> list[str]:
    """Return what an operator should know before these zones come under these plans, in sentences.

    Without `meters` it is the table that the worker of this state reads, if it is on this machine. Raises PrivacyError
    if a household of the table would not be hidden, and MeterError if the table cannot be used.
    """
    if not terms:
        return []
    if meters is None:
        reported = state.heartbeats().get(WORKER_HEARTBEAT, (0.0, {}))[1].get("meters")
        meters = Path(str(reported)) if reported and Path(str(reported)).exists() else None
    if meters is None:
        return [_NOT_COMPARED]
    found = read_households_by_zone(meters)
    warnings = []
    for zone, its in sorted(terms.items()):
        if zone not in found:
            warnings.append(f"{zone} has no meter in {meters.name}: its fallback price is released until it has.")
        elif (reason := its.not_hidden_reason(found[zone].bounds)) is not None:
            raise PrivacyError("zone", zone, reason)
    planned = {zone: its.household_count for zone, its in terms.items()}
    in_table = {zone: found[zone].number for zone in terms.keys() & found.keys()}
    return warnings + [f"{zone} {reason}" for zone, reason in warn_of_household_counts(planned, in_table).items()]
