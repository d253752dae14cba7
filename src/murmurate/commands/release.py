"""`murmurate step release`: publish every interval that is due. It may be run again: what is public stays as it is."""

from __future__ import annotations

import time
from pathlib import Path

from murmurate.commands.console import outcome_document, publish, report_outcome, stderr, stdout, zones_word
from murmurate.commands.json_output import print_json
from murmurate.errors import MurmurateError
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.service.worker.zone_warnings import warn_of_short_leads


def release_due_intervals(
    databases: Databases, keys: Path, *, grace_s: int, slot_s: float, timeout_s: float, as_json: bool = False
) -> int:
    """`murmurate step release`: decide every interval that is due, in every zone."""
    databases.check_reachable()
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys, slot_s)
        desired = context.desired_states(time.time(), grace_s)
        if not desired:
            raise MurmurateError("zones", "none", "open one first: murmurate zone open plan.json")
        for name, reason in warn_of_short_leads(context.state.shards(), grace_s).items():
            stderr.print(f"Warning: {name} {reason}.")
        outcome, failed = publish(context, desired, timeout_s)
        clock_reason = context.explain_unfinished(desired, outcome)
        shard_of = {zone: shard for zone, (shard, _) in context.state.zones().items()}
    done = sum(shard in outcome.up_to_date and zone not in outcome.blocked_zones for zone, shard in shard_of.items())
    if as_json:
        print_json({"zones": len(shard_of), "up_to_date": done} | outcome_document(outcome, clock_reason))
    else:
        stdout.print(f"{done:,} of {len(shard_of):,} {zones_word(shard_of)} up to date.")
    return report_outcome(outcome, failed, clock_reason)
