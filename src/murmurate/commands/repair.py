"""`murmurate log repair`: restore what the public log has lost, from what the state has seen of it or from a copy.

Only tiles that were public once and that follow the log's head are appended, byte for byte. Where the log holds another
valid tile in the place of one that was seen, nothing is repaired: the two headers are shown, and the operator must
decide.

A role that may append needs no signing key to add a tile, or to claim a name for a shard that does not exist. Tiles
that no reader accepts are named, and with `--set-aside` moved out of the log. A valid tile is never set aside, nor one
whose header the key has signed: a second value could be published in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from murmurate.errors import ChainError, MurmurateError
from murmurate.operations.console import print_first, print_json, stderr, stdout
from murmurate.operations.options import AsJson, Log, State, optional_imports

with optional_imports():
    import psycopg

    from murmurate.operations.log_source import open_log_source
    from murmurate.planning.release_terms import ReleaseTerms, compact_plan
    from murmurate.public_log.signing import verify_signature
    from murmurate.public_log.tile import TileKind, parse_tile
    from murmurate.public_log.tile_chain import ShardHead, check_next
    from murmurate.public_log.zone_table import ZoneTable
    from murmurate.publisher.invalid_tail import InvalidTail, find_invalid_tail, hash_header
    from murmurate.publisher.protocol import catch_up
    from murmurate.publisher.protocol import last_seq as find_last_seq
    from murmurate.publisher.steps import Offer, SeenState
    from murmurate.service.storage.databases import Databases, mask_database_errors
    from murmurate.service.storage.evidence import (
        count_evidence,
        find_unused_claims,
        set_claim_aside,
        set_tiles_aside,
    )
    from murmurate.service.storage.migrate import migrate_database
    from murmurate.service.storage.public_log_store import PostgresLogStore
    from murmurate.service.storage.session import UNLIMITED_OPTIONS, Session, connect
    from murmurate.service.storage.state_store import PostgresStateStore
    from murmurate.verification.shard import prove_contradiction
    from murmurate.verification.sources import ItemKind, read_items

_SELECT_SEEN_HEADS = "SELECT shard, seq FROM curator.shard WHERE seq >= 0 ORDER BY shard"
_SELECT_FIRST_SEEN = "SELECT shard, min(seq) FROM curator.tile WHERE seen GROUP BY shard"
_SELECT_SEEN_TILE = "SELECT body FROM curator.tile WHERE shard = %s AND seq = %s AND seen"
_SELECT_TILES_FROM = "SELECT body FROM curator.tile WHERE shard = %s AND seq >= %s"


def repair_log(
    state: State = "",
    log: Log = "",
    copy: Annotated[
        str | None, typer.Option("--from", help="Also from this copy of the log or archive: file, folder or address.")
    ] = None,
    unclaim: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Set aside the claim of a zone that is in no shard.")
    ] = None,
    *,
    set_aside: Annotated[
        bool, typer.Option("--set-aside", help="Move tiles that no reader accepts out of the log, as evidence.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Repair every shard. Returns 1 if something needs an operator: the log contradicts what was seen of it, holds
    tiles that no reader accepts or claims without a zone, or the copy does not follow.
    """
    databases = Databases.from_dsns(state=state, log=log)
    databases.check_reachable(prepared=False)
    console, removed = stderr if as_json else stdout, dict[str, InvalidTail]()
    with mask_database_errors(), ExitStack() as stack:
        connection = stack.enter_context(connect(databases.state.dsn, autocommit=True, options=UNLIMITED_OPTIONS))
        migrate_database(databases.state.dsn, "state")
        migrate_database(databases.log.dsn, "log")
        session = stack.enter_context(closing(Session(databases.log.dsn)))
        store = stack.enter_context(closing(PostgresLogStore(databases.log.dsn)))
        tables = stack.enter_context(closing(PostgresStateStore(databases.state.dsn)))
        repair = LogRepair(connection, tables, store, console)
        if unclaim is not None:
            repair.unclaim_zone(session, unclaim)
        repair.publish_documents()
        conflicts, tails = repair.examine_log()
        if set_aside:
            removed = repair.set_tails_aside(session, tails)
            tails = {shard: tail for shard, tail in tails.items() if shard not in removed}
        behind = {shard: seq for shard, seq in repair.seen.items() if shard not in conflicts | tails.keys()}
        restored = 0 if copy is None else repair.append_archived(copy, behind)
        from_state, not_taken = repair.append_seen(behind)
        restored, conflicts = restored + from_state, conflicts | not_taken
        if copy is not None and not conflicts and not tails:
            restored += repair.append_copy(copy)
        words = f"{restored:,} tiles restored to the log." if restored else "The log has lost nothing that was seen."
        console.print(words)
        claims, documents = repair.find_other_faults(session)
    _print_faults(console, conflicts, tails, claims, documents)
    if as_json:
        print_json(
            {
                "restored": restored,
                "contradictions": sorted(conflicts),
                "invalid": {shard: _tail_members(tail) for shard, tail in sorted(tails.items())},
                "set_aside": {shard: _tail_members(tail) for shard, tail in sorted(removed.items())},
                "unused_claims": claims,
                "documents_set_aside": documents,
            }
        )
    return 1 if conflicts or tails or claims else 0


def _tail_members(tail: InvalidTail) -> dict[str, object]:
    return {"first": tail.first_seq, "last": tail.last_seq, "reason": tail.reason}


def _tail_words(tail: InvalidTail) -> str:
    count = tail.last_seq - tail.first_seq + 1
    return f"tile {tail.first_seq}" if count == 1 else f"{count:,} tiles from {tail.first_seq} on"


def _print_faults(
    console: Console, conflicts: set[str], tails: Mapping[str, InvalidTail], claims: Mapping[str, str], documents: int
) -> None:
    """Name what needs an operator, and documents that were set aside."""
    print_first(
        (f"{shard}: no reader accepts {_tail_words(tail)}: {tail.reason}" for shard, tail in sorted(tails.items())),
        console,
    )
    if tails:
        console.print(
            f"{len(tails):,} shards stand still. murmurate log repair --set-aside moves these tiles out of the log;"
        )
        console.print('see docs/how-to/restore.md, "The log holds a tile that the key has not signed".')
    lines = (f"zone {zone} is claimed for shard {shard}, which has never had it." for zone, shard in claims.items())
    print_first(lines, console)
    if claims:
        console.print(
            f"{len(claims):,} names are claimed without a zone. To open one: murmurate log repair --unclaim ZONE."
        )
    if documents:
        console.print(f"{documents:,} documents were not what their digest says, and are set aside as evidence.")
    if conflicts:
        console.print(
            f"{len(conflicts):,} shards contradict what was seen and were not repaired. Do not publish for them;"
        )
        console.print("see docs/how-to/restore.md.")


class LogRepair:
    """Compares the log with the state, and appends what the log has lost. What it does is printed."""

    def __init__(
        self, state: psycopg.Connection, tables: PostgresStateStore, log: PostgresLogStore, console: Console
    ) -> None:
        self._state, self._tables, self._log, self._console = state, tables, log, console
        self._openings = tables.shards()
        self._first_seen: dict[str, int] = dict(state.execute(_SELECT_FIRST_SEEN).fetchall())  # later than archived
        self.seen: dict[str, int] = dict(state.execute(_SELECT_SEEN_HEADS).fetchall())  # the last tile of each shard

    def unclaim_zone(self, session: Session, zone: str) -> None:
        """Set aside the claim of a zone that was never in the shard that has claimed it."""
        shard = self._log.shards_of([zone]).get(zone)
        if shard is not None and shard == self._tables.zones().get(zone, ("",))[0]:
            allowed = f"will enter shard {shard}, as this state has it: its claim is right"
            raise MurmurateError("--unclaim", zone, allowed)
        self._console.print(f"{zone}: its claim for shard {set_claim_aside(session, zone)} is set aside as evidence.")

    def find_other_faults(self, session: Session) -> tuple[dict[str, str], int]:
        """Return claims of zones that are in no shard, and how many documents were set aside."""
        wanted = {zone: shard for zone, (shard, _) in self._tables.zones().items()}
        found = sorted(find_unused_claims(session).items())
        return {zone: shard for zone, shard in found if wanted.get(zone) != shard}, count_evidence(session, "document")

    def publish_documents(self) -> None:
        """Publish what the state has and the log may have lost. A damaged document is named and left out."""
        for digest, document in self._state.execute("SELECT digest, body FROM curator.document"):
            try:
                self._log.publish_documents({digest: document})
            except psycopg.errors.CheckViolation:
                words = "is damaged and was not published: restore it from a backup."
                self._console.print(f"The state's document {digest} {words}")

    def examine_log(self) -> tuple[set[str], dict[str, InvalidTail]]:
        """Return the shards of which the log holds another valid tile than was seen, and those with an invalid tail.

        The first tile that differs is printed; all later ones differ, for each names the hash of the one before.
        """
        conflicts, tails = set[str](), dict[str, InvalidTail]()
        for shard, (last_seq, _) in sorted(self._log.heads().items()):
            seq, tail = self._examine_shard(shard, last_seq)
            if seq is None:
                tails |= {} if tail is None else {shard: tail}
                continue
            conflicts.add(shard)
            pair = parse_tile(self._seen_body(shard, seq)), self._log.read_offer(shard, seq).tile
            self._console.print(f"{shard}: the log holds another tile {seq} than was seen before:")
            for tile in pair:
                self._console.print(tile.header_line.decode())
            proof = prove_contradiction(pair[0].header_line, pair[1].header_line, verify_signature)
            if proof is not None:
                words = "the two headers prove that two values were published."
                self._console.print(f"Both are signed by {proof.key}: {words}")
        return conflicts, tails

    def _examine_shard(self, shard: str, last_seq: int) -> tuple[int | None, InvalidTail | None]:
        """Return the number of a valid tile that differs from the one seen, and the tiles that no reader accepts.

        Tiles after the last one that is equal in state and log are checked. A shard that was not seen is checked as a
        whole. What was archived is in neither. Where nothing can be compared, the check begins with what the log still
        has: it raises ChainError unless the key of the shard has signed that.
        """
        compared = min(last_seq, self.seen.get(shard, -1))
        archived_seq = self._log.read({shard: last_seq})[shard].archived_seq
        first = max(self._first_seen.get(shard, 0), archived_seq + 1)
        low, high, middle = first - 1, compared + 1, compared  # usually all are equal
        while high - low > 1:
            body = next(self._log.read_bodies(shard, middle - 1), None)
            is_same = body is not None and _hash_body(self._seen_body(shard, middle)) == _hash_body(body)
            low, high = (middle, high) if is_same else (low, middle)
            middle = (low + high) // 2
        if low >= first:
            head: ShardHead | None = self._tables.head_at(shard, low)
        elif archived_seq < 0:
            head = None
        else:
            tail = self._log.read({shard: -1}, max_tiles=1)[shard]
            head = catch_up(SeenState(None, None), tail, verify_signature)[-1]
        opening = self._openings.get(shard)
        _, invalid = find_invalid_tail(
            head,
            self._log.read_bodies(shard, find_last_seq(head)),
            self._log.table,
            verify_signature,
            None if opening is None else opening.key,
        )
        differs = low < compared and (invalid is None or invalid.first_seq > low + 1)
        return low + 1 if differs else None, invalid

    def _seen_body(self, shard: str, seq: int) -> bytes:
        row = self._state.execute(_SELECT_SEEN_TILE, (shard, seq), binary=True).fetchone()
        if row is None:
            allowed = "must have every tile that it has seen; an archived one comes from the archive: --from FOLDER"
            raise ChainError("state", f"without tile {seq} of {shard}", allowed)
        return bytes(row[0])

    def set_tails_aside(self, session: Session, tails: Mapping[str, InvalidTail]) -> dict[str, InvalidTail]:
        """Set aside what may be. Returns the tiles that are gone, by shard."""
        done: dict[str, InvalidTail] = {}
        for shard, tail in sorted(tails.items()):
            try:
                held = (
                    self._state.execute(_SELECT_TILES_FROM, (shard, tail.first_seq), binary=True) if tail.signed else ()
                )
                tail.check_set_aside({_hash_body(body) for (body,) in held})
                set_tiles_aside(session, shard, tail)
            except ChainError as error:
                self._console.print(f"{shard}: not set aside: {error}")
                continue
            done[shard] = tail
            rest = f"continues after tile {tail.first_seq - 1}" if tail.first_seq else "is not open"
            self._console.print(f"{shard}: {_tail_words(tail)} set aside as evidence. The shard {rest}.")
        return done

    def append_archived(self, copy: str, shards: Mapping[str, int]) -> int:
        """Append from a copy what the log has lost and the state no longer has: it was archived. Returns how much."""
        heads = self._log.heads()
        lost = {
            shard: first
            for shard, first in self._first_seen.items()
            if shard in shards and heads.get(shard, (-1, ""))[0] + 1 < first
        }
        return self.append_copy(copy, lost) if lost else 0

    def append_seen(self, seen: Mapping[str, int]) -> tuple[int, set[str]]:
        """Append what was seen and is lost. Returns how many tiles, and the shards whose tiles the log does not take.

        All shards advance together, a tile at a time.
        """
        last = {shard: seq for shard, (seq, _) in self._log.heads().items()}
        behind = {shard: last.get(shard, -1) for shard in seen if last.get(shard, -1) < seen[shard]}
        restored = 0
        with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
            task = bar.add_task("repairing", total=sum(seen[shard] - seq for shard, seq in behind.items()))
            while behind:
                tiles = {shard: parse_tile(self._seen_body(shard, seq + 1)) for shard, seq in behind.items()}
                tables = {tile.header.table: self._tables.table(tile.header.table) for tile in tiles.values()}
                self._append({shard: Offer(tile, tables[tile.header.table]) for shard, tile in tiles.items()})
                heads = self._log.heads()
                taken = {shard for shard, seq in behind.items() if heads.get(shard, (-1, ""))[0] > seq}
                if not taken:
                    break
                restored += len(taken)
                bar.update(task, completed=restored)
                behind = {shard: seq + (shard in taken) for shard, seq in behind.items()}
                behind = {shard: seq for shard, seq in behind.items() if seq < seen[shard]}
        for shard, seq in behind.items():
            self._console.print(f"{shard}: the log does not take tile {seq + 1}; is another process publishing?")
        return restored, set(behind)

    def _append(self, offers: Mapping[str, Offer]) -> None:
        """Append tiles. The zones of a tile are claimed first, as they were before it was public."""
        changed = (offer for offer in offers.values() if offer.tile.header.kind in {TileKind.OPEN, TileKind.ZONES})
        claims = {zone: tile.header.shard for tile, table in changed for zone in table.zones}
        if claims:
            self._log.claim(claims)
        self._log.append(offers)

    def append_copy(self, name: str, before: Mapping[str, int] | None = None) -> int:
        """Append what a copy of the log holds beyond it, each tile checked to follow. Returns how many tiles.

        `before`: only of these shards, and only tiles before these numbers. ChainError names the first misfit.
        """
        heads: dict[str, ShardHead | None] = {}
        new: dict[str, list[Offer]] = {}
        for offer in self._read_copy(name):
            tile, shard = offer.tile, offer.tile.header.shard
            if shard not in heads:
                heads[shard] = None
                while (tail := self._log.read({shard: find_last_seq(heads[shard])})[shard]).tiles:
                    heads[shard] = catch_up(SeenState(heads[shard], None), tail, verify_signature)[-1]
            head = heads[shard]
            last = -1 if head is None else head.tile.header.seq
            if tile.header.seq > last:
                heads[shard] = check_next(head, tile, offer.table, verify_signature)
                new.setdefault(shard, []).append(offer)
            elif head is not None and tile.header.seq == last and tile.hash != head.tile.hash:
                raise ChainError("copy", f"another {last} of {shard}", "contradicts the log; verify both first")
        count = 0
        for shard, offers in sorted(new.items()):
            for offer in offers:
                seq = offer.tile.header.seq
                if before is not None and seq >= before.get(shard, 0):
                    continue
                self._append({shard: offer})
                if self._log.heads().get(shard, (-1, ""))[0] < seq:
                    raise ChainError("log", f"without tile {seq} of {shard}", "does not take it")
                count += 1
        return count

    def _read_copy(self, name: str) -> Iterator[Offer]:
        """Yield the tiles of a copy in their order. Plans and zone tables stand before them, and are published."""
        tables: dict[str, ZoneTable] = {}
        source = open_log_source(name)
        for item in read_items(source):
            if item.kind is ItemKind.PLAN:
                text = compact_plan(item.data.decode())
                self._log.publish_documents({ReleaseTerms.from_json(text).plan_digest: text})
            elif item.kind is ItemKind.ZONE_TABLE:
                table = ZoneTable.from_json(item.data.decode())
                tables[table.digest] = table
                self._log.publish_documents({table.digest: table.text})
            elif item.kind is ItemKind.ZONE_LINE:
                raise MurmurateError("copy", name, "must hold tiles: the lines of one zone cannot restore a shard")
        for item in read_items(source, ItemKind.TILE):
            tile = parse_tile(item.data)
            if tile.header.table not in tables:
                raise ChainError("copy", f"without zone table {tile.header.table}", "must hold the tables of its tiles")
            yield Offer(tile, tables[tile.header.table])


def _hash_body(body: bytes) -> str:
    return hash_header(bytes(body).partition(b"\n")[0])
