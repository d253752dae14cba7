"""`murmurate log repair`: restore what the public log has lost, from what the state has seen of it or from a copy.

Only tiles that were public once and that follow the log's head are appended, byte for byte. Where the log holds another
valid tile in the place of one that was seen, nothing is repaired: the two headers are shown, and the operator must
decide. Tiles that no reader accepts are named, and with `--set-aside` moved out of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing

import psycopg
from rich.console import Console
from rich.progress import Progress, TaskID

from murmurate.commands.log_source import open_log_source
from murmurate.commands.set_aside import (
    LogExaminer,
    first_seen,
    print_other_faults,
    print_tails,
    set_tails_aside,
    unclaim_zone,
)
from murmurate.errors import ChainError, MurmurateError
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import Tile, TileKind, parse_tile
from murmurate.public_log.tile_chain import ShardHead, check_next
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.invalid_tail import InvalidTail
from murmurate.publisher.protocol import catch_up
from murmurate.publisher.protocol import last_seq as find_last_seq
from murmurate.publisher.steps import Offer, SeenState
from murmurate.service.storage.databases import Databases, mask_database_errors
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.verification.shard import prove_contradiction
from murmurate.verification.sources import ItemKind, read_items

_stdout = Console(highlight=False, soft_wrap=True, markup=False)

_SELECT_SEEN_HEADS = "SELECT shard, seq FROM curator.shard WHERE seq >= 0 ORDER BY shard"
_SELECT_SEEN_TILE = "SELECT body FROM curator.tile WHERE shard = %s AND seq = %s AND seen"
_BAR_TITLE = "repairing"


def repair_log(
    databases: Databases, copy: str | None = None, *, set_aside: bool = False, unclaim: str | None = None
) -> int:
    """Repair every shard. Returns 1 if something needs an operator: the log contradicts what was seen of it, holds
    tiles that no reader accepts or claims without a zone, or the copy does not follow.
    """
    databases.check_reachable(prepared=False)
    with mask_database_errors(), ExitStack() as stack:
        state = stack.enter_context(connect(databases.state.dsn, autocommit=True, options=UNLIMITED_OPTIONS))
        migrate_database(databases.state.dsn, "state")
        migrate_database(databases.log.dsn, "log")
        log = stack.enter_context(closing(PostgresLogStore(databases.log.dsn)))
        tables = stack.enter_context(closing(PostgresStateStore(databases.state.dsn)))
        if unclaim is not None:
            unclaim_zone(databases.log.dsn, tables, log, unclaim)
        _publish_documents(state, log)
        seen: dict[str, int] = dict(state.execute(_SELECT_SEEN_HEADS).fetchall())
        conflicts, tails = _examine_log(state, tables, log, seen)
        if set_aside:
            done = set_tails_aside(LogExaminer(state, tables, log), databases.log.dsn, tails)
            tails = {shard: tail for shard, tail in tails.items() if shard not in done}
        error = Console(stderr=True)
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            behind = {shard: seq for shard, seq in seen.items() if shard not in conflicts | tails.keys()}
            restored_count = 0 if copy is None else _append_older(state, log, copy, behind)
            from_state, not_taken = _restore_seen(state, tables, log, behind, bar)
        restored_count += from_state
        conflicts |= not_taken
        if copy is not None and not conflicts and not tails:
            restored_count += _append_from_copy(log, copy)
        restored = f"{restored_count:,} tiles restored to the log."
        _stdout.print(restored if restored_count else "The log has lost nothing that was seen.")
        print_tails(tails)
        claim_count = print_other_faults(databases.log.dsn, tables)
    if conflicts:
        _stdout.print(
            f"{len(conflicts):,} shards contradict what was seen and were not repaired. Do not publish for them;"
        )
        _stdout.print("see docs/how-to/restore.md.")
    return 1 if conflicts or tails or claim_count else 0


def _publish_documents(state: psycopg.Connection, log: PostgresLogStore) -> None:
    """Publish what the state has and the log may have lost. A damaged document is named and left out."""
    for digest, document in state.execute("SELECT digest, body FROM curator.document"):
        try:
            log.publish_documents({digest: document})
        except psycopg.errors.CheckViolation:
            _stdout.print(f"The state's document {digest} is damaged and was not published: restore it from a backup.")


def _examine_log(
    state: psycopg.Connection, tables: PostgresStateStore, log: PostgresLogStore, seen: Mapping[str, int]
) -> tuple[set[str], dict[str, InvalidTail]]:
    """Return the shards of which the log holds another valid tile than was seen, and those with an invalid tail.

    The first tile that differs is printed.
    """
    examiner = LogExaminer(state, tables, log)
    conflicts: set[str] = set()
    tails: dict[str, InvalidTail] = {}
    for shard, (last_seq, _) in sorted(log.heads().items()):
        differing_seq, tail = examiner.examine_shard(shard, last_seq, seen.get(shard, -1))
        if differing_seq is not None:
            _print_difference(state, log, shard, differing_seq)
            conflicts.add(shard)
        elif tail is not None:
            tails[shard] = tail
    return conflicts, tails


def _append_older(state: psycopg.Connection, log: PostgresLogStore, copy: str, shards: Collection[str]) -> int:
    """Append from a copy what the log has lost and the state no longer has: it was archived. Returns how many tiles."""
    heads = log.heads()
    lost = {
        shard: first
        for shard, first in first_seen(state).items()
        if shard in shards and heads.get(shard, (-1, ""))[0] + 1 < first
    }
    return _append_from_copy(log, copy, lost) if lost else 0


def _restore_seen(
    state: psycopg.Connection, tables: PostgresStateStore, log: PostgresLogStore, seen: Mapping[str, int], bar: Progress
) -> tuple[int, set[str]]:
    """Append what was seen and is lost. Returns how many tiles, and the shards whose tiles the log does not take.

    All shards go on together, a tile at a time.
    """
    last = {shard: seq for shard, (seq, _) in log.heads().items()}
    behind = {shard: last.get(shard, -1) for shard in seen if last.get(shard, -1) < seen[shard]}
    task: TaskID = bar.add_task(_BAR_TITLE, total=sum(seen[shard] - seq for shard, seq in behind.items()))
    restored = 0
    while behind:
        offers = {shard: _seen_offer(state, tables, shard, seq + 1) for shard, seq in behind.items()}
        _claim_zones(log, offers)
        log.append(offers)
        heads = log.heads()
        taken = {shard for shard, seq in behind.items() if heads.get(shard, (-1, ""))[0] > seq}
        if not taken:
            break
        restored += len(taken)
        bar.update(task, completed=restored)
        behind = {shard: seq + (shard in taken) for shard, seq in behind.items()}
        behind = {shard: seq for shard, seq in behind.items() if seq < seen[shard]}
    for shard, seq in behind.items():
        _stdout.print(f"{shard}: the log does not take tile {seq + 1}; is another process publishing?")
    return restored, set(behind)


def _claim_zones(log: PostgresLogStore, offers: Mapping[str, Offer]) -> None:
    """Claim the zones of these tiles, as they were claimed before they were opened."""
    changed = (offer for offer in offers.values() if offer.tile.header.kind in {TileKind.OPEN, TileKind.ZONES})
    claims = {zone: tile.header.shard for tile, table in changed for zone in table.zones}
    if claims:
        log.claim(claims)


def _append_from_copy(log: PostgresLogStore, name: str, before: Mapping[str, int] | None = None) -> int:
    """Append what a copy of the log holds beyond it, each tile checked to follow; ChainError names the first misfit.

    `before`: only of these shards, and only tiles before these numbers.
    """
    new = _new_offers_of_copy(log, name)
    if before is not None:
        new = {
            shard: [offer for offer in new.get(shard, []) if offer.tile.header.seq < end]
            for shard, end in before.items()
        }
    for shard in sorted(new):
        for offer in new[shard]:
            seq = offer.tile.header.seq
            _claim_zones(log, {shard: offer})
            log.append({shard: offer})
            if log.heads().get(shard, (-1, ""))[0] < seq:
                raise ChainError("log", f"without tile {seq} of {shard}", "does not take it")
    return sum(map(len, new.values()))


def _new_offers_of_copy(log: PostgresLogStore, name: str) -> dict[str, list[Offer]]:
    """Return the tiles of a copy that the log does not have, by shard, each checked; their documents are published."""
    heads: dict[str, ShardHead | None] = {}
    new: dict[str, list[Offer]] = {}
    for offer in _offers_of_copy(log, name):
        tile, shard = offer.tile, offer.tile.header.shard
        if shard not in heads:
            heads[shard] = _rebuild_from_log(log, shard)
        head = heads[shard]
        last = -1 if head is None else head.tile.header.seq
        if tile.header.seq > last:
            heads[shard] = check_next(head, tile, offer.table, verify_signature)
            new.setdefault(shard, []).append(offer)
        elif head is not None and tile.header.seq == last and tile.hash != head.tile.hash:
            raise ChainError("copy", f"another {last} of {shard}", "contradicts the log; verify both first")
    return new


def _offers_of_copy(log: PostgresLogStore, name: str) -> Iterator[Offer]:
    """Yield the tiles of a copy in their order. Plans and zone tables stand before them, and are published."""
    tables: dict[str, ZoneTable] = {}
    source = open_log_source(name)
    for item in read_items(source):
        kind = item.kind
        if kind is ItemKind.PLAN:
            text = compact_plan(item.data.decode())
            log.publish_documents({ReleaseTerms.from_json(text).plan_digest: text})
        elif kind is ItemKind.ZONE_TABLE:
            table = ZoneTable.from_json(item.data.decode())
            tables[table.digest] = table
            log.publish_documents({table.digest: table.text})
        elif kind is ItemKind.ZONE_LINE:
            raise MurmurateError("copy", name, "must hold tiles: the lines of one zone cannot restore a shard")
    for item in read_items(source, ItemKind.TILE):
        tile = parse_tile(item.data)
        if tile.header.table not in tables:
            raise ChainError("copy", f"without zone table {tile.header.table}", "must hold the tables of its tiles")
        yield Offer(tile, tables[tile.header.table])


def _rebuild_from_log(log: PostgresLogStore, shard: str) -> ShardHead | None:
    head: ShardHead | None = None
    while True:
        tail = log.read({shard: find_last_seq(head)})[shard]
        if not tail.tiles:
            return head
        head = catch_up(SeenState(head, None), tail, verify_signature)[-1]


def _seen_offer(state: psycopg.Connection, tables: PostgresStateStore, shard: str, seq: int) -> Offer:
    tile = _seen_tile(state, shard, seq)
    return Offer(tile, tables.table(tile.header.table))


def _seen_tile(state: psycopg.Connection, shard: str, seq: int) -> Tile:
    row = state.execute(_SELECT_SEEN_TILE, (shard, seq)).fetchone()
    if row is None:
        allowed = "must have every tile that it has seen; one that was archived comes from the archive: --from FOLDER"
        raise ChainError("state", f"without tile {seq} of {shard}", allowed)
    return parse_tile(bytes(row[0]))


def _print_difference(state: psycopg.Connection, log: PostgresLogStore, shard: str, seq: int) -> None:
    """Show the first tile that differs; all later ones do, for each names the hash of the one before."""
    pair = _seen_tile(state, shard, seq), log.read_offer(shard, seq).tile
    proof = prove_contradiction(pair[0].header_line, pair[1].header_line, verify_signature)
    _stdout.print(f"{shard}: the log holds another tile {seq} than was seen before:")
    for tile in pair:
        _stdout.print(tile.header_line.decode())
    if proof is not None:
        _stdout.print(f"Both are signed by {proof.key}: the two headers prove that two values were published.")
