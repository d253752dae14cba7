"""The rules of a shard: which tile may follow which. Publisher, readers and verifier all ask `check_follows`.

A line of a zone is a tile with one row and its proof. The same rules hold for it, as far as it shows what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.tile import (
    CLOSED,
    GENESIS_PREV,
    NO_ROOT,
    Hashes,
    NoiseCode,
    RowKind,
    RowProof,
    Rows,
    Tile,
    TileKind,
    hash_leaves,
    hashes_to_array,
    is_closed_by,
)
from murmurate.public_log.zone_table import ClosedZone, ZoneTable
from murmurate.units import BoolArray, IntArray

VerifySignature = Callable[[str, bytes, str], bool]  # public key, message, signature

COST_COLUMNS = ("epsilon_micro", "rho_micro")
_NOISE_BY_COST_COLUMN = {
    "epsilon_micro": (NoiseCode.LAPLACE, NoiseCode.HUBER),
    "rho_micro": (NoiseCode.GAUSSIAN,),
}
_SPENDS = {  # [noise code] whether noise of this code spends what the column holds
    column: np.array([code in codes for code in range(256)]) for column, codes in _NOISE_BY_COST_COLUMN.items()
}
_CHANGES_TABLE = frozenset({TileKind.OPEN, TileKind.ZONES})


@dataclass(frozen=True, slots=True, eq=False)
class ShardHead:
    """The last tile of a shard, and where the chain of each of its zones stands after it."""

    tile: Tile
    table: ZoneTable
    leaf_hashes: Hashes  # [zone, 32] of its last leaf
    totals: IntArray  # [cost column, zone] what its chain has spent
    last_rows: Rows | None = None  # [zone] its last row; of kind 0 where it has none. None: no zone has one

    @property
    def interval(self) -> int:
        """The last interval that was decided."""
        return self.tile.header.interval


def check_next(head: ShardHead | None, tile: Tile, table: ZoneTable, verify: VerifySignature) -> ShardHead:
    """Return the new head, if `tile` may come next after `head`. Raises ChainError naming the rule that it breaks."""
    check_signature(tile, verify)
    return check_follows(head, tile, table)


def check_signature(tile: Tile, verify: VerifySignature) -> None:
    """Raise ChainError unless the key that the header names has signed it."""
    if not verify(tile.header.key, tile.header.signed_bytes(), tile.signature):
        raise ChainError("signature", f"of {tile_label(tile)}", "must be made by the key that the header names")


def check_follows(head: ShardHead | None, tile: Tile, table: ZoneTable) -> ShardHead:
    """Return the new head, if `tile` may follow `head`. Raises ChainError otherwise. Signatures are not checked."""
    check_header(head, tile, table)
    if head is None or tile.header.kind is TileKind.ZONES:
        return _enter_zones(head, tile, table)
    if tile.header.kind is not TileKind.RELEASE:
        return ShardHead(tile, table, head.leaf_hashes, head.totals, head.last_rows)
    rows, zones = tile.rows, table.zones
    check_rows(rows, zones)
    _reject(zones, ~(rows["prev"] == head.leaf_hashes).all(axis=1), "prev", "must be the hash of the leaf before")
    totals = np.stack([rows[f"total_{cost}"] for cost in COST_COLUMNS])
    for number, cost in enumerate(COST_COLUMNS):
        wrong = (totals[number] != head.totals[number] + rows[cost]) | (totals[number] < 0)  # a sum may overflow
        _reject(zones, wrong, f"total_{cost}", "must be the total before plus this cost")
    hashes = hash_leaves(table, tile.header.interval, rows)
    _require(tile, "root", tile.header.root, tile.find_root(hashes))
    return ShardHead(tile, table, hashes_to_array(hashes), totals, rows)


def check_header(head: ShardHead | None, tile: Tile, table: ZoneTable) -> None:
    """Raise ChainError unless the header may follow `head`. Rows and zone tables are not looked at."""
    header = tile.header
    releases = header.kind is TileKind.RELEASE
    _require(tile, "table", table.digest, header.table)
    count = len(table) if tile.proof is None else header.count  # a line has one row of them
    _require(tile, "count", header.count, count if releases else 0)
    if (header.next_key is not None) != (header.kind is TileKind.KEY):
        raise ChainError("next_key", header.next_key, "belongs in a tile that changes the key, and in no other")
    if CLOSED in header.extensions and header.kind is not TileKind.ZONES:
        raise ChainError(CLOSED, f"in {tile_label(tile)}", "belongs in a tile that changes the zones, and in no other")
    if not releases:
        _require(tile, "root", header.root, NO_ROOT)
    if tile.proof is not None:
        _check_line(head, tile, tile.proof)
    if head is None:
        if tile.proof is None or header.kind is not TileKind.ZONES:  # where a zone enters a shard, its lines begin
            _require(tile, "kind", header.kind, TileKind.OPEN)
            _require(tile, "seq", header.seq, 0)
            _require(tile, "prev", header.prev, GENESIS_PREV)
        return
    last = head.tile.header
    if not head.table.rows:
        raise ChainError("shard", header.shard, "has ended with its last zone: no tile follows")
    if header.kind is TileKind.OPEN:
        raise ChainError("kind", header.kind, "opens a shard that is open already")
    _require(tile, "shard", header.shard, last.shard)
    _require(tile, "seq", header.seq, last.seq + 1)
    _require(tile, "interval", header.interval, last.interval + releases)
    _require(tile, "interval_s", header.interval_s, last.interval_s)
    _require(tile, "lead", header.lead, last.lead)
    _require(tile, "prev", header.prev, head.tile.hash)
    _require(tile, "key", header.key, head.tile.key_in_force)
    if header.kind not in _CHANGES_TABLE:
        _require(tile, "table", header.table, last.table)


def _check_line(head: ShardHead | None, tile: Tile, proof: RowProof) -> None:
    """Raise ChainError unless a line is about the zone and the plan of the line before."""
    before, closes = None if head is None else head.tile.proof, is_closed_by(tile.header, proof.zone)
    if head is None or before is None:
        if closes:
            raise ChainError(CLOSED, proof.zone, f"must have been opened before {tile_label(tile)}")
        return
    if not head.table.rows:
        raise ChainError("zone", proof.zone, f"is closed with tile {head.tile.header.seq}: no line follows")
    _require(tile, "zone", proof.zone, before.zone)
    if closes or tile.header.kind is not TileKind.ZONES:
        _require(tile, "plan", proof.plan, before.plan)


def _require(tile: Tile, field: str, value: object, expected: object) -> None:
    if value != expected:
        raise ChainError(field, value, f"must be {expected} in {tile_label(tile)}")


def _enter_zones(head: ShardHead | None, tile: Tile, table: ZoneTable) -> ShardHead:
    """Check a zone table against the one before. The chain of a zone that enters begins here."""
    if head is not None:
        _check_tables(head, tile, table)
    elif table.closed:
        raise ChainError(CLOSED, table.closed[0].zone, "must have been in the shard, which begins here")
    known = {} if head is None else head.table.position
    leaf_hashes = np.zeros((len(table), 32), np.uint8)
    totals = np.zeros((len(COST_COLUMNS), len(table)), np.int64)
    rows_before = None if head is None else head.last_rows
    last_rows = None if rows_before is None else np.zeros(len(table), rows_before.dtype)
    for at, row in enumerate(table.rows):
        before = known.get(row.zone)
        if head is not None and before is not None:
            if last_rows is not None and rows_before is not None:
                last_rows[at] = rows_before[before]
            leaf_hashes[at], totals[:, at] = head.leaf_hashes[before], head.totals[:, before]
        elif row.since != tile.header.interval + 1:
            raise ChainError("since", row.since, f"must be the next interval, where {row.zone} enters the shard")
    return ShardHead(tile, table, leaf_hashes, totals, last_rows)


def _check_tables(head: ShardHead, tile: Tile, after: ZoneTable) -> None:
    """What may change from one zone table to the next."""
    before = head.table
    for row in before.rows:
        now = after.find_row(row.zone)
        if now is None:
            continue
        if now.since != row.since:
            raise ChainError("since", now.since, f"must stay as it is for {row.zone}")
        if now.plan == row.plan and (now.currency, now.tick) != (row.currency, row.tick):
            raise ChainError("tick", now.tick, f"must stay {row.tick} for {row.zone} under the same plan")
    leaving = close_zones(head, before.position.keys() - after.position.keys())
    ended = {*before.closed, *leaving}
    stated = tile.header.extensions.get(CLOSED, {})
    if tile.proof is not None:  # a line shows nothing of zones that were closed before, and of the others
        stated = {zone.zone: stated[zone.zone] for zone in leaving}
    elif set(after.closed) != ended:
        odd = min(ended ^ set(after.closed)).zone
        raise ChainError("zone", odd, "is missing: a zone stays in its shard, open, or closed with what it has spent")
    _require(tile, CLOSED, stated, {zone.zone: zone.totals for zone in leaving})


def close_zones(head: ShardHead, zones: Iterable[str]) -> list[ClosedZone]:
    """Return what a zone table says about zones that are open until `head` and closed from then on."""
    position, rows = head.table.position, head.table.rows
    return [
        ClosedZone(*rows[at], head.interval, *map(int, head.totals[:, at]))
        for at in (position[zone] for zone in sorted(zones))
    ]


def check_rows(rows: Rows, zones: tuple[str, ...]) -> None:
    """What each kind of row may and must hold."""
    kind, noise, scale, core = (rows[name] for name in ("kind", "noise", "scale_wh", "core_wh"))
    unknown = (kind < RowKind.MEASURED) | (kind > RowKind.PUBLIC)
    _reject(zones, unknown, "kind", "must be measured, fallback, withheld or public")
    measured = kind == RowKind.MEASURED
    _reject(zones, (kind == RowKind.WITHHELD) & (rows["price_ticks"] != 0), "price_ticks", "is withheld: must be 0")
    _reject(zones, ~measured & ((noise != NoiseCode.NONE) | (scale != 0)), "noise", "belongs in a measured row")
    known = _SPENDS["epsilon_micro"][noise] | _SPENDS["rho_micro"][noise]
    _reject(zones, measured & ~known, "noise", "must be laplace, huber or gaussian")
    _reject(zones, measured & ~(np.isfinite(scale) & (scale > 0)), "scale_wh", "must be the scale of the noise")
    _reject(zones, (core < 0) | ((core > 0) & (noise != NoiseCode.HUBER)), "core_wh", "belongs to huber noise")
    if "noisy_wh" in (rows.dtype.names or ()) and rows["noisy_wh"].ndim == 1:
        _reject(zones, ~measured & (rows["noisy_wh"] != 0), "noisy_wh", "belongs in a measured row")
    for column in COST_COLUMNS:
        wrong = (rows[column] < 0) | ((rows[column] > 0) & ~_SPENDS[column][noise])
        _reject(zones, wrong, column, "must be what its noise spends, never negative")


def _reject(zones: tuple[str, ...], wrong: BoolArray, column: str, allowed: str) -> None:
    if wrong.any():
        raise ChainError(column, f"wrong for {zones[int(np.argmax(wrong))]}", allowed)


def rebuild_head(tiles: list[Tile], tables: dict[str, ZoneTable]) -> ShardHead:
    """Return the head after tiles that were checked before: from a release, or from the first tile, to the last."""
    first = tiles[0]
    table = tables[first.header.table]
    if first.header.kind is TileKind.RELEASE:
        hashes = hashes_to_array(hash_leaves(table, first.header.interval, first.rows))
        totals = np.stack([first.rows[f"total_{cost}"] for cost in COST_COLUMNS])
        head = ShardHead(first, table, hashes, totals, first.rows)
    else:
        head = check_follows(None, first, table)
    for tile in tiles[1:]:
        head = check_follows(head, tile, tables[tile.header.table])
    return head


def begin_with_release(tile: Tile, table: ZoneTable, verify: VerifySignature) -> ShardHead:
    """Return the head after a release whose predecessors are not known: header and rows are those that were signed.

    The hashes and totals before it are believed, because the key of the shard has signed them.
    """
    check_signature(tile, verify)
    _require(tile, "kind", tile.header.kind, TileKind.RELEASE)
    _require(tile, "table", table.digest, tile.header.table)
    _require(tile, "count", tile.header.count, len(table))
    check_rows(tile.rows, table.zones)
    head = rebuild_head([tile], {table.digest: table})
    _require(tile, "root", tile.header.root, tile.find_root([leaf.tobytes() for leaf in head.leaf_hashes]))
    return head


def begin_after_archive(kept: Sequence[Tile], tile: Tile, table: ZoneTable, verify: VerifySignature) -> ShardHead:
    """Return the head after the first release of a shard whose earlier releases are in an archive.

    `kept` are the tiles without rows before it, from tile 0 on. They lead from the key that opened the shard to the one
    that signed the release, each change signed by the key before.
    """
    if not kept or (kept[0].header.kind, kept[0].header.seq) != (TileKind.OPEN, 0):
        raise ChainError("shard", tile.header.shard, "must have its first tile in the log, also after it was archived")
    for each in kept:
        check_signature(each, verify)
    opening, key = kept[0].header, kept[0].header.key
    for each in (*kept, tile):
        _require(each, "key", each.header.key, key)
        for name in ("shard", "interval_s", "lead"):
            _require(each, name, getattr(each.header, name), getattr(opening, name))
        key = each.key_in_force
    return begin_with_release(tile, table, verify)


def tile_label(tile: Tile) -> str:
    """How a person finds a tile, or a line: number, shard, and zone."""
    zone = "" if tile.proof is None else f" for {tile.proof.zone}"
    return f"tile {tile.header.seq} of {tile.header.shard}{zone}"
