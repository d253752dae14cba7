"""Verify a chain, in any order and with any damage: the tiles of a shard, or the lines of one of its zones.

Where two signed items contradict each other, both together are a proof that anyone can check.

A run is a stretch of tiles of which each follows the one before. A right chain has one run. A tile that is signed but
follows none begins another, so that what comes after it is checked as well. A tile that is not signed by the key it
names, or whose rows are not those that were signed, takes no place at all. Of each tile 64 bytes are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.tile import (
    CLOSED,
    GENESIS_PREV,
    Tile,
    TileHeader,
    TileKind,
    hash_leaves,
    parse_header,
    row_dtype,
)
from murmurate.public_log.tile_chain import (
    COST_COLUMNS,
    ShardHead,
    VerifySignature,
    check_follows,
    check_header,
    check_rows,
    check_signature,
    rebuild_head,
)
from murmurate.public_log.zone_line import line_table, parse_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.report import BrokenRule, MisbehaviourProof
from murmurate.verification.sources import READ_ERRORS, ItemKind, find_kind

MAX_RUNS = 64
MAX_PROVEN_CONFLICTS = 5  # disputes of one chain that are followed up
_BLOCK = 64  # numbers
_ENTERS = frozenset({TileKind.OPEN, TileKind.ZONES})


class Placement(Enum):
    """Where a tile stands."""

    NEXT = auto()  # it follows
    DUPLICATE = auto()  # it was seen before, to the byte
    OUT_OF_ORDER = auto()  # it is signed, and follows nothing
    REJECTED = auto()  # it is not signed, it is damaged, or another one has its place


class Conflict(NamedTuple):
    """A signed item, and another one that has its place."""

    item: bytes  # a header, or a line of a zone
    header: TileHeader
    zone: str  # empty where the shard is meant
    other_hash: str  # of the other tile, or of the other line
    source: str


class ChainRun:
    """Successive tiles: 64 bytes of each, and what it takes to find the tile of an interval."""

    def __init__(self, head: ShardHead, *, zones_known: bool) -> None:
        self.head = head  # after the last tile, with the state of each zone
        self.zones_known = zones_known  # whether leaf hashes and totals of the head are those of its zones
        self.first_seq = self.header.seq
        self.previous_interval = self.header.interval - (self.header.kind is TileKind.RELEASE)  # before the first tile
        self.hashes = bytearray()  # of each tile, or line
        self.body_hashes = bytearray()  # SHA-256 of the rows of each tile
        self.non_release_seqs: list[int] = []  # numbers of the tiles that release nothing

    @property
    def header(self) -> TileHeader:
        return self.head.tile.header

    def extend(self, head: ShardHead, item_hash: str, body_hash: bytes) -> None:
        self.head = head
        self.hashes += bytes.fromhex(item_hash)
        self.body_hashes += body_hash
        if self.header.kind is not TileKind.RELEASE:
            self.non_release_seqs.append(self.header.seq)

    def hash_of(self, seq: int) -> str | None:
        """The hash of the item with this number, if it is in the run."""
        at = 32 * (seq - self.first_seq)
        return self.hashes[at : at + 32].hex() if 0 <= at < len(self.hashes) else None

    def body_hash_of(self, seq: int) -> bytes:
        at = 32 * (seq - self.first_seq)
        return bytes(self.body_hashes[at : at + 32])

    def seq_of_release(self, interval: int) -> int | None:
        """The number of the tile that released an interval: one each, but for the tiles that release nothing."""
        seq = self.first_seq + interval - self.previous_interval - 1
        for silent in self.non_release_seqs:
            if silent > seq:
                break
            seq += 1
        return seq if interval > self.previous_interval and seq <= self.header.seq else None

    def head_before(self, tile: Tile, table: ZoneTable) -> ShardHead:
        """The head that a tile must follow. Where the state of the zones is not known, the tile says what it was."""
        if self.zones_known:
            return self.head
        if tile.header.kind is TileKind.ZONES:
            totals, closing = self.head.totals.copy(), tile.header.extensions.get(CLOSED)
            for zone, stated in closing.items() if isinstance(closing, dict) else ():
                at = self.head.table.position.get(zone)
                # One that states something else is reported where the tile was placed.
                with suppress(LookupError, TypeError, ValueError, OverflowError):
                    if at is not None:
                        totals[:, at] = [int(stated[f"total_{cost}"]) for cost in COST_COLUMNS]
            return replace(self.head, totals=totals)
        if tile.header.kind is not TileKind.RELEASE or len(tile.rows) != len(table):
            return self.head
        totals = np.stack([tile.rows[f"total_{cost}"] - tile.rows[cost] for cost in COST_COLUMNS])
        return replace(self.head, leaf_hashes=tile.rows["prev"], totals=totals)


class ChainCheck:
    """The runs of one chain, and what did not fit.

    `zone`: whose lines it is; empty: the tiles of a shard. `known_tile`: number and hash of a tile that may come first,
    because it was checked before. `archived_seq`: a copy says that releases up to this number are in an archive.
    """

    def __init__(
        self,
        verify: VerifySignature,
        zone: str = "",
        known_tile: tuple[int, str] | None = None,
        archived_seq: int = -1,
    ) -> None:
        self.verify, self.zone, self.known_tile, self.archived_seq = verify, zone, known_tile, archived_seq
        self.runs: list[ChainRun] = []
        self.conflicts: list[Conflict] = []  # some of the tiles that another one disputes
        self.conflict_count = 0  # and how many there are
        self.opening: tuple[TileHeader, str] | None = None  # header and source of its first tile, if it begins there
        self.head_before: ShardHead | None = None  # what the last tile that was placed follows; None: it begins a run
        self.head_before_known = False  # whether it shows the state of each zone
        self.headers: dict[int, bytes] = {}  # hashes of tiles without a zone table, and of lines of zones
        self.unchecked_before: TileHeader | None = None  # the last tile after archived releases that were not given
        self.read_numbers: dict[str, dict[int, int]] = {}  # by source: the tiles in it, a bit for each

    def place_tile(
        self, tile: Tile, table: ZoneTable, item: bytes, source: str, *, in_tiles: bool = False
    ) -> tuple[Placement, list[BrokenRule]]:
        """Where a tile or a line stands, and which rules it breaks.

        `item`: the header line, or the line. `in_tiles`: a line, or the one before it, is known from tiles.
        """
        seq, body_hash = tile.header.seq, sha256(tile.rows.tobytes()).digest()
        item_hash = tile.hash if tile.proof is None else sha256(item).hexdigest()
        holder, is_new = self._run_with(seq), self._note_number(source, seq)
        known = holder.hash_of(seq) if holder else None
        if holder and known == item_hash:
            if holder.body_hash_of(seq) != body_hash:
                return Placement.REJECTED, [self._damaged_rows()]
            twice = BrokenRule(self.zone, "repeated", "stands twice in this source")
            return Placement.DUPLICATE, [] if is_new else [twice]
        try:
            check_signature(tile, self.verify)
        except ChainError as error:
            words = f"another {'line' if self.zone else 'tile'} has this number, and this one is no evidence"
            forged = BrokenRule(self.zone, "forgery", f"invalid signature: {words}")
            return Placement.REJECTED, [self._rule_of(error) if known is None else forged]
        followed = self._preceding_run(tile)
        if followed and not known:
            before = followed.head_before(tile, table)
            try:
                head = check_follows(before, tile, table)
            except ChainError:
                pass  # told apart below
            else:
                self.head_before, self.head_before_known = before, followed.zones_known
                followed.zones_known |= tile.header.kind is TileKind.RELEASE
                followed.extend(head, item_hash, body_hash)
                self._find_second_release(tile, item, followed, source)
                return Placement.NEXT, []
        place, broken = self._place_misfit(tile, table, item, source, known, in_tiles=in_tiles)
        if place is not Placement.REJECTED and (len(self.runs) < MAX_RUNS or seq <= self.archived_seq + 1):
            begins = not in_tiles and self._begins_with(tile)
            releases = tile.header.kind is TileKind.RELEASE and len(tile.rows) == len(table)
            nothing = np.zeros((len(table), 32), np.uint8), np.zeros((len(COST_COLUMNS), len(table)), np.int64)
            run = ChainRun(ShardHead(tile, table, *nothing), zones_known=False)
            if releases or begins or tile.header.kind is TileKind.OPEN:
                with suppress(ChainError):  # reported where the tile was placed
                    run = ChainRun(rebuild_head([tile], {tile.header.table: table}), zones_known=True)
            run.extend(run.head, item_hash, body_hash)
            self.runs.append(run)
        return place, broken

    def _place_misfit(
        self, tile: Tile, table: ZoneTable, item: bytes, source: str, known: str | None, *, in_tiles: bool
    ) -> tuple[Placement, list[BrokenRule]]:
        """A signed tile that begins a run, or that breaks a rule. `known`: the hash of the one that has its place."""
        complete = tile.header.kind is TileKind.RELEASE and len(tile.rows) == len(table) > 0
        leaves = hash_leaves(table, tile.header.interval, tile.rows) if complete else []
        if table.digest == tile.header.table and leaves and tile.find_root(leaves) != tile.header.root:
            return Placement.REJECTED, [self._damaged_rows()]
        followed = self._preceding_run(tile)
        excused = in_tiles or (known is not None and not followed)
        broken = [] if excused else list(self._broken_rules(followed, tile, table))
        if known is not None:
            self.add_conflict(Conflict(item, tile.header, self.zone, known, source))
            return Placement.REJECTED, broken
        self._find_second_release(tile, item, None, source)
        self.head_before = None
        if not in_tiles and self._begins_with(tile):
            self.opening = (tile.header, source)
        return (Placement.OUT_OF_ORDER if broken else Placement.NEXT), broken

    def line_table(self, line: Tile) -> ZoneTable:
        """Return what a line shows of its zone table, given the lines before it."""
        followed = self._preceding_run(line)
        if followed and followed.head.table.rows:
            return line_table(line, followed.head.table.rows[0].since)
        return line_table(line) if self._begins_with(line) else line_table(line, line.header.interval - 1)

    def place_header(self, tile: Tile, source: str) -> list[BrokenRule]:
        """Note a tile whose zone table is missing: its signature, and whether another tile has its number."""
        try:
            check_signature(tile, self.verify)
        except ChainError as error:
            return [self._rule_of(error)]
        self.note_header(tile, tile.header_line, source)
        return []

    def note_header(self, tile: Tile, item: bytes, source: str) -> None:
        """Note the signed header of a tile, or of a line; it is a conflict if another header has its number."""
        known = self.hash_at(tile.header.seq)
        if known is None:
            known = self.headers.setdefault(tile.header.seq, bytes.fromhex(tile.hash)).hex()
        if known != tile.hash:
            zone = "" if tile.proof is None else tile.proof.zone
            self.add_conflict(Conflict(item, tile.header, zone, known, source))

    def hash_at(self, seq: int) -> str | None:
        """The hash of the tile or line with this number, if it has its place."""
        holder = self._run_with(seq)
        return holder.hash_of(seq) if holder else None

    def release_hash(self, interval: int) -> str:
        """The hash of the tile or line that released an interval; empty: none did."""
        places = ((run, run.seq_of_release(interval)) for run in self.runs)
        return next((str(run.hash_of(seq)) for run, seq in places if seq is not None), "")

    def add_conflict(self, conflict: Conflict) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < MAX_PROVEN_CONFLICTS:
            self.conflicts.append(conflict)

    def _note_number(self, source: str, seq: int) -> bool:
        """Note that a source has a tile of this number. Returns whether it is the first one."""
        blocks, bit = self.read_numbers.setdefault(source, {}), 1 << seq % _BLOCK
        before = blocks.get(seq // _BLOCK, 0)
        blocks[seq // _BLOCK] = before | bit
        return not before & bit

    def _damaged_rows(self) -> BrokenRule:
        return BrokenRule(self.zone, "root", "the rows are not those that were signed: their root is another one")

    def _rule_of(self, error: ChainError) -> BrokenRule:
        return BrokenRule(self.zone, error.field, str(error))

    def _run_with(self, seq: int) -> ChainRun | None:
        return next((run for run in self.runs if run.hash_of(seq) is not None), None)

    def _preceding_run(self, tile: Tile) -> ChainRun | None:
        """The run whose last tile this one names as the one before, with the next number."""
        place = (tile.header.prev, tile.header.seq)
        heads = ((run, run.head.tile) for run in self.runs)
        return next((run for run, last in heads if (last.hash, last.header.seq + 1) == place), None)

    def _begins_with(self, tile: Tile) -> bool:
        """Whether a tile begins the shard, or a line may be where its zone enters."""
        at_start = tile.header.prev == GENESIS_PREV and tile.header.seq == 0
        return not self.runs and (tile.header.kind in _ENTERS if self.zone else at_start)

    def _broken_rules(self, preceding: ChainRun | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
        header = tile.header
        before = preceding or next((run for run in reversed(self.runs) if run.header.seq + 1 == header.seq), None)
        if before or self._begins_with(tile):
            yield from self._find_broken(before.head_before(tile, table) if before else None, tile, table)
            return
        if not self.runs and self.known_tile == (header.seq, tile.hash):
            pass
        elif not self.runs:
            words = f"begins with tile {header.seq} of {header.shard}; where the zone enters the shard is missing"
            if not self.zone:
                words = f"the shard begins with tile {header.seq}; tile 0 and what follows it are missing"
            yield BrokenRule(self.zone, "gap", words)
        elif header.seq > (last := max(run.header.seq for run in self.runs)):
            if header.seq > self.archived_seq + 1:
                missing = str(last + 1) if header.seq == last + 2 else f"{last + 1} to {header.seq - 1}"
                words = f"no valid {'line of tile' if self.zone else 'tile'} {missing} before it"
                yield BrokenRule(self.zone, "gap", words)
            elif header.key != (key := self.runs[-1].head.tile.key_in_force):
                words = f"is {header.key}: must be {key}, which the tile before put in force"
                yield BrokenRule(self.zone, "key", words)
            else:
                self.unchecked_before = header
        else:
            yield BrokenRule(self.zone, "order", f"comes after tile {last}, out of its order")
        yield from _broken_rows(None, tile, table)

    def _find_broken(self, head: ShardHead | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
        """Yield the rules that a tile breaks after `head`: of its header, or of each of its rows."""
        try:
            check_header(head, tile, table)
        except ChainError as error:
            yield self._rule_of(error)
            yield from _broken_rows(None, tile, table)
            return
        broken = list(_broken_rows(head, tile, table))
        yield from broken
        if not broken:
            try:
                check_follows(head, tile, table)
            except ChainError as error:
                yield self._rule_of(error)

    def _find_second_release(self, tile: Tile, item: bytes, mine: ChainRun | None, source: str) -> None:
        """A tile that releases an interval which another run has released is a conflict, also under another number."""
        if tile.header.kind is TileKind.RELEASE:
            for run in self.runs:
                seq = None if run is mine else run.seq_of_release(tile.header.interval)
                if seq is not None:
                    self.add_conflict(Conflict(item, tile.header, self.zone, str(run.hash_of(seq)), source))


def _broken_rows(head: ShardHead | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
    """Yield what is wrong with each row, by itself and after the row before of its zone."""
    if tile.header.kind is not TileKind.RELEASE or len(tile.rows) != len(table):
        return
    rows = tile.rows
    for at, zone in enumerate(table.zones):
        try:
            check_rows(rows[at : at + 1], (zone,))
        except ChainError as error:
            yield BrokenRule(zone, error.field, str(error))
        if head is None:
            continue
        if not np.array_equal(rows["prev"][at], head.leaf_hashes[at]):
            yield BrokenRule(zone, "prev", "must be the hash of the leaf before")
        for number, cost in enumerate(COST_COLUMNS):
            total, expected = int(rows[f"total_{cost}"][at]), int(head.totals[number][at]) + int(rows[cost][at])
            if total != expected:
                words = f"is {total}: must be {expected}, the total before plus this cost"
                yield BrokenRule(zone, f"total_{cost}", words)


def prove_contradiction(first: bytes, second: bytes, verify: VerifySignature) -> MisbehaviourProof | None:
    """Return the proof that one key has signed two items that cannot both stand; None if they can.

    An item is a tile (its header is enough) or a line of a zone. A shard has one tile of each number and one release of
    each interval. A zone has one row for each interval, in all shards. Both signatures are checked here again.
    """
    one, other = _read_evidence(first), _read_evidence(second)
    if one is None or other is None or one.header.key != other.header.key:
        return None
    about, zone = "", ""
    if one.header.shard == other.header.shard and one.header != other.header:
        same_seq, same_interval = one.header.seq == other.header.seq, one.header.interval == other.header.interval
        both_release = one.header.kind is TileKind.RELEASE and other.header.kind is TileKind.RELEASE
        number = f"tile {one.header.seq}" if same_seq else ""
        interval = f"interval {one.header.interval}" if both_release and same_interval else ""
        about = " and ".join(filter(None, (number, interval)))
    if one.proof is not None and other.proof is not None and one.proof.zone == other.proof.zone:
        zone, places = one.proof.zone, [(each.header.interval, each.header.interval_s) for each in (one, other)]
        same_row = one.header.shard == other.header.shard and one.proof.plan == other.proof.plan
        same_row &= one.rows.tobytes() == other.rows.tobytes()
        if not about and len(one.rows) and len(other.rows) and places[0] == places[1] and not same_row:
            about = f"interval {one.header.interval}"
    signed = (verify(each.header.key, each.header.signed_bytes(), each.signature) for each in (one, other))
    if not about or not all(signed):
        return None
    headers = (one.header_line.decode(), other.header_line.decode())
    lines = (one.to_json(), other.to_json()) if zone else ()
    return MisbehaviourProof(one.header.shard, zone, about, one.header.key, headers, lines)


def _read_evidence(data: bytes) -> Tile | None:
    """Return the header of a tile, or a line; None where it is neither."""
    try:
        if find_kind(data) is ItemKind.ZONE_LINE:
            return parse_zone_line(data.decode())
        header, signature = parse_header(data.partition(b"\n")[0].decode())
    except READ_ERRORS:
        return None
    return Tile(header, signature, np.zeros(0, row_dtype()))
