"""`murmurate zone open`: start the chain of each zone under a proven plan."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

from murmurate.commands.console import (
    outcome_document,
    print_warnings,
    publish,
    report_outcome,
    stderr,
    stdout,
    warn_of_open_schemas,
)
from murmurate.commands.json_output import format_utc, print_json
from murmurate.commands.plan_beside_table import compare_with_table
from murmurate.commands.plan_documents import name_plan, read_plan_document
from murmurate.errors import ChainError, UnknownNameError
from murmurate.files import read_text
from murmurate.planning.plan import Plan, load_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, ShardOpening, ZoneOpening
from murmurate.service.clock import parse_interval_start
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.service.worker.zone_warnings import MIN_LEAD
from murmurate.types import check_zone_name

MAX_ZONES_SHOWN = 20  # zones with a line of their own


def open_zones(
    plans: Sequence[Path],
    databases: Databases,
    keys: Path,
    *,
    lead_intervals: int,
    first: str | None,
    zones_file: Path | None = None,
    meters: Path | None = None,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """`murmurate zone open`: prepare both databases, prove the plans, publish them, begin the chain of each zone.

    Before anything is published, plans are compared with the meter table `meters`, or with that of a running service.
    """
    databases.check_reachable(prepared=False)
    if not quiet:
        _print_warnings(databases, lead_intervals)
    texts = {path: read_plan_document(path) for path in plans}
    for path, text in texts.items():
        prove_plan_document(text, str(path))
    terms = _terms_by_zone([ReleaseTerms.from_json(text) for text in texts.values()], zones_file)
    openings = {zone: _make_opening(its, first) for zone, its in terms.items()}
    with mask_database_errors():
        migrate_database(databases.state.dsn, "state")
        migrate_database(databases.log.dsn, "log")
        warn_of_open_schemas(databases)
        context = PublisherContext.from_databases(databases, keys)
        claimed = context.log.shards_of(terms)
        _refuse_closed(context, claimed)
        for zone in terms.keys() - claimed.keys():
            check_zone_name(zone, "zone")
        begun = {zone: its for zone, its in terms.items() if zone not in claimed}
        warnings = compare_with_table(begun, meters, context.state)
        if not quiet:
            print_warnings(warnings)
        _adopt_shards(context, claimed)
        context.register_plans(texts.values())
        known = context.state.zones()
        new = {zone: its for zone, its in terms.items() if zone not in known}
        shards = _assign_shards(context, new, claimed, lead_intervals)
        context.state.store_openings(
            dict(shards.values()),
            {zone: (shards[zone][0], openings[zone]) for zone in new},
        )
        outcome, failed = publish(context, _openings_to_publish(context, set(terms)))
        if as_json:
            members = {"zones": _opening_members(context, terms, set(claimed)), "warnings": warnings}
            print_json(members | outcome_document(outcome))
        elif not quiet:
            _print_openings(context, terms, set(claimed))
        context.close()
    return report_outcome(outcome, failed)


def _print_warnings(databases: Databases, lead_intervals: int) -> None:
    if databases.share_server:
        stderr.print("Warning: state and log are on one server. What destroys one must not reach the other:")
        stderr.print("keep the log on another machine, with other disks, other backups and another administrator.")
    if lead_intervals < MIN_LEAD:
        stderr.print(f"Warning: with --lead {lead_intervals} no price is in time: use --lead {MIN_LEAD} or more.")


def _terms_by_zone(plans: list[ReleaseTerms], zones_file: Path | None) -> dict[str, ReleaseTerms]:
    """The plan of each zone: the zone that a plan names, or with a file of names one plan for all of them."""
    if zones_file is None:
        return {terms.zone: terms for terms in plans}
    if len(plans) != 1:
        raise UnknownNameError("plans", len(plans), "must be one with --zones: all of its zones come under it")
    return dict.fromkeys(read_zone_names(zones_file), plans[0])


def read_zone_names(zones_file: Path) -> list[str]:
    """Read the names of zones, one a line. Empty lines are skipped."""
    names = [line.strip() for line in read_text(zones_file).splitlines() if line.strip()]
    if not names or len(set(names)) != len(names):
        repeated = next((name for name in names if names.count(name) > 1), None)
        raise UnknownNameError(str(zones_file), repeated or "empty", "must have the name of each zone once, one a line")
    return names


def _print_openings(context: PublisherContext, terms: Mapping[str, ReleaseTerms], open_before: set[str]) -> None:
    """Print when each zone was opened, or when it will be."""
    since = {row.zone: row.since for table in context.state.tables().values() for row in table.rows}
    shards, zones = context.state.shards(), context.state.zones()
    for zone, its in islice(terms.items(), MAX_ZONES_SHOWN):
        shard, opening = zones[zone]
        message = _opening_message(its, since.get(zone, opening.first), shards[shard].lead)
        if zone not in since:
            stdout.print(f"{zone}: enters shard {shard} when the intervals before are released. {message}")
        elif zone in open_before:
            stdout.print(f"{zone}: open already; it goes on as the log says. {message}")
        else:
            stdout.print(f"{zone}: open. {message}")
    if len(terms) > MAX_ZONES_SHOWN:
        waiting, before = len(terms.keys() - since.keys()), len(terms.keys() & open_before)
        stdout.print(f"... {len(terms):,} zones: {len(terms) - waiting:,} are open, {before:,} of them were before.")


def _opening_members(
    context: PublisherContext, terms: Mapping[str, ReleaseTerms], open_before: set[str]
) -> list[dict[str, str]]:
    """The same for scripts."""
    since = {row.zone: row.since for table in context.state.tables().values() for row in table.rows}
    shards, zones = context.state.shards(), context.state.zones()
    found = []
    for zone, its in terms.items():
        shard, opening = zones[zone]
        first = since.get(zone, opening.first)
        times = [format_utc(at * its.interval_s) for at in (first, first + shards[shard].lead)]
        state = "entering" if zone not in since else "open already" if zone in open_before else "open"
        members = {"zone": zone, "shard": shard, "state": state, "plan": its.plan_digest}
        found.append(members | dict(zip(("first_measured", "first_paid"), times, strict=True)))
    return found


def _make_opening(terms: ReleaseTerms, first: str | None) -> ZoneOpening:
    step = terms.interval_s
    begins = int(time.time() // step) + 1 if first is None else parse_interval_start(first, step, "--first") // step
    return ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=begins)


def _assign_shards(
    context: PublisherContext, terms: Mapping[str, ReleaseTerms], claimed: Mapping[str, str], lead_intervals: int
) -> dict[str, tuple[str, ShardOpening]]:
    """A shard for each zone: the one that has claimed it, one with room, equal intervals and lead, or a new one."""
    shards = context.state.shards()
    counts = _count_zones(context)
    names = _taken_names(context)
    key = context.keyring.newest_signer.public_key
    found: dict[str, tuple[str, ShardOpening]] = {}
    for zone, its in sorted(terms.items()):
        opening = ShardOpening(key=key, interval_s=its.interval_s, lead=lead_intervals)
        shard = claimed.get(zone) or _find_room(shards, counts, opening) or _new_name(key, names)
        names.add(shard)
        found[zone] = shard, shards.setdefault(shard, opening)
        counts[shard] += 1
    return found


def _count_zones(context: PublisherContext) -> Counter[str]:
    """Count the zones of each shard: those in it, those that were closed, and those that will enter it."""
    members: dict[str, set[str]] = {shard: set(table.zones_ever) for shard, table in context.state.tables().items()}
    for zone, (shard, _) in context.state.zones().items():
        members.setdefault(shard, set()).add(zone)
    return Counter({shard: len(zones) for shard, zones in members.items()})


def _find_room(shards: dict[str, ShardOpening], counts: Counter[str], wanted: ShardOpening) -> str | None:
    for shard, opening in reversed(shards.items()):
        if (opening.interval_s, opening.lead) == (wanted.interval_s, wanted.lead) and counts[shard] < MAX_ZONES:
            return shard
    return None


def _taken_names(context: PublisherContext) -> set[str]:
    return context.log.shard_names() | context.state.shards().keys()


def _new_name(key: str, names: set[str]) -> str:
    return next(name for n in count() if (name := f"{_name_prefix(key)}{n:04d}") not in names)


def _name_prefix(key: str) -> str:
    return f"{key[:8]}-"


def _refuse_closed(context: PublisherContext, claimed: Mapping[str, str]) -> None:
    """Raise ChainError if one of these zones was closed. The log knows it, also where the state was lost."""
    heads = context.log.read_heads(set(claimed.values()))
    for zone, shard in sorted(claimed.items()):
        if shard in heads and (closed := heads[shard].table.closed_by_zone.get(zone)) is not None:
            after = format_utc((closed.last + 1) * heads[shard].tile.header.interval_s)
            raise ChainError("zone", zone, f"was closed at {after}, for ever; open the homes under another name")


def _adopt_shards(context: PublisherContext, claimed: Mapping[str, str]) -> None:
    """Go on with shards that the log has already: this state is new, or was lost. Their plans are proven again.

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
            prove_plan_document(text, f"plan {digest[:12]}")
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


def _openings_to_publish(context: PublisherContext, zones: set[str]) -> dict[str, DesiredState]:
    by_shard: dict[str, dict[str, ZoneOpening]] = {}
    for zone, (shard, opening) in context.state.zones().items():
        if zone in zones:
            by_shard.setdefault(shard, {})[zone] = opening
    shards = context.state.shards()
    return {
        shard: DesiredState(until=UNTIL_NO_INTERVAL, opening=shards[shard], zones=openings)
        for shard, openings in by_shard.items()
    }


def _opening_message(terms: ReleaseTerms, since: int, lead: int) -> str:
    begins, paid = (datetime.fromtimestamp(at * terms.interval_s, UTC) for at in (since, since + lead))
    return f"First measured {begins:%Y-%m-%d %H:%M} UTC, first paid {paid:%Y-%m-%d %H:%M} UTC."


def prove_plan_document(text: str, name: str) -> Plan:
    """Prove a plan, with a spinner on standard error."""
    with stderr.status(f"proving {name}"), name_plan(name):
        return load_plan(text)
