"""`murmurate change`: put zones under another plan.

The plan and the change are proven first, which takes a second or two. The command may be run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from murmurate.commands.console import outcome_document, publish, report_outcome, stderr, stdout, zones_word
from murmurate.commands.json_output import print_json
from murmurate.commands.open import MAX_ZONES_SHOWN, prove_plan_document, read_zone_names
from murmurate.commands.plan_documents import read_plan_document
from murmurate.commands.release_history import ReleaseReader
from murmurate.errors import ChainError
from murmurate.planning.plan import Plan
from murmurate.planning.plan_change import check_plan_change, lookback_intervals
from murmurate.planning.plan_history import PlanHistory
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.zone_table import ZoneRow
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, PlanChange
from murmurate.publisher.steps import Offer
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.worker.publisher_context import PublisherContext

FindPlan = Callable[[str], Plan]  # by digest


def change_plan(
    plan_file: Path, databases: Databases, keys: Path, zones_file: Path | None = None, *, as_json: bool = False
) -> int:
    """`murmurate change`: another plan for zones from their next interval on, if all promises hold across the change.

    Without a file of names it is the zone that the plan names.
    """
    databases.check_reachable()
    text = read_plan_document(plan_file)
    after, terms = prove_plan_document(text, str(plan_file)), ReleaseTerms.from_json(text)
    zones = [terms.zone] if zones_file is None else read_zone_names(zones_file)
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys)
        by_shard = _rows_to_change(context, zones, terms.plan_digest)
        changed = [row.zone for _, rows in by_shard.values() for row in rows]
        with stderr.status("proving the change"):
            _check_changes(context, by_shard, after)
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
        context.close()
    before, is_done = set(zones) - set(changed), outcome.up_to_date == desired.keys()
    if as_json:
        members = {
            "plan": terms.plan_digest,
            "changed": sorted(changed) if is_done else [],
            "unchanged": sorted(before),
        }
        print_json(members | outcome_document(outcome))
        return report_outcome(outcome, failed)
    _print_zones(before, f"under plan {terms.plan_digest} already.")
    if is_done:
        _print_zones(changed, f"under plan {terms.plan_digest} from the next interval on.")
    return report_outcome(outcome, failed)


def _print_zones(zones: Iterable[str], message: str) -> None:
    names = sorted(zones)
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
        if head is None or row is None or shards[zone] not in known:
            raise ChainError("zone", zone, "is not open; murmurate open plan.json opens it")
        if row.plan != digest:
            found.setdefault(shards[zone], (head, []))[1].append(row)
    return found


def _check_changes(context: PublisherContext, by_shard: Mapping[str, tuple[Offer, list[ZoneRow]]], after: Plan) -> None:
    """Prove the change for each zone. Zones with equal histories share a proof."""
    plans: dict[str, Plan] = {}

    def find_plan(digest: str) -> Plan:
        if digest not in plans:
            plans[digest] = prove_plan_document(context.plan_document(digest), f"plan {digest[:12]}, in force before")
        return plans[digest]

    for head, rows in by_shard.values():
        releases = ReleaseReader(context.log)
        proven: set[tuple[object, ...]] = set()
        for row in rows:
            history = _read_history(releases, head, row, after, find_plan)
            key = (history.plans, history.first, history.complete)
            same = (*key, history.plan_index.tobytes(), history.measured.tobytes())
            if same not in proven:
                check_plan_change(history, after)
                proven.add(same)


def _read_history(releases: ReleaseReader, head: Offer, row: ZoneRow, after: Plan, find_plan: FindPlan) -> PlanHistory:
    """What was released under the plan in force and those before it, as far back as the change must look."""
    plans = {row.plan: find_plan(row.plan)}
    looked = 0
    while (needed := lookback_intervals([*plans.values(), after])) > looked:
        looked = needed
        found, complete = releases.read_zone(head, row.zone, looked)
        plans |= {release.plan: find_plan(release.plan) for release in found}
    first = head.tile.header.interval + 1 - len(found)
    history = [(plans[release.plan], release.measured) for release in found]
    return PlanHistory.from_releases(history, first=first, complete=complete)
