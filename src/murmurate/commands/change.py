"""`murmurate zone change`: put zones under another plan.

The plan and the change are proven first, which takes a second or two. The command may be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from murmurate.errors import ChainError
from murmurate.operations.console import print_first, print_json, stderr, stdout, zones_word
from murmurate.operations.options import AsJson, ComparedTable, Keys, Log, State, optional_imports

with optional_imports():
    from murmurate.operations.plan_files import name_plan, read_plan_document, read_zone_names
    from murmurate.operations.publishing import (
        MAX_ZONES_SHOWN,
        compare_with_table,
        outcome_document,
        publish,
        report_outcome,
    )
    from murmurate.planning.plan import Plan
    from murmurate.planning.plan_change import (
        Direction,
        check_plan_change,
        find_promise_changes,
        lookback_intervals,
    )
    from murmurate.public_log.tile import TileKind
    from murmurate.public_log.zone_table import ZoneRow, ZoneTable
    from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, PlanChange
    from murmurate.publisher.steps import Offer
    from murmurate.service.log_reader.zone_view import format_rfc3339
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.storage.object_log import ObjectLogStore
    from murmurate.service.storage.public_log_store import MAX_TILES_PER_READ, PostgresLogStore
    from murmurate.service.worker.publisher_context import PublisherContext
    from murmurate.verification.plans import ProvenPlan
    from murmurate.verification.releases import LogHistory

_NO_METER_READ = (
    "No meter is read from the next interval on, so these prices spend no promise. Stretches that begin before the "
    "change keep what the plan before promised."
)
_MAX_OTHER_TILES = 64  # changes of zones and keys that may stand among the releases looked at


def change_plan(
    plan_file: Annotated[Path, typer.Argument(help="The new plan, for the zone it names.", dir_okay=False)],
    state: State = "",
    log: Log = "",
    keys: Keys = Path("keys"),
    zones_file: Annotated[
        Path | None,
        typer.Option("--zones", help="Names of zones, one a line: all of them change to the plan.", dir_okay=False),
    ] = None,
    meters: ComparedTable = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Publish another plan from the next interval on, if all promises hold across the change.

    Without a file of names it is for the zone that the plan names. The plan is compared with the meter table `meters`,
    or with that of a running service.
    """
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable()
    text = read_plan_document(plan_file)
    after = _prove_plan(text, str(plan_file))
    terms = after.terms
    zones = [terms.zone] if zones_file is None else read_zone_names(zones_file)
    with mask_database_errors(), closing(PublisherContext.from_databases(databases, keys)) as context:
        by_shard = _rows_to_change(context, zones, terms.plan_digest)
        changed = [row.zone for _, rows in by_shard.values() for row in rows]
        warnings = compare_with_table(dict.fromkeys(changed, terms), meters, context.state)
        print_first(f"Warning: {sentence}" for sentence in warnings)
        with stderr.status("proving the change"):
            before_plans = _check_changes(context, by_shard, after)
        promises = _promise_changes(by_shard, before_plans, after.plan)
        if not terms.reads_meters:
            (stderr if as_json else stdout).print(_NO_METER_READ)
        for entry in promises:
            (stderr if as_json else stdout).print(_describe_promise_change(entry))
        context.register_plans([text])
        desired = {
            shard: DesiredState(
                until=UNTIL_NO_INTERVAL,
                plan_changes={
                    row.zone: PlanChange(row.plan, terms.plan_digest, terms.currency, terms.tick) for row in rows
                },
            )
            for shard, (_, rows) in by_shard.items()
        }
        outcome, failed = publish(context, desired)
    unchanged, is_done = sorted(set(zones) - set(changed)), outcome.up_to_date == desired.keys()
    now_changed = sorted(changed) if is_done else []
    if as_json:
        zone_lists = {"plan": terms.plan_digest, "changed": now_changed, "unchanged": unchanged}
        print_json(zone_lists | {"warnings": warnings, "promises": promises} | outcome_document(outcome))
    else:
        _print_zones(unchanged, f"under plan {terms.plan_digest} already.")
        _print_zones(now_changed, f"under plan {terms.plan_digest} from the next interval on.")
    return report_outcome(outcome, failed)


def _promise_changes(
    by_shard: Mapping[str, tuple[Offer, list[ZoneRow]]], before: Mapping[str, Plan], after: Plan
) -> list[dict[str, object]]:
    """What the change does to each promise, by the plan in force before: stronger, weaker, and from when on.

    Nothing where the plan after reads no meter.
    """
    entries: list[dict[str, object]] = []
    if not after.reads_meters:  # what was promised for the prices so far holds under any new plan
        return entries
    for digest in dict.fromkeys(row.plan for _, rows in by_shard.values() for row in rows):
        heads = [(head, row.zone) for head, rows in by_shard.values() for row in rows if row.plan == digest]
        newest = max(head.tile.header.interval for head, _ in heads)
        for change in find_promise_changes(before[digest].zone.promises, after.zone.promises):
            first = newest + 2 + change.intervals_to_wait  # the change may miss the interval that follows
            from_s = first * heads[0][0].tile.header.interval_s
            entry: dict[str, object] = {
                "zones": sorted(zone for _, zone in heads),
                "before": None if change.before is None else str(change.before),
                "after": None if change.after is None else str(change.after),
                "change": change.direction.value,
                "every_stretch_from": format_rfc3339(from_s) if change.intervals_to_wait else None,
            }
            entries.append(entry)
    return entries


def _describe_promise_change(entry: Mapping[str, Any]) -> str:
    zones, before, after = entry["zones"], entry["before"], entry["after"]
    name = zones[0] if len(zones) == 1 else f"{len(zones):,} zones"
    words = {
        Direction.STRONGER: f"{before!r} becomes stronger: {after!r}.",
        Direction.WEAKER: f"{before!r} becomes WEAKER: {after!r}. Pages say so at once.",
        Direction.SAME: f"{after!r} stays.",
        Direction.NEW: f"{after!r} is promised too.",
        Direction.DROPPED: f"{before!r} is NO LONGER promised.",
    }[Direction(entry["change"])]
    if entry["every_stretch_from"] is not None:
        words += f" Stretches that begin before the change keep {before!r}; every one keeps the stronger promise "
        words += f"from {entry['every_stretch_from']} on."
    return f"{name}: {words}"


def _print_zones(names: Sequence[str], message: str) -> None:
    for zone in names[:MAX_ZONES_SHOWN]:
        stdout.print(f"{zone}: {message}")
    if len(names) > MAX_ZONES_SHOWN:
        stdout.print(f"... {len(names):,} {zones_word(names)}: {message}")


def _rows_to_change(context: PublisherContext, zones: list[str], digest: str) -> dict[str, tuple[Offer, list[ZoneRow]]]:
    """The head of each shard that has such zones, with the rows of those that are not under the plan yet."""
    shards = context.log.shards_of(zones)
    heads = context.log.read_heads(set(shards.values()))
    known = context.state.shards()
    found: dict[str, tuple[Offer, list[ZoneRow]]] = {}
    for zone in zones:
        head = heads.get(shards.get(zone, ""))
        row = None if head is None else head.table.find_row(zone)
        if head is not None and zone in head.table.closed_by_zone:
            raise ChainError("zone", zone, "was closed, for ever: no interval follows")
        if head is None or row is None or shards[zone] not in known:
            raise ChainError("zone", zone, "is not open; murmurate zone open plan.json opens it")
        if row.plan != digest:
            found.setdefault(shards[zone], (head, []))[1].append(row)
    return found


def _prove_plan(text: str, name: str) -> ProvenPlan:
    with name_plan(name):
        return ProvenPlan.from_json(text)


def _check_changes(
    context: PublisherContext, by_shard: Mapping[str, tuple[Offer, list[ZoneRow]]], after: ProvenPlan
) -> Mapping[str, Plan]:
    """Prove the change for each zone. Zones with equal histories share a proof. Return the plans before, by digest."""
    plans: dict[str, ProvenPlan] = {}

    def find_plan(digest: str) -> ProvenPlan:
        if digest not in plans:
            plans[digest] = _prove_plan(context.plan_document(digest), f"plan {digest[:12]}, in force before")
        return plans[digest]

    for head, rows in by_shard.values():
        history = _read_history(context.log, head, rows, after.plan, find_plan)
        chain = (head.tile.header.shard, "")
        for row in rows:
            released = history.history_before(chain, len(history.stretches[chain]), row.zone)
            if history.find_broken_promise(released, after) is not None:
                check_plan_change(released.to_plan_history(after.plan), after.plan)  # raises the error
    return {digest: proven.plan for digest, proven in plans.items()}


def _read_history(
    log: PostgresLogStore | ObjectLogStore,
    head: Offer,
    rows: Sequence[ZoneRow],
    after: Plan,
    find_plan: Callable[[str], ProvenPlan],
) -> LogHistory:
    """What was released for zones of a shard under their plans, as far back as the change must look."""
    header, plans, looked = head.tile.header, {row.plan for row in rows}, 0
    zones, first = [row.zone for row in rows], header.interval + 1
    while (needed := lookback_intervals([*(find_plan(digest).plan for digest in sorted(plans)), after])) > looked:
        looked, tables, archived_seq = needed, dict[str, ZoneTable](), -1
        history = LogHistory(tables.__getitem__, find_plan)
        seq = first_seq = max(0, header.seq + 1 - looked - _MAX_OTHER_TILES)
        while seq <= header.seq:
            tail = log.read({header.shard: seq - 1}, max_tiles=min(MAX_TILES_PER_READ, header.seq + 1 - seq))
            tiles, archived_seq = tail[header.shard].tiles, tail[header.shard].archived_seq
            if not tiles:
                raise ChainError("log", f"of {header.shard}", f"has no tile {max(seq, archived_seq + 1)}")
            for offer in tiles:
                if isinstance(offer, str):
                    raise ChainError("log", f"of {header.shard}", offer)
                tables[offer.table.digest] = offer.table
                history.add_tile((header.shard, ""), offer.tile, offer.table)
                seq = offer.tile.header.seq + 1
                first = min(first, offer.tile.header.interval + (offer.tile.header.kind is not TileKind.RELEASE))
        plans |= {row.plan for table in tables.values() for zone in zones if (row := table.find_row(zone)) is not None}
    if first_seq <= archived_seq and any(max(row.since, header.interval + 1 - looked) < first for row in rows):
        allowed = f"must have the last {looked:,} intervals of each zone: older ones are in the archive"
        raise ChainError("log", f"of {header.shard}", allowed)
    return history
