"""One zone of a tile, as a line of JSON: enough to check its chain without reading any other zone.

The lines of a zone are `log.jsonl`: one for each tile of its shard, in order. A line holds the signed header of the
tile and, where the tile is a release, the zone's row with the hashes that prove that the row is in the tile. The last
line of a zone that was closed holds the header that closes it, which states what the zone has spent.

A line is read as a `Tile` with one row and its proof, and follows the rules of tiles (`tile_chain.check_follows`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.canonical import FORMAT_VERSION, canonical_json, is_hash, parse_canonical, require_types
from murmurate.public_log.merkle import make_proof
from murmurate.public_log.tile import (
    NoiseCode,
    RowKind,
    RowProof,
    Rows,
    Tile,
    TileHeader,
    TileKind,
    hash_leaves,
    is_closed_by,
    parse_header,
    row_dtype,
    row_members,
)
from murmurate.public_log.zone_table import ZoneRow, ZoneTable

_LINE_TYPES: dict[str, tuple[type, ...]] = {
    "murmurate_zone": (int,),
    "zone": (str,),
    "plan": (str,),
    "row": (dict, type(None)),
    "index": (int, type(None)),
    "proof": (list,),
    "tile": (dict,),
}


def line_table(line: Tile, since: int | None = None) -> ZoneTable:
    """Return what a line shows of its zone table: one zone, its plan and the digest. No zone, if the line closes it.

    `since` is the first interval of the zone, which a line does not state. None: the zone enters with this line.
    """
    if line.proof is None:
        raise ChainError("line", line.header.seq, "must be the part of one zone of a tile")
    zone = line.proof.zone
    row = ZoneRow(zone, line.proof.plan, "", "", line.header.interval + 1 if since is None else since)
    return ZoneTable(() if is_closed_by(line.header, zone) else (row,), stated_digest=line.header.table)


def make_zone_line(tile: Tile, table: ZoneTable, zone: str) -> Tile:
    """Return the part of a tile that is about one zone. The tile must have been checked."""
    if is_closed_by(tile.header, zone):
        return Tile(tile.header, tile.signature, tile.rows[:0], RowProof(zone, table.closed_by_zone[zone].plan))
    at = table.position[zone]
    plan = table.rows[at].plan
    if tile.header.kind is not TileKind.RELEASE:
        return Tile(tile.header, tile.signature, tile.rows[:0], RowProof(zone, plan))
    hashes = make_proof(hash_leaves(table, tile.header.interval, tile.rows), at)
    proof = RowProof(zone, plan, at, tuple(each.hex() for each in hashes))
    return Tile(tile.header, tile.signature, tile.rows[at : at + 1], proof)


def parse_zone_line(text: str) -> Tile:
    """Return the part of a tile in a line. Raises ChainError unless it proves that its row is in the tile."""
    members = parse_canonical(text, "line")
    require_types(members, _LINE_TYPES, "line")
    if members["murmurate_zone"] != FORMAT_VERSION:
        raise ChainError("murmurate_zone", members["murmurate_zone"], f"must be version {FORMAT_VERSION}")
    header, signature = parse_header(canonical_json(members["tile"]))
    if not is_hash(members["plan"]) or not all(is_hash(each) for each in members["proof"]):
        raise ChainError("plan", members["plan"], "and the proof must be 64 hexadecimal digits each")
    dtype, releases = row_dtype(header.row), header.kind is TileKind.RELEASE
    rows = np.zeros(0, dtype) if members["row"] is None else _parse_row(members["row"], dtype)
    proof = RowProof(members["zone"], members["plan"], members["index"], tuple(members["proof"]))
    if releases != bool(len(rows)) or releases != (proof.row_index is not None) or (proof.hashes and not releases):
        raise ChainError("row", members["row"], "belongs in the line of a release, with its index and its proof")
    line = Tile(header, signature, rows, proof)
    if releases and line.find_root(hash_leaves(line_table(line), header.interval, rows)) != header.root:
        words = f"of tile {header.seq} of {header.shard} for {proof.zone}"
        raise ChainError("proof", words, "must lead from the row to the root of the tile")
    return line


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


class LoggedRelease(NamedTuple):
    """What was decided for a zone in one interval."""

    header: TileHeader
    plan: str  # digest
    row: Rows  # one row


def find_release(tile: Tile, table: ZoneTable, zone: str) -> LoggedRelease | None:
    """Return what a tile, or a line, decides for a zone; None where it decides nothing. It must have been checked."""
    at = table.position.get(zone)
    if at is None or not len(tile.rows):
        return None
    row = tile.rows[at : at + 1].copy()  # not a view that keeps the tile
    return LoggedRelease(tile.header, table.rows[at].plan, row)
