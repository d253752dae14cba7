"""`murmurate change`: put a zone under another plan.

The plan and the change are proven first, which takes a second or two. The command may be run again.
"""

from __future__ import annotations

from pathlib import Path

from murmurate.commands.console import publish, report_outcome, stderr, stdout
from murmurate.commands.open import _prove_plan
from murmurate.errors import ChainError
from murmurate.planning.plan import Plan
from murmurate.planning.plan_change import check_plan_change, lookback_intervals
from murmurate.planning.plan_history import PlanHistory
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import RELEASE_KINDS, Entry, Record, RecordKind, parse_entry
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, Change, DesiredState
from murmurate.service.storage.databases import Databases, mask_database_errors, read_heads
from murmurate.service.worker.publisher_context import PublisherContext

_MAX_OTHER_RECORDS = 64  # changes of plan and key that may stand among the releases looked at


def change_plan(plan_file: Path, databases: Databases, keys: Path) -> int:
    """`murmurate change`: another plan for a zone from its next interval on, if all promises hold across the change."""
    databases.check_reachable()
    text = plan_file.read_text(encoding="utf-8")
    after, digest = _prove_plan(text, str(plan_file)), ReleaseTerms.from_json(text).plan_digest
    zone = after.zone.name
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys)
        head = read_heads(context.log, [zone]).get(zone)
        if head is None or zone not in context.state.openings():
            raise ChainError("zone", zone, "is not open; murmurate open plan.json opens it")
        if head.record.plan == digest:
            stdout.print(f"{zone}: under plan {digest} already.")
            return 0
        with stderr.status("proving the change"):
            check_plan_change(_release_history(context, head, after), after)
        context.register_plan(text)
        outcome, failed = publish(
            context, {zone: DesiredState(until=UNTIL_NO_INTERVAL, plan_change=Change(head.record.plan, digest))}
        )
    if outcome.up_to_date:
        stdout.print(f"{zone}: under plan {digest} from the next interval on.")
    return report_outcome(outcome, failed)


def _release_history(context: PublisherContext, head: Entry, after: Plan) -> PlanHistory:
    """What was released under the plan in force and those before it, as far back as the change must look."""
    zone, plans = (
        head.record.zone,
        {head.record.plan: _prove_plan(context.plan_document(head.record.plan), "the plan in force")},
    )
    looked = lookback_intervals([*plans.values(), after])
    while True:
        records = _read_releases(context, zone, head.record.seq - looked - _MAX_OTHER_RECORDS, head.record.seq)
        for digest in {record.plan for record in records} - plans.keys():
            plans[digest] = _prove_plan(context.plan_document(digest), f"plan {digest[:12]}, which was in force before")
        needed = lookback_intervals([*plans.values(), after])
        if needed <= looked:
            break
        looked = needed
    releases = [(plans[record.plan], record.kind is RecordKind.MEASURED) for record in records]
    first = records[0].interval if records else head.record.interval + 1
    return PlanHistory.from_releases(releases, first=first, complete=head.record.seq - looked - _MAX_OTHER_RECORDS < 0)


def _read_releases(context: PublisherContext, zone: str, after_seq: int, last_seq: int) -> list[Record]:
    records: list[Record] = []
    seq = max(-1, after_seq)
    while seq < last_seq:
        lines = context.log.read({zone: seq})[zone].lines
        records += [record for record in (parse_entry(line).record for line in lines) if record.kind in RELEASE_KINDS]
        seq += len(lines)
    return records
