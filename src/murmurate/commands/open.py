"""`murmurate open`: start the chain of each zone under a proven plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from murmurate.commands.console import publish, report_outcome, stderr, stdout
from murmurate.planning.plan import Plan
from murmurate.planning.plan_file import load_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, Opening
from murmurate.service.clock import parse_interval_start
from murmurate.service.keyring import Keyring
from murmurate.service.storage.databases import Databases, mask_database_errors, read_first_entries, read_heads
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.units import SECONDS_PER_DAY


def open_zones(
    plans: Sequence[Path],
    databases: Databases,
    keys: Path,
    *,
    lead_intervals: int,
    first: str | None,
    quiet: bool = False,
) -> int:
    """`murmurate open`: prepare both databases, prove the plans, show them, begin the chain of each plan's zone."""
    databases.check_reachable(prepared=False)
    if databases.share_server and not quiet:
        stderr.print("Warning: state and log are on one server. What destroys one must not reach the other:")
        stderr.print("keep the log on another machine, with other disks, other backups and another administrator.")
    texts = {path: path.read_text(encoding="utf-8") for path in plans}
    proven = {path: _prove_plan(text, str(path)) for path, text in texts.items()}
    with mask_database_errors():
        migrate_database(databases.state.dsn, "state")
        migrate_database(databases.log.dsn, "log")
        context = PublisherContext.from_databases(databases, keys)
        openings = {
            plan.zone.name: _make_opening(ReleaseTerms.from_json(texts[path]), context.keyring, lead_intervals, first)
            for path, plan in proven.items()
        }
        already_open = read_first_entries(context.log, list(openings))
        for text in texts.values():
            context.register_plan(text)
        for zone, entry in already_open.items():
            record = entry.record
            openings[zone] = Opening(
                plan=record.plan, key=record.key, first=record.interval + 1, lead=entry.lead_intervals
            )
        for digest in {entry.record.plan for entry in read_heads(context.log, list(already_open)).values()}:
            text = context.plan_document(digest)
            _prove_plan(text, f"plan {digest}")
            context.state.register_plan(digest, text)
        context.state.store_openings(openings)
        outcome, failed = publish(
            context, {zone: DesiredState(until=UNTIL_NO_INTERVAL, opening=at) for zone, at in openings.items()}
        )
        context.close()
    for zone in [] if quiet else sorted(outcome.up_to_date):
        stdout.print(_opening_message(zone, openings[zone], proven, is_new=zone not in already_open))
    return report_outcome(outcome, failed)


def _make_opening(terms: ReleaseTerms, keys: Keyring, lead_intervals: int, first: str | None) -> Opening:
    step = terms.interval_s
    begins = int(time.time() // step) + 1 if first is None else parse_interval_start(first, step, "--first") // step
    return Opening(plan=terms.plan_digest, key=keys.newest_signer.public_key, first=begins, lead=lead_intervals)


def _opening_message(zone: str, opening: Opening, proven: Mapping[Path, Plan], *, is_new: bool) -> str:
    day = next(plan.zone.intervals_per_day for plan in proven.values() if plan.zone.name == zone)
    step = SECONDS_PER_DAY // day
    begins, paid = (datetime.fromtimestamp(at * step, UTC) for at in (opening.first, opening.first + opening.lead))
    what = "open" if is_new else "open already; it goes on as the log says"
    return f"{zone}: {what}. First measured {begins:%Y-%m-%d %H:%M} UTC, first paid {paid:%Y-%m-%d %H:%M} UTC."


def _prove_plan(text: str, name: str) -> Plan:
    with stderr.status(f"proving {name}"):
        return load_plan(text)
