"""One zone of a tile, as a line of JSON: enough to check its chain without reading any other zone.

The lines of a zone are `log.jsonl`: one for each tile of its shard, in order. A line holds the signed header of the
tile and, where the tile is a release, the zone's row with the hashes that prove that the row is in the tile. The last
line of a zone that was closed holds the header that closes it, which states what the zone has spent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.canonical import FORMAT_VERSION, canonical_json, parse_canonical, require_types
from murmurate.public_log.merkle import hash_leaf, make_proof, root_from_proof
from murmurate.public_log.tile import (
    CLOSED,
    GENESIS_PREV,
    NoiseCode,
    RowKind,
    Rows,
    Tile,
    TileHeader,
    TileKind,
    hash_leaves,
    parse_header,
    row_dtype,
)
from murmurate.public_log.tile_chain import COST_COLUMNS, check_rows
from murmurate.public_log.zone_table import NO_LEAF, ZoneTable, zone_prefix

_LINE_TYPES: dict[str, tuple[type, ...]] = {
    "murmurate_zone": (int,),
    "zone": (str,),
    "plan": (str,),
    "row": (dict, type(None)),
    "index": (int, type(None)),
    "proof": (list,),
    "tile": (dict,),
}
_HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class ZoneLine:
    """One tile, as far as it is about one zone."""

    zone: str
    plan: str  # digest; in force from this tile on
    tile: Tile  # without its rows
    row: Rows | None  # one row, where the tile is a release
    index: int | None = None  # of the row
    proof: tuple[str, ...] = ()

    @property
    def header(self) -> TileHeader:
        return self.tile.header

    @property
    def leaf_hash(self) -> str:
        """The hash of the leaf. Raises ChainError where there is no row."""
        if self.row is None:
            raise ChainError("row", "missing", "is only in the tile of a release")
        interval = self.header.interval.to_bytes(8, "little", signed=True)
        return hash_leaf(zone_prefix(self.zone, self.plan) + interval + self.row.tobytes()).hex()

    def to_json(self) -> str:
        return canonical_json(
            {
                "murmurate_zone": FORMAT_VERSION,
                "zone": self.zone,
                "plan": self.plan,
                "row": None if self.row is None else row_members(self.row),
                "index": self.index,
                "proof": list(self.proof),
                "tile": parse_canonical(self.tile.header_line.decode(), "header"),
            }
        )


def make_zone_line(tile: Tile, table: ZoneTable, zone: str) -> ZoneLine:
    """Return the line of a zone in the log of its shard. The tile must have been checked."""
    bare = Tile(tile.header, tile.signature, tile.rows[:0])
    if is_closed_by(tile.header, zone):
        return ZoneLine(zone, table.closed_by_zone[zone].plan, bare, None)
    at = table.position[zone]
    plan = table.rows[at].plan
    if tile.header.kind is not TileKind.RELEASE:
        return ZoneLine(zone, plan, bare, None)
    proof = make_proof(hash_leaves(table, tile.header.interval, tile.rows), at)
    return ZoneLine(zone, plan, bare, tile.rows[at : at + 1], at, tuple(each.hex() for each in proof))


def is_closed_by(header: TileHeader, zone: str) -> bool:
    """Whether a tile closes a zone. Its line in the tile is its last."""
    closing = header.extensions.get(CLOSED, {})
    return isinstance(closing, dict) and zone in closing


def parse_zone_line(text: str) -> ZoneLine:
    """Return the line in a text. Raises ChainError unless it is one, with a proof that its row is in the tile."""
    members = parse_canonical(text, "line")
    require_types(members, _LINE_TYPES, "line")
    if members["murmurate_zone"] != FORMAT_VERSION:
        raise ChainError("murmurate_zone", members["murmurate_zone"], f"must be version {FORMAT_VERSION}")
    header, signature = parse_header(canonical_json(members["tile"]))
    if not _is_hash(members["plan"]) or not all(_is_hash(each) for each in members["proof"]):
        raise ChainError("plan", members["plan"], "and the proof must be 64 hexadecimal digits each")
    dtype = row_dtype(header.row)
    row = None if members["row"] is None else _parse_row(members["row"], dtype)
    tile = Tile(header, signature, np.zeros(0, dtype))
    line = ZoneLine(members["zone"], members["plan"], tile, row, members["index"], tuple(members["proof"]))
    releases = header.kind is TileKind.RELEASE
    if releases != (row is not None) or releases != (line.index is not None) or (line.proof and not releases):
        raise ChainError("row", members["row"], "belongs in the line of a release, with its index and its proof")
    if line.row is not None and line.index is not None:
        proof = [bytes.fromhex(each) for each in line.proof]
        root = root_from_proof(bytes.fromhex(line.leaf_hash), line.index, header.count, proof)
        if root is None or root.hex() != header.root:
            raise ChainError("proof", f"of {zone_line_label(line)}", "must lead from the row to the root of the tile")
    return line


def row_members(row: Rows) -> dict[str, Any]:
    """Return a row in words: kind and noise by name, hashes in hexadecimal, the scale as the shortest decimal."""
    members: dict[str, Any] = {}
    for name in row.dtype.names or ():
        value = row[name][0]
        if value.ndim:
            members[name] = value.tobytes().hex() if value.dtype == np.uint8 else value.tolist()
        else:
            members[name] = repr(float(value)) if value.dtype.kind == "f" else int(value)
    return members | {
        "kind": RowKind(members["kind"]).name.lower(),
        "noise": NoiseCode(members["noise"]).name.lower(),
    }


def _parse_row(members: dict[str, Any], dtype: np.dtype[np.void]) -> Rows:
    names = dtype.names or ()
    row = np.zeros(1, dtype)
    try:
        for name in names:
            value = members[name]
            if name in {"kind", "noise"}:
                value = (RowKind if name == "kind" else NoiseCode)[value.upper()]
            if dtype[name].subdtype is not None:
                row[name][0] = np.frombuffer(bytes.fromhex(value), np.uint8) if isinstance(value, str) else value
            else:
                row[name] = float(value) if dtype[name].kind == "f" else int(value)
        readable = canonical_json(row_members(row)) == canonical_json(members)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
        readable = False
    if not readable:
        raise ChainError("row", "unreadable", f"must have exactly the columns {', '.join(names)}")
    return row


def _is_hash(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and _HEX_DIGITS.issuperset(text)


@dataclass(frozen=True, slots=True)
class ZoneHead:
    """Where the chain of one zone stands after a line."""

    line: ZoneLine
    leaf: str  # hash of its last leaf
    totals: tuple[int, ...]  # by cost column

    @property
    def key_in_force(self) -> str:
        return self.line.tile.key_in_force


def check_zone_follows(head: ZoneHead | None, line: ZoneLine) -> ZoneHead:
    """Return the new head, if `line` may follow. Raises ChainError naming the rule. Signatures are not checked.

    The first line must be the first tile of a shard or one that changes its zones: there a zone enters.
    """
    header = line.header
    if head is None:
        if header.kind not in {TileKind.OPEN, TileKind.ZONES}:
            raise ChainError("kind", header.kind, f"must open the shard or the zone in {zone_line_label(line)}")
        if header.kind is TileKind.OPEN:
            _require(line, seq=(header.seq, 0), prev=(header.prev, GENESIS_PREV))
        if is_closed_by(header, line.zone):
            raise ChainError("closed", line.zone, f"must have been opened before {zone_line_label(line)}")
        return ZoneHead(line, NO_LEAF, (0,) * len(COST_COLUMNS))
    last = head.line.header
    releases = header.kind is TileKind.RELEASE
    if is_closed_by(last, line.zone):
        raise ChainError("zone", line.zone, f"is closed with tile {last.seq}: no line follows")
    _require(
        line,
        zone=(line.zone, head.line.zone),
        shard=(header.shard, last.shard),
        key=(header.key, head.key_in_force),
        lead=(header.lead, last.lead),
        interval_s=(header.interval_s, last.interval_s),
        seq=(header.seq, last.seq + 1),
        interval=(header.interval, last.interval + releases),
        prev=(header.prev, head.line.tile.hash),
    )
    if header.kind is not TileKind.ZONES:
        _require(line, table=(header.table, last.table), plan=(line.plan, head.line.plan))
    if is_closed_by(header, line.zone):
        final = {f"total_{cost}": total for cost, total in zip(COST_COLUMNS, head.totals, strict=True)}
        _require(line, kind=(header.kind, TileKind.ZONES), plan=(line.plan, head.line.plan))
        _require(line, closed=(header.extensions[CLOSED][line.zone], final))
    if line.row is None:
        return replace(head, line=line)
    check_rows(line.row, (line.zone,))
    spent = tuple(int(line.row[cost][0]) for cost in COST_COLUMNS)
    totals = tuple(int(line.row[f"total_{cost}"][0]) for cost in COST_COLUMNS)
    expected = tuple(before + cost for before, cost in zip(head.totals, spent, strict=True))
    _require(line, totals=(totals, expected), leaf=(line.row["prev"][0].tobytes().hex(), head.leaf))
    return ZoneHead(line, line.leaf_hash, totals)


def _require(line: ZoneLine, **pairs: tuple[object, object]) -> None:
    for field, (value, expected) in pairs.items():
        if value != expected:
            raise ChainError(field, value, f"must be {expected} in {zone_line_label(line)}")


def zone_line_label(line: ZoneLine) -> str:
    """How a person finds a line: zone, shard and number."""
    return f"tile {line.header.seq} of {line.header.shard} for {line.zone}"
