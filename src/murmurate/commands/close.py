"""`murmurate zone close`: end the chains of zones for good. The command may be run again: a zone is closed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import ChainError
from murmurate.operations.console import format_utc, print_json, stdout
from murmurate.operations.options import AsJson, Keys, Log, State, complete_zone, optional_imports

with optional_imports():
    from murmurate.operations.publishing import outcome_document, publish, report_outcome
    from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState
    from murmurate.publisher.steps import Offer
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.worker.publisher_context import PublisherContext


def close_zones(
    zones: Annotated[list[str], typer.Argument(help="Names of zones.", autocompletion=complete_zone)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    *,
    as_json: AsJson = False,
) -> int:
    """Publish a last entry of each zone, signed, with what it has spent in all.

    It takes effect after the last interval that is decided. Prices that were decided before are still paid.
    """
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable()
    with mask_database_errors():
        databases.state.prepare()
        databases.log.prepare()
        with closing(PublisherContext.from_databases(databases, keys)) as context:
            shards = context.log.shards_of(zones)
            before = context.log.read_heads(set(shards.values()))
            to_close = _zones_to_close(context, zones, shards, before)
            desired = {shard: DesiredState(until=UNTIL_NO_INTERVAL, closing=names) for shard, names in to_close.items()}
            outcome, failed = publish(context, desired)
            after = context.log.read_heads(set(shards.values()))
    entries = []
    for zone in dict.fromkeys(zones):
        table, header = after[shards[zone]].table, after[shards[zone]].tile.header
        entry: dict[str, object] = {"zone": zone, "state": "open"}
        if (final := table.closed_by_zone.get(zone)) is not None:
            entry["state"] = "closed already" if zone in before[shards[zone]].table.closed_by_zone else "closed"
            entry["last_interval"] = final.last
            entry["measured_until"] = format_utc((final.last + 1) * header.interval_s)
            entry["paid_until"] = format_utc((final.last + 1 + header.lead) * header.interval_s)
            entry |= {"epsilon": final.total_epsilon_micro / 1e6, "rho": final.total_rho_micro / 1e6}
        entries.append(entry)
    if as_json:
        print_json({"zones": entries} | outcome_document(outcome))
        return report_outcome(outcome, failed)
    for entry in entries:
        if entry["state"] == "open":
            stdout.print(f"{entry['zone']}: not closed yet.")
            continue
        costs = ", ".join(f"{name} {entry[name]:,.4g}" for name in ("epsilon", "rho") if entry[name]) or "nothing"
        until = f"Measured until {entry['measured_until']}, the last price is paid until {entry['paid_until']}"
        stdout.print(f"{entry['zone']}: {entry['state']}. {until}; final total {costs}.")
    return report_outcome(outcome, failed)


def _zones_to_close(
    context: PublisherContext, zones: Sequence[str], shards: Mapping[str, str], heads: Mapping[str, Offer]
) -> dict[str, set[str]]:
    """The zones that are open, by shard. Raises ChainError for one that is neither open nor closed."""
    own, found = context.state.shards(), dict[str, set[str]]()
    for zone in zones:
        head = heads.get(shards.get(zone, ""))
        if head is not None and zone in head.table.closed_by_zone:
            continue
        if head is None or zone not in head.table.position or shards[zone] not in own:
            raise ChainError("zone", zone, "is not open here, so it cannot be closed; murmurate status lists the zones")
        found.setdefault(shards[zone], set()).add(zone)
    for zone, (shard, _) in context.state.zones().items():
        if shard in found and found[shard] == set(heads[shard].table.zones) and zone not in found[shard]:
            last = min(found[shard])
            raise ChainError("zone", last, f"must wait until {zone} is open: its shard ends with its last zone")
    return found
