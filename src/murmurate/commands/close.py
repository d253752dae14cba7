"""`murmurate zone close`: end the chains of zones, for ever. The command may be run again: a zone is closed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from murmurate.commands.console import outcome_document, publish, report_outcome, stdout
from murmurate.commands.json_output import format_utc, print_json
from murmurate.errors import ChainError
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState
from murmurate.publisher.steps import Offer
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.worker.publisher_context import PublisherContext


def close_zones(zones: Sequence[str], databases: Databases, keys: Path, *, as_json: bool = False) -> int:
    """`murmurate zone close`: publish a last entry of each zone, signed, with what it has spent in all.

    It takes effect after the last interval that is decided. Prices that were decided before are still paid.
    """
    databases.check_reachable()
    with mask_database_errors():
        migrate_database(databases.state.dsn, "state")
        migrate_database(databases.log.dsn, "log")
        with closing(PublisherContext.from_databases(databases, keys)) as context:
            shards = context.log.shards_of(zones)
            before = context.log.read_heads(set(shards.values()))
            to_close = _zones_to_close(context, zones, shards, before)
            desired = {shard: DesiredState(until=UNTIL_NO_INTERVAL, closing=names) for shard, names in to_close.items()}
            outcome, failed = publish(context, desired)
            after = context.log.read_heads(set(shards.values()))
    entries = [_describe(zone, before[shards[zone]], after[shards[zone]]) for zone in dict.fromkeys(zones)]
    if as_json:
        print_json({"zones": entries} | outcome_document(outcome))
    else:
        for entry in entries:
            _print_entry(entry)
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


def _describe(zone: str, before: Offer, after: Offer) -> dict[str, object]:
    """What the log says about a zone now, for scripts."""
    closed, header = after.table.closed_by_zone.get(zone), after.tile.header
    if closed is None:
        return {"zone": zone, "state": "open"}
    ends = {"measured_until": closed.last + 1, "paid_until": closed.last + 1 + header.lead}
    state = "closed already" if zone in before.table.closed_by_zone else "closed"
    times = {name: format_utc(interval * header.interval_s) for name, interval in ends.items()}
    costs = {"epsilon": closed.total_epsilon_micro / 1e6, "rho": closed.total_rho_micro / 1e6}
    return {"zone": zone, "state": state, "last_interval": closed.last} | times | costs


def _print_entry(entry: Mapping[str, object]) -> None:
    if entry["state"] == "open":
        stdout.print(f"{entry['zone']}: not closed yet.")
        return
    costs = ", ".join(f"{name} {entry[name]:,.4g}" for name in ("epsilon", "rho") if entry[name]) or "nothing"
    until = f"Measured until {entry['measured_until']}, the last price is paid until {entry['paid_until']}"
    stdout.print(f"{entry['zone']}: {entry['state']}. {until}; final total {costs}.")
