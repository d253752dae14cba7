"""`murmurate step release`: publish every interval that is due. It may be run again: what is public stays as it is."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stderr, stdout, zones_word
from murmurate.operations.options import AsJson, Grace, Keys, Log, State, optional_imports

with optional_imports():
    from murmurate.operations.publishing import outcome_document, publish, report_outcome
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.worker.publisher_context import PublisherContext
    from murmurate.service.worker.zone_warnings import warn_of_short_leads


def release_due_intervals(
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    grace: Grace = 60,
    slot: Annotated[float, typer.Option(help="Seconds between the moments at which releases leave.", min=0.01)] = 1.0,
    timeout: Annotated[float, typer.Option(help="Seconds until it gives up, to be run again.", min=1)] = 60.0,
    *,
    as_json: AsJson = False,
) -> int:
    """Decide every interval that is due, in every zone."""
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable()
    with mask_database_errors(), closing(PublisherContext.from_databases(databases, keys, slot)) as context:
        desired = context.desired_states(time.time(), grace)
        if not desired:
            raise MurmurateError("zones", "none", "open one first: murmurate zone open plan.json")
        for name, reason in warn_of_short_leads(context.state.shards(), grace).items():
            stderr.print(f"Warning: {name} {reason}.")
        outcome, failed = publish(context, desired, timeout)
        clock_reason = context.explain_unfinished(desired, outcome)
        shard_of = {zone: shard for zone, (shard, _) in context.state.zones().items()}
    done = sum(shard in outcome.up_to_date and zone not in outcome.blocked_zones for zone, shard in shard_of.items())
    if as_json:
        print_json({"zones": len(shard_of), "up_to_date": done} | outcome_document(outcome, clock_reason))
    else:
        stdout.print(f"{done:,} of {len(shard_of):,} {zones_word(shard_of)} up to date.")
    return report_outcome(outcome, failed, clock_reason)
