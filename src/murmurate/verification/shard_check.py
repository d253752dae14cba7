"""Verify the tiles of a shard, in any order and with any damage, using 64 bytes of memory per tile.

A run is a stretch of tiles of which each follows the one before. A right shard has one run. A tile that is signed but
follows none begins another, so that what comes after it is checked as well. A tile that is not signed by the key it
names, or whose rows are not those that were signed, takes no place at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.merkle import compute_root
from murmurate.public_log.tile import GENESIS_PREV, Rows, Tile, TileHeader, TileKind, hash_leaves, hashes_to_array
from murmurate.public_log.tile_chain import (
    COST_COLUMNS,
    ShardHead,
    VerifySignature,
    check_follows,
    check_header,
    check_rows,
    check_signature,
)
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.chain_run import (
    MAX_PROVEN_CONFLICTS,
    MAX_RUNS,
    BrokenRule,
    ChainRun,
    Conflict,
    HashByNumber,
    Opening,
    Placement,
    describe_range,
    rule_and_message,
)

UNSIGNED_TILE = "invalid signature: another tile has this number, and this one is no evidence"
DAMAGED_ROWS = "the rows are not those that were signed: their root is another one"


@dataclass(slots=True)
class TileRun:
    """Successive tiles, the last of them with the state of each zone."""

    head: ShardHead
    chain: ChainRun
    zones_known: bool  # whether leaf hashes and totals of the head are those of its zones
    body_hashes: bytearray = field(default_factory=bytearray)  # SHA-256 of each tile with its rows

    def extend(self, head: ShardHead, body_hash: bytes) -> None:
        self.head = head
        self.chain.extend(head.tile.header, head.tile.hash)
        self.body_hashes += body_hash

    def body_hash_of(self, seq: int) -> bytes:
        at = 32 * (seq - self.chain.first_seq)
        return bytes(self.body_hashes[at : at + 32])

    def head_before(self, tile: Tile, table: ZoneTable) -> ShardHead:
        """The head that a tile must follow. Where the state of the zones is not known, the rows say what it was."""
        if not self.zones_known and tile.header.kind is TileKind.ZONES:
            return replace(self.head, totals=_final_totals(self.head, table))
        if self.zones_known or tile.header.kind is not TileKind.RELEASE or len(tile.rows) != len(table):
            return self.head
        return replace(self.head, leaf_hashes=tile.rows["prev"], totals=_totals_before(tile.rows))


@dataclass(slots=True)
class ShardCheck:
    """The runs of one shard, and what did not fit."""

    verify: VerifySignature
    known_tile: tuple[int, str] | None = None  # number and hash of a tile that may come first: it was checked before
    runs: list[TileRun] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)  # some of the tiles that another one disputes
    conflict_count: int = 0  # and how many there are
    opening: Opening | None = None  # its first tile, if that is tile 0
    head_before: ShardHead | None = None  # what the last tile that was placed follows; None: it begins a run
    head_before_known: bool = False  # whether it shows the state of each zone
    headers: HashByNumber = field(default_factory=HashByNumber)  # of tiles without a zone table, and of lines of zones
    archived_seq: int = -1  # a copy says that releases up to this number are in an archive
    unchecked_before: TileHeader | None = None  # the last tile after such releases, where they were not given

    def place_tile(self, tile: Tile, table: ZoneTable, source: str) -> tuple[Placement, list[BrokenRule]]:
        """Where a tile stands, and which rules it breaks."""
        seq, body_hash = tile.header.seq, sha256(tile.rows.tobytes()).digest()
        holder = self._run_with(seq)
        known = holder.chain.hash_of(seq) if holder else None
        if holder and known == tile.hash:
            same = holder.body_hash_of(seq) == body_hash
            return (Placement.DUPLICATE, []) if same else (Placement.REJECTED, [BrokenRule("", "root", DAMAGED_ROWS)])
        try:
            check_signature(tile, self.verify)
        except ChainError as error:
            forged = BrokenRule("", "forgery", UNSIGNED_TILE)
            return Placement.REJECTED, [rule_and_message(error) if known is None else forged]
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
                followed.extend(head, body_hash)
                self._find_second_release(tile, followed, source)
                return Placement.NEXT, []
        return self._place_misfit(tile, table, source, known, body_hash)

    def _place_misfit(
        self, tile: Tile, table: ZoneTable, source: str, known: str | None, body_hash: bytes
    ) -> tuple[Placement, list[BrokenRule]]:
        """A signed tile that begins a run, or that breaks a rule."""
        if rows_are_damaged(tile, table):
            return Placement.REJECTED, [BrokenRule("", "root", DAMAGED_ROWS)]
        if known is not None:
            self.add_conflict(Conflict(tile.header_line, tile.header, "", known, source))
        followed = self._preceding_run(tile)
        broken = [] if known and not followed else list(self._broken_rules(followed, tile, table))
        if known is not None:
            return Placement.REJECTED, broken
        self._start_run(tile, table, source, body_hash)
        return (Placement.OUT_OF_ORDER if broken else Placement.NEXT), broken

    def place_header(self, tile: Tile, source: str) -> list[BrokenRule]:
        """Note a tile whose zone table is missing: its signature, and whether another tile has its number."""
        try:
            check_signature(tile, self.verify)
        except ChainError as error:
            return [rule_and_message(error)]
        self.note_header(tile, tile.header_line, "", source)
        return []

    def note_header(self, tile: Tile, item: bytes, zone: str, source: str) -> None:
        """Note the signed header of an item; it is a conflict if another header has its number."""
        known = self.hash_at(tile.header.seq) or self.headers.get(tile.header.seq)
        if known is None:
            self.headers.set(tile.header.seq, tile.hash)
        elif known != tile.hash:
            self.add_conflict(Conflict(item, tile.header, zone, known, source))

    def hash_at(self, seq: int) -> str | None:
        """The hash of the tile with this number, if its rows could be read."""
        holder = self._run_with(seq)
        return holder.chain.hash_of(seq) if holder else None

    def _run_with(self, seq: int) -> TileRun | None:
        return next((run for run in self.runs if run.chain.hash_of(seq) is not None), None)

    def _preceding_run(self, tile: Tile) -> TileRun | None:
        """The run whose last tile this one names as the one before, with the next number."""
        place = (tile.header.prev, tile.header.seq)
        heads = ((run, run.head.tile) for run in self.runs)
        return next((run for run, last in heads if (last.hash, last.header.seq + 1) == place), None)

    def _begins_with(self, tile: Tile) -> bool:
        return not self.runs and tile.header.prev == GENESIS_PREV and tile.header.seq == 0

    def _broken_rules(self, preceding: TileRun | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
        header = tile.header
        before = preceding or next((r for r in reversed(self.runs) if r.chain.header.seq + 1 == header.seq), None)
        if before or self._begins_with(tile):
            yield from find_broken_rules(before.head_before(tile, table) if before else None, tile, table)
            return
        if not self.runs and self.known_tile == (header.seq, tile.hash):
            pass
        elif not self.runs:
            words = f"the shard begins with tile {header.seq}; tile 0 and what follows it are missing"
            yield BrokenRule("", "gap", words)
        elif header.seq > (last := max(run.chain.header.seq for run in self.runs)):
            if header.seq > self.archived_seq + 1:
                yield BrokenRule("", "gap", f"no valid tile {describe_range(last + 1, header.seq - 1)} before it")
            elif header.key != (key := self.runs[-1].head.tile.key_in_force):
                yield BrokenRule("", "key", f"is {header.key}: must be {key}, which the tile before put in force")
            else:
                self.unchecked_before = header
        else:
            yield BrokenRule("", "order", f"comes after tile {last}, out of its order")
        yield from _broken_rows(None, tile, table)

    def _start_run(self, tile: Tile, table: ZoneTable, source: str, body_hash: bytes) -> None:
        self._find_second_release(tile, None, source)
        self.head_before = None
        if self._begins_with(tile):
            self.opening = Opening(tile.header, source)
        if len(self.runs) < MAX_RUNS or tile.header.seq <= self.archived_seq + 1:
            head, zones_known = _head_alone(tile, table)
            run = TileRun(head, ChainRun(tile.header), zones_known)
            run.extend(head, body_hash)
            self.runs.append(run)

    def _find_second_release(self, tile: Tile, mine: TileRun | None, source: str) -> None:
        """A tile that releases an interval which another run has released is a conflict, whatever its number."""
        if tile.header.kind is TileKind.RELEASE:
            for run in self.runs:
                seq = None if run is mine else run.chain.seq_of_release(tile.header.interval)
                if seq is not None:
                    other = str(run.chain.hash_of(seq))
                    self.add_conflict(Conflict(tile.header_line, tile.header, "", other, source))

    def add_conflict(self, conflict: Conflict) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < MAX_PROVEN_CONFLICTS:
            self.conflicts.append(conflict)


def rows_are_damaged(tile: Tile, table: ZoneTable) -> bool:
    """Whether the rows of a signed release are others than those that were signed."""
    if tile.header.kind is not TileKind.RELEASE or len(tile.rows) != len(table) or table.digest != tile.header.table:
        return False
    if not len(tile.rows):  # of a shard that has ended: not damaged, but nothing may be released
        return False
    return compute_root(hash_leaves(table, tile.header.interval, tile.rows)).hex() != tile.header.root


def find_broken_rules(head: ShardHead | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
    """Yield the rules that a tile breaks after `head`: of its header, or of each of its rows."""
    try:
        check_header(head, tile, table)
    except ChainError as error:
        yield rule_and_message(error)
        yield from _broken_rows(None, tile, table)
        return
    broken = list(_broken_rows(head, tile, table))
    yield from broken
    if not broken:
        try:
            check_follows(head, tile, table)
        except ChainError as error:
            yield rule_and_message(error)


def _broken_rows(head: ShardHead | None, tile: Tile, table: ZoneTable) -> Iterator[BrokenRule]:
    """Yield what is wrong with each row, by itself and after the row before of its zone."""
    if tile.header.kind is not TileKind.RELEASE or len(tile.rows) != len(table):
        return
    rows = tile.rows
    for at, zone in enumerate(table.zones):
        try:
            check_rows(rows[at : at + 1], (zone,))
        except ChainError as error:
            yield rule_and_message(error, zone)
        if head is None:
            continue
        if not np.array_equal(rows["prev"][at], head.leaf_hashes[at]):
            yield BrokenRule(zone, "prev", "must be the hash of the leaf before")
        for number, cost in enumerate(COST_COLUMNS):
            total, expected = int(rows[f"total_{cost}"][at]), int(head.totals[number][at]) + int(rows[cost][at])
            if total != expected:
                words = f"is {total}: must be {expected}, the total before plus this cost"
                yield BrokenRule(zone, f"total_{cost}", words)


def _head_alone(tile: Tile, table: ZoneTable) -> tuple[ShardHead, bool]:
    """The head after a tile whose predecessor is not known, and whether it shows the state of each zone."""
    if tile.header.kind is TileKind.RELEASE and len(tile.rows) == len(table):
        hashes = hashes_to_array(hash_leaves(table, tile.header.interval, tile.rows))
        totals = np.stack([tile.rows[f"total_{cost}"] for cost in COST_COLUMNS])
        return ShardHead(tile, table, hashes, totals, tile.rows), True
    if tile.header.kind is TileKind.OPEN:
        try:
            return check_follows(None, tile, table), True
        except ChainError:
            pass  # reported where the tile was placed
    nothing = np.zeros((len(table), 32), np.uint8), np.zeros((len(COST_COLUMNS), len(table)), np.int64)
    return ShardHead(tile, table, *nothing), False


def _final_totals(head: ShardHead, after: ZoneTable) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The totals of the zones of `head`, of those that `after` closes as it states them."""
    totals = head.totals.copy()
    for zone in after.closed:
        if (at := head.table.position.get(zone.zone)) is not None:
            totals[:, at] = list(zone.totals.values())
    return totals


def _totals_before(rows: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.stack([rows[f"total_{cost}"] - rows[cost] for cost in COST_COLUMNS])
