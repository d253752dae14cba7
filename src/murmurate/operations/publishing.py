"""What commands that publish share: open zones, compare a plan with the meter table, publish, report the outcome."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from murmurate.errors import ChainError, PrivacyError, UnknownNameError
from murmurate.operations.console import format_utc, print_blocked, print_first, stderr
from murmurate.operations.plan_files import name_plan, read_plan_document, read_zone_names
from murmurate.planning.plan import load_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import BlockedCode, Outcome
from murmurate.service.clock import parse_interval_start
from murmurate.service.landing.meter_table import read_households_by_zone
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.storage.heartbeats import WORKER_HEARTBEAT
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import PUBLISH_TIMEOUT_S, PublisherContext
from murmurate.service.worker.zone_warnings import warn_of_household_counts
from murmurate.types import check_zone_name

MAX_ZONES_SHOWN = 20  # zones with a line of their own
_NOT_COMPARED = (
    "no meter table is known, so it was not checked whether the plan hides every household: give it with --meters. The "
    "service checks it in every interval, and releases the fallback price of a zone in which one is not hidden."
)


def migrate_databases(databases: Databases) -> None:
    """Bring both databases to this version. Name those that let every role create objects: no process needs that."""
    for database in (databases.state, databases.log):
        database.prepare()
        if database.can_everyone_create():
            stderr.print(f"Warning: every role may create objects in schema public of the {database.store} database.")
            stderr.print("As a superuser, there: REVOKE CREATE ON SCHEMA public FROM PUBLIC;")


def publish(
    context: PublisherContext, desired: Mapping[str, DesiredState], timeout_s: float = PUBLISH_TIMEOUT_S
) -> tuple[Outcome, set[str]]:
    """Publish with a spinner on standard error. Returns the outcome and the names of the errors on the way."""
    with stderr.status(f"publishing for {_count_shards(desired)}"):
        return context.publish(desired, timeout_s)


def report_outcome(outcome: Outcome, failure_names: set[str], more_reasons: Mapping[str, str] | None = None) -> int:
    """Print what needs an operator, or another run. Returns the exit status: 1 if there is any."""
    blocked = outcome.blocked | outcome.blocked_zones
    print_blocked({**(more_reasons or {}), **{name: reason.text for name, reason in blocked.items()}})
    if any(reason.code is BlockedCode.LOG_LOST_ENTRIES for reason in outcome.blocked.values()):
        stderr.print("The log has lost tiles that were public. murmurate log repair restores them; see how-to/restore.")
    if any(reason.code is BlockedCode.LOG_INVALID for reason in outcome.blocked.values()):
        stderr.print("The log holds a tile that no reader accepts. murmurate log repair names it; see how-to/restore.")
    if outcome.unfinished:
        errors = " (a database or the disk failed; see their logs)" if failure_names else ""
        stderr.print(f"{_count_shards(outcome.unfinished)} not finished in time{errors}: run it again.")
    return 1 if blocked or outcome.unfinished else 0


def _count_shards(shards: Mapping[str, object] | set[str]) -> str:
    return f"{len(shards):,} {'shard' if len(shards) == 1 else 'shards'}"


def outcome_document(outcome: Outcome, more_reasons: Mapping[str, str] | None = None) -> dict[str, object]:
    """What needs an operator, or another run, for scripts."""
    blocked = outcome.blocked | outcome.blocked_zones
    return {
        "blocked": {**(more_reasons or {}), **{name: reason.text for name, reason in sorted(blocked.items())}},
        "unfinished": sorted(outcome.unfinished),
    }


def compare_with_table(terms: Mapping[str, ReleaseTerms], meters: Path | None, state: PostgresStateStore) -> list[str]:
    """Return what an operator should know before these zones come under these plans, in sentences.

    Without `meters` it is the table that the worker of this state reads, if it is on this machine. Raises PrivacyError
    if a household of the table would not be hidden, and MeterError if the table cannot be used.
    """
    terms = {zone: its for zone, its in terms.items() if its.reads_meters}
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


def open_zones(
    plans: Sequence[Path],
    databases: Databases,
    keys: Path,
    *,
    lead_intervals: int,
    first: str | None = None,
    zones_file: Path | None = None,
    meters: Path | None = None,
) -> tuple[dict[str, Any], int]:
    """Prepare both databases, prove the plans, publish them, begin the chain of each zone.

    Before anything is published, plans are compared with the meter table `meters`, or with that of a running service.
    `first` is the start of the first measured interval; None: the next one. Returns the result of
    `murmurate zone open --json` and the exit status. Warnings, and what is blocked, are printed.
    """
    databases.check_reachable(prepared=False)
    texts = {path: read_plan_document(path) for path in plans}
    for path, text in texts.items():
        with name_plan(str(path)):
            load_plan(text)
    planned = [ReleaseTerms.from_json(text) for text in texts.values()]
    if zones_file is None:
        terms = {its.zone: its for its in planned}
    elif len(planned) == 1:
        terms = dict.fromkeys(read_zone_names(zones_file), planned[0])
    else:
        raise UnknownNameError("plans", len(planned), "must be one with --zones: all of its zones come under it")
    openings = {}
    for zone, its in terms.items():
        step = its.interval_s
        begins = int(time.time() // step) + 1 if first is None else parse_interval_start(first, step, "--first") // step
        openings[zone] = ZoneOpening(plan=its.plan_digest, currency=its.currency, tick=its.tick, first=begins)
    with mask_database_errors():
        migrate_databases(databases)
        with closing(PublisherContext.from_databases(databases, keys)) as context:
            claimed = _find_claims(context, terms)
            begun = {zone: its for zone, its in terms.items() if zone not in claimed}
            warnings = compare_with_table(begun, meters, context.state)
            print_first(f"Warning: {sentence}" for sentence in warnings)
            _adopt_shards(context, claimed)
            context.register_plans(texts.values())
            new = {zone: terms[zone] for zone in terms.keys() - context.state.zones().keys()}
            assigned = _assign_shards(context, new, claimed, lead_intervals)
            stored = {zone: (assigned[zone][0], openings[zone]) for zone in new}
            context.state.store_openings(dict(assigned.values()), stored)
            shards, zones = context.state.shards(), context.state.zones()
            by_shard: dict[str, dict[str, ZoneOpening]] = {}
            for zone in terms:
                by_shard.setdefault(zones[zone][0], {})[zone] = zones[zone][1]
            desired = {
                shard: DesiredState(until=UNTIL_NO_INTERVAL, opening=shards[shard], zones=entering)
                for shard, entering in by_shard.items()
            }
            outcome, failed = publish(context, desired)
            since = {row.zone: row.since for table in context.state.tables().values() for row in table.rows}
    entries = []
    for zone, its in terms.items():
        shard, opening = zones[zone]
        begins = since.get(zone, opening.first)
        state = "entering" if zone not in since else "open already" if zone in claimed else "open"
        times = [format_utc(at * its.interval_s) for at in (begins, begins + shards[shard].lead)]
        entry = {"zone": zone, "shard": shard, "state": state, "plan": its.plan_digest}
        entries.append(entry | {"first_measured": times[0], "first_paid": times[1]})
    document = {"zones": entries, "warnings": warnings} | outcome_document(outcome)
    return document, report_outcome(outcome, failed)


def _find_claims(context: PublisherContext, zones: Collection[str]) -> dict[str, str]:
    """Return the shards that have claimed zones, by zone.

    Raises ChainError if a zone was closed: the log knows it, also where the state was lost. Raises MurmurateError if a
    zone cannot have the name.
    """
    claimed = context.log.shards_of(zones)
    for zone in zones:
        if zone not in claimed:
            check_zone_name(zone, "zone")
    heads = context.log.read_heads(set(claimed.values()))
    for zone, shard in sorted(claimed.items()):
        if shard in heads and (closed := heads[shard].table.closed_by_zone.get(zone)) is not None:
            after = format_utc((closed.last + 1) * heads[shard].tile.header.interval_s)
            raise ChainError("zone", zone, f"was closed at {after}, for ever; open the homes under another name")
    return claimed


def _assign_shards(
    context: PublisherContext, terms: Mapping[str, ReleaseTerms], claimed: Mapping[str, str], lead_intervals: int
) -> dict[str, tuple[str, ShardOpening]]:
    """A shard for each zone: the one that has claimed it, one with room, equal intervals and lead, or a new one."""
    shards, key = context.state.shards(), context.keyring.newest_signer.public_key
    names = context.log.shard_names() | shards.keys()
    members: dict[str, set[str]] = {shard: set(table.zones_ever) for shard, table in context.state.tables().items()}
    for zone, (shard, _) in context.state.zones().items():
        members.setdefault(shard, set()).add(zone)
    counts = Counter({shard: len(zones) for shard, zones in members.items()})  # also closed ones, and those to enter
    found: dict[str, tuple[str, ShardOpening]] = {}
    for zone, its in sorted(terms.items()):
        opening = ShardOpening(key=key, interval_s=its.interval_s, lead=lead_intervals)
        with_room = (
            name
            for name, other in reversed(shards.items())
            if (other.interval_s, other.lead) == (its.interval_s, lead_intervals) and counts[name] < MAX_ZONES
        )
        new_name = (name for number in count() if (name := f"{_name_prefix(key)}{number:04d}") not in names)
        shard = claimed.get(zone) or next(with_room, None) or next(new_name)
        names.add(shard)
        found[zone] = shard, shards.setdefault(shard, opening)
        counts[shard] += 1
    return found


def _name_prefix(key: str) -> str:
    return f"{key[:8]}-"


def _adopt_shards(context: PublisherContext, claimed: Mapping[str, str]) -> None:
    """Continue shards that the log has already: this state is new, or was lost. Their plans are proven again.

    Raises ChainError where the key of a shard is not among those of this publisher: another publisher writes its zones.
    """
    unknown = set(claimed.values()) - context.state.shards().keys()
    keys = {signer.public_key for signer in context.keyring.signers}
    heads = context.log.read_heads(unknown)
    for zone, shard in sorted(claimed.items()):
        key = heads[shard].tile.key_in_force if shard in heads else None
        own_name = any(shard.startswith(_name_prefix(each)) for each in keys)
        if shard in unknown and (key not in keys if key else not own_name):
            if shard not in heads:
                raise ChainError(
                    "zone", zone, f"is claimed for shard {shard}, which is not open; see murmurate log repair"
                )
            allowed = f"is in shard {shard} of this log already; its key is not among this publisher's keys"
            raise ChainError("zone", zone, allowed)
    for shard, (tile, table) in heads.items():
        texts = context.log.documents({row.plan for row in table.rows})
        for digest, text in texts.items():
            with name_plan(f"plan {digest[:12]}"):
                load_plan(text)
        context.state.register_plans(texts)
        header = tile.header
        opening = ShardOpening(key=header.key, interval_s=header.interval_s, lead=header.lead)
        context.state.store_openings({shard: opening}, {})
        context.state.assign_zones(
            {
                row.zone: (shard, ZoneOpening(plan=row.plan, currency=row.currency, tick=row.tick, first=row.since))
                for row in table.rows
            }
        )
