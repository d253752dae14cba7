"""One round of a publisher, as a generator of steps that the caller performs.

    lock the shards ─ read the log ─ claim new zones ─ load the demand ─ write, save as pending, COMMIT ─ wait for the
    slot ─ append

The generator yields each step and is sent the result. It is stateless and catches no error: on any error or lost reply
the caller rolls back and starts a new round. All that it needs is in the state (pending tiles, what it has seen of the
log) and in the log (what is public).

Why at most one draw leaves for a zone and interval: a tile is sent only after it was saved as the shard's pending one;
while it may still be appended (it follows the head) no other is written; the log creates at most one tile for each
number of a shard; intervals only grow along a shard; a zone stays in one shard. A state that was set back has
lost its pending tile, and may send a second one; the log takes one of the two. Proof and assumptions: `protocol.md`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.tile import TileKind
from murmurate.public_log.tile_chain import ShardHead, VerifySignature, begin_after_archive, check_follows, check_next
from murmurate.publisher.desired_state import DesiredState, NextTile, find_next_tile, zones_to_enter
from murmurate.publisher.steps import (
    AppendToLog,
    ClaimZones,
    LoadDemand,
    LockShards,
    LogTail,
    Offer,
    ReadLog,
    SaveState,
    SeenState,
    Step,
    WaitForSlot,
    WriteTiles,
)
from murmurate.types import Demand


class BlockedCode(Enum):
    """Why a shard or a zone is blocked. Code decides by it; the text of a reason is for the operator."""

    STATE_DAMAGED = "state damaged"
    LOG_LOST_ENTRIES = "log lost entries"
    LOG_CONFLICT = "log conflict"  # the log holds another tile than the state has seen
    LOG_INVALID = "log invalid"  # the log holds a tile that does not follow the one before
    NO_RECORD = "no record"  # a tile or row cannot be written, or must not be published
    OTHER_SHARD = "other shard"  # the zone is in another shard


class BlockedReason(NamedTuple):
    """Why a shard or a zone is blocked."""

    code: BlockedCode
    text: str


class ShardBlockedError(ChainError):
    """State and log of a shard do not fit together, for a reason that has a code."""

    def __init__(self, code: BlockedCode, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.code = code


@dataclass(slots=True)
class Outcome:
    """Where the shards stand after a round. A shard in none of the sets was locked by another publisher."""

    up_to_date: set[str] = field(default_factory=set)  # as desired, and the state has seen it
    unfinished: set[str] = field(default_factory=set)  # need another round
    with_new_tiles: set[str] = field(default_factory=set)  # tiles that the state has not seen before
    blocked: dict[str, BlockedReason] = field(default_factory=dict)  # shards that need an operator
    blocked_zones: dict[str, BlockedReason] = field(default_factory=dict)  # zones that need one; the others go on


class Reconciliation(NamedTuple):
    """What is new in the log of a shard, and its next step: send the pending tile, write one, or neither."""

    new_heads: list[ShardHead]  # new in the log
    head: ShardHead | None  # the last of them, or the last one seen before
    stale_pending: bool  # the pending tile can never be appended
    behind: bool  # the log holds more than was read
    offer: Offer | None  # the pending tile, which may have been sent before


def reconcile_shard(seen_state: SeenState, log_tail: LogTail, verify: VerifySignature) -> Reconciliation:
    """Compare what is known of a shard with the log. Raises ShardBlockedError where not both can be right."""
    new_heads = catch_up(seen_state, log_tail, verify)
    head = new_heads[-1] if new_heads else seen_state.head
    stale = seen_state.pending is not None and _why_not_next(head, seen_state.pending) is not None
    behind = last_seq(head) < log_tail.last_seq
    return Reconciliation(new_heads, head, stale, behind, None if behind or stale else seen_state.pending)


def publish_round(
    desired: Mapping[str, DesiredState], write_tiles: WriteTiles, verify: VerifySignature
) -> Generator[Step, Any, Outcome]:
    """Bring each shard one tile closer to its desired state."""
    outcome = Outcome()
    seen: Mapping[str, SeenState] = yield LockShards(tuple(desired))
    tails: Mapping[str, LogTail] = yield ReadLog({shard: last_seq(state.head) for shard, state in seen.items()})
    reconciled: dict[str, Reconciliation] = {}
    for shard, state in seen.items():
        try:
            reconciled[shard] = reconcile_shard(state, tails[shard], verify)
        except ShardBlockedError as error:
            outcome.blocked[shard] = BlockedReason(error.code, str(error))
    may_write = {shard: at.head for shard, at in reconciled.items() if not at.behind and at.offer is None}
    wanted = [(zone, shard) for shard, head in may_write.items() for zone in zones_to_enter(head, desired[shard])]
    holders: Mapping[str, str] = (yield ClaimZones(dict(wanted))) if wanted else {}
    for zone, shard in wanted:  # a zone that two shards want is there twice
        if holders[zone] != shard:
            words = f"is in shard {holders[zone]}: it cannot enter shard {shard}"
            outcome.blocked_zones[zone] = BlockedReason(BlockedCode.OTHER_SHARD, words)
    next_tiles: dict[str, NextTile] = {}
    for shard, head in may_write.items():
        claimed = {zone for zone, holder in holders.items() if holder == shard}
        try:
            tile = find_next_tile(head, desired[shard], claimed)
        except ChainError as error:
            outcome.blocked[shard] = BlockedReason(BlockedCode.NO_RECORD, str(error))
            continue
        if tile is not None:
            next_tiles[shard] = tile
    demand: Demand = yield LoadDemand(
        {
            shard: (tile.interval, tile.table.zones)
            for shard, tile in next_tiles.items()
            if tile.kind is TileKind.RELEASE and not tile.withheld
        }
    )
    written, refused, withheld = write_tiles(next_tiles, demand)
    drafts = {shard: Offer(tile, next_tiles[shard].table) for shard, tile in written.items()}
    invalid = {shard: _why_not_next(may_write[shard], draft) for shard, draft in drafts.items()}
    no_tile = refused | {shard: text for shard, text in invalid.items() if text is not None}
    outcome.blocked |= {shard: BlockedReason(BlockedCode.NO_RECORD, text) for shard, text in no_tile.items()}
    outcome.blocked_zones |= {zone: BlockedReason(BlockedCode.NO_RECORD, text) for zone, text in withheld.items()}
    drafts = {shard: draft for shard, draft in drafts.items() if shard not in outcome.blocked}
    outcome.with_new_tiles = {shard for shard, at in reconciled.items() if at.new_heads}
    dropped: dict[str, Offer | None] = {shard: None for shard, at in reconciled.items() if at.stale_pending}
    yield SaveState({shard: reconciled[shard].new_heads for shard in outcome.with_new_tiles}, dropped | drafts)
    offers = {shard: at.offer for shard, at in reconciled.items() if at.offer is not None} | drafts
    if offers:
        yield WaitForSlot()
        yield AppendToLog(offers)
    outcome.unfinished = {shard for shard, at in reconciled.items() if at.behind} | offers.keys()
    outcome.up_to_date = reconciled.keys() - outcome.unfinished - outcome.blocked.keys()
    return outcome


def catch_up(seen_state: SeenState, log_tail: LogTail, verify: VerifySignature) -> list[ShardHead]:
    """Heads of the log that the state has not seen, each checked to follow the one before.

    The signature of the state's own pending tile is not checked again.
    """
    if seen_state.damage is not None:
        allowed = f"must be restored from a backup: {seen_state.damage}"
        raise ShardBlockedError(BlockedCode.STATE_DAMAGED, "state", "damaged", allowed)
    seen_seq = last_seq(seen_state.head)
    if log_tail.last_seq < seen_seq:
        allowed = f"has lost tiles up to {seen_seq}: repair it first"
        raise ShardBlockedError(BlockedCode.LOG_LOST_ENTRIES, "log", f"at {log_tail.last_seq}", allowed)
    if (
        seen_state.head is not None
        and log_tail.last_seq == seen_seq
        and log_tail.last_hash != seen_state.head.tile.hash
    ):
        allowed = "contradicts what was seen of it: do not repair the log, keep both tiles"
        raise ShardBlockedError(BlockedCode.LOG_CONFLICT, "head of the log", "another one", allowed)
    if seen_state.head is not None and seen_seq < log_tail.archived_seq:
        allowed = f"is older than the archive, which ends with tile {log_tail.archived_seq}: set up a new state"
        raise ShardBlockedError(BlockedCode.STATE_DAMAGED, "state", f"at tile {seen_seq}", allowed)
    new_heads: list[ShardHead] = []
    head = seen_state.head
    for offer in log_tail.tiles:
        try:
            head = _follow_offer(head, offer, seen_state.pending, log_tail, verify)
        except ChainError as error:
            found = f"not valid from tile {max(last_seq(head), log_tail.archived_seq) + 1} on"
            raise ShardBlockedError(BlockedCode.LOG_INVALID, "log", found, str(error)) from error
        new_heads.append(head)
    return new_heads


def _follow_offer(
    head: ShardHead | None, offer: Offer | str, pending: Offer | None, log_tail: LogTail, verify: VerifySignature
) -> ShardHead:
    if isinstance(offer, str):
        raise ChainError("tile", "unreadable", offer)
    if head is None and log_tail.archived_seq >= 0:
        return begin_after_archive(log_tail.kept, offer.tile, offer.table, verify)
    if pending is not None and offer.tile.hash == pending.tile.hash:
        return check_follows(head, offer.tile, offer.table)
    return check_next(head, offer.tile, offer.table, verify)


def last_seq(head: ShardHead | None) -> int:
    """Return the number of the last tile that was seen; -1 where there is none."""
    return -1 if head is None else head.tile.header.seq


def _why_not_next(head: ShardHead | None, offer: Offer) -> str | None:
    """Return why a tile cannot be appended; None while it can, and no other may be written in its place."""
    try:
        check_follows(head, offer.tile, offer.table)
    except ChainError as error:
        return str(error)
    return None
