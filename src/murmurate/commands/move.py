"""`murmurate move`: hand a zone over from one shard to another.

First the zone leaves its shard, then it enters the other one, each with a tile of its own. Where the command is ended
in between, it is run again: the log shows what is left to do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from murmurate.commands.console import publish, report_outcome, stdout
from murmurate.commands.open import count_zones, make_shard_name
from murmurate.errors import ChainError
from murmurate.public_log.tile import TileKind
from murmurate.public_log.tile_chain import ShardHead, rebuild_head
from murmurate.public_log.zone_table import MAX_ZONES, ZoneTable
from murmurate.publisher.desired_state import UNTIL_NO_INTERVAL, DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import Outcome
from murmurate.publisher.steps import Offer
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.worker.publisher_context import PublisherContext


class _Move(NamedTuple):
    """A zone that goes from one shard to another."""

    zone: str
    source: str
    target: str
    claim: int  # the number with which it enters the target


def move_zone(zone: str, shard: str | None, databases: Databases, keys: Path) -> int:
    """`murmurate move`: from the next interval on, a zone is decided in another shard, or in a new one."""
    databases.check_reachable()
    with mask_database_errors():
        context = PublisherContext.from_databases(databases, keys)
        move = _find_move(context, zone, shard)
        if move is None:
            stdout.print(f"{zone}: in shard {shard} already.")
            return 0
        _check_own(context, move)
        status = _leave(context, move) or _enter(context, move)
        context.close()
    return status


def _find_move(context: PublisherContext, zone: str, shard: str | None) -> _Move | None:
    """Return what is to do: a move that was begun, or a new one; None where the zone is in the shard already."""
    shards = context.log.claims_of(zone)
    if not shards and zone in context.state.zones():
        raise ChainError(
            "zone", zone, "has not entered its shard yet: run murmurate release when its first interval is over"
        )
    if not shards:
        raise ChainError("zone", zone, "is not open; murmurate open plan.json opens it")
    tables = {name: offer.table for name, offer in context.log.read_heads({*shards, shard or ""}).items()}
    is_inside = shards[-1] in tables and zone in tables[shards[-1]].position
    if is_inside and shard == shards[-1]:
        return None
    if len(shards) > 1 and (shards[-1] not in tables or not _has_been_in(tables[shards[-1]], zone)):
        shards.pop()  # it was claimed for the last one and did not enter it yet
    source = shards[-1]
    target = dict(tables[source].moved).get(zone) if source in tables else None
    if target is None and not is_inside:
        raise ChainError("zone", zone, f"has not entered shard {source} yet: run murmurate release first")
    if target is not None and shard not in {None, target}:
        raise ChainError("shard", shard, f"is not where {zone} went: murmurate move {zone} {target} finishes its move")
    if target is None and shard in shards:
        raise ChainError("shard", shard, f"cannot take {zone}: a zone does not come back to a shard that it has left")
    if target is None and shard is not None and shard not in tables:
        raise ChainError("shard", shard, "is not open; without the name of a shard, murmurate move opens a new one")
    return _Move(zone, source, target or shard or make_shard_name(context), len(shards))


def _has_been_in(table: ZoneTable, zone: str) -> bool:
    return zone in table.position or zone in dict(table.moved)


def _check_own(context: PublisherContext, move: _Move) -> None:
    own = context.state.shards().keys()
    for shard in context.log.read_heads({move.source, move.target}).keys() - own:
        allowed = "is not of this publisher; if it is, run murmurate open with the plan of one of its zones"
        raise ChainError("shard", shard, allowed)


def _leave(context: PublisherContext, move: _Move) -> int:
    """Have the zone leave its shard, unless it has. Returns the exit status."""
    heads = context.log.read_heads({move.source, move.target})
    source, target = heads[move.source], heads.get(move.target)
    if move.zone not in source.table.position:
        return 0
    if len(source.table) == 1:
        raise ChainError("zone", move.zone, f"is the last one of shard {move.source}: a shard cannot be empty")
    if target is not None:
        _check_target(context, move, source, target)
    desired = DesiredState(until=UNTIL_NO_INTERVAL, moves={move.zone: move.target})
    outcome, failed = publish(context, {move.source: desired})
    return report_outcome(outcome, failed)


def _check_target(context: PublisherContext, move: _Move, source: Offer, target: Offer) -> None:
    """Raise ChainError unless the zone can enter the shard as soon as it has left the other."""
    here, there = source.tile.header, target.tile.header
    if source.tile.key_in_force != target.tile.key_in_force:
        allowed = f"is signed by another key than {move.source}: finish a rotation with murmurate rotate"
        raise ChainError("shard", move.target, allowed)
    if (here.interval_s, here.lead) != (there.interval_s, there.lead):
        allowed = f"must have intervals of {here.interval_s} s and lead {here.lead}, as {move.source} has"
        raise ChainError("shard", move.target, allowed)
    if max(len(target.table), count_zones(context)[move.target]) >= MAX_ZONES:
        raise ChainError("shard", move.target, f"is full: it has {MAX_ZONES:,} zones")
    if there.interval > here.interval:
        allowed = f"has decided later intervals than {move.source}, which {move.zone} would miss: run murmurate release"
        raise ChainError("shard", move.target, allowed)


def _enter(context: PublisherContext, move: _Move) -> int:
    """Have a zone that has left its shard enter the other. Returns the exit status."""
    head = _last_head_with(context, move)
    row, header = head.table.rows[head.table.position[move.zone]], head.tile.header
    left = ShardOpening(key=head.tile.key_in_force, interval_s=header.interval_s, lead=header.lead)
    opening = ZoneOpening(
        plan=row.plan,
        currency=row.currency,
        tick=row.tick,
        first=head.interval + 1,
        moved_from=head.chain_state(move.zone),
        came_from=left,
        claim=move.claim,
    )
    context.state.store_openings({move.target: left}, {})
    context.state.assign_zones({move.zone: (move.target, opening)})
    desired = DesiredState(
        until=UNTIL_NO_INTERVAL, opening=context.state.shards()[move.target], zones={move.zone: opening}
    )
    outcome, failed = publish(context, {move.target: desired})
    _print_entry(context, move, outcome, header.interval_s)
    return report_outcome(outcome, failed)


def _print_entry(context: PublisherContext, move: _Move, outcome: Outcome, interval_s: int) -> None:
    table = context.state.tables().get(move.target)
    row = None if table is None else table.find_row(move.zone)
    if row is not None:
        begins = datetime.fromtimestamp(row.since * interval_s, UTC)
        stdout.print(f"{move.zone}: in shard {move.target}, from the interval of {begins:%Y-%m-%d %H:%M} UTC on.")
    elif move.target in outcome.up_to_date and move.zone not in outcome.blocked_zones:
        stdout.print(f"{move.zone}: enters shard {move.target} when the intervals before are released.")


def _last_head_with(context: PublisherContext, move: _Move) -> ShardHead:
    """Return the head of the source before the tile with which the zone has left it."""
    offers = [context.log.read_offer(move.source, context.log.last_seq_with(move.source, move.zone))]
    while offers[0].tile.header.kind is not TileKind.RELEASE and offers[0].tile.header.seq:
        offers.insert(0, context.log.read_offer(move.source, offers[0].tile.header.seq - 1))
    return rebuild_head([offer.tile for offer in offers], {offer.table.digest: offer.table for offer in offers})
