"""`murmurate release`: publish every interval that is due. It may be run again: what is public stays as it is."""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.commands.console import publish, report_outcome, stdout, zones_word
from murmurate.errors import MurmurateError
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.worker.publisher_context import PublisherContext


def release_due_intervals(databases: Databases, keys: Path, *, grace_s: int, slot_s: float, timeout_s: float) -> int:
    """`murmurate release`: decide every interval that is due, in every zone."""
    databases.check_reachable()
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys, slot_s)
        desired, without_plan = context.desired_states(time.time(), grace_s)
        zones = desired.keys() | without_plan.keys()
        if not zones:
            raise MurmurateError("zones", "none", "open one first: murmurate open plan.json")
        outcome, failed = publish(context, desired, timeout_s)
    outcome.blocked |= without_plan
    stdout.print(f"{len(outcome.up_to_date):,} of {len(zones):,} {zones_word(zones)} up to date.")
    return report_outcome(outcome, failed)
