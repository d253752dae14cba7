"""The prices of a zone in the log. Of each tile only a header and a row are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from psycopg import Connection

from murmurate.errors import ChainError
from murmurate.public_log.tile import RowKind, TileHeader, TileKind, parse_header, row_dtype
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.log_reader.zone_view import PRICE_KINDS, PlanEnd, Price, find_tick
from murmurate.service.storage.tile_archive import ArchivedTile

LoadTable = Callable[[Connection, str], ZoneTable]  # by digest

_HEADER_BYTES = 4096  # where the header of a tile usually ends
_SELECT_STARTS = """
    SELECT seq, substring(body FROM 1 FOR %s), extract(epoch FROM taken)::float8
    FROM public_log.tile WHERE shard = %s AND interval BETWEEN %s AND %s ORDER BY seq"""
_SELECT_TABLE_CHANGES = """
    SELECT interval FROM public_log.tile WHERE shard = %(shard)s AND interval BETWEEN %(first)s AND %(last)s
    GROUP BY interval HAVING count(*) > 1
        OR interval <= (SELECT a.interval FROM public_log.archived AS a WHERE a.shard = %(shard)s)
    ORDER BY interval"""  # beside a release, which may have left the log: another table, or another key
_SELECT_BEFORE = "SELECT interval FROM public_log.tile WHERE shard = %s AND seq < %s ORDER BY seq DESC LIMIT 1"
_SELECT_TILE = "SELECT body FROM public_log.tile WHERE shard = %s AND seq = %s"
_SELECT_ROWS = """
    SELECT t.seq, substring(t.body FROM mine.start FOR mine.size)
    FROM unnest(%s::bigint[], %s::int[], %s::int[]) AS mine (seq, start, size)
    JOIN public_log.tile AS t ON t.shard = %s AND t.seq = mine.seq ORDER BY t.seq"""


class _TileStart(NamedTuple):
    seq: int
    header: TileHeader
    header_size: int  # bytes of its line, without the end
    table: ZoneTable
    logged_s: float


def read_entry_key(connection: Connection, load_table: LoadTable, shard: str, row: ZoneRow) -> str:
    """Return the key that signed the tile with which a zone entered its shard: the one before its first interval."""
    for start in _read_starts(connection, load_table, shard, row.since - 1, row.since - 1):
        if row.zone in start.table.position:
            return start.header.key
    raise ChainError("since", str(row.since), f"must be the interval after {row.zone} entered {shard}")


def read_plan_ends(
    connection: Connection, load_table: LoadTable, shard: str, zone: str, first: int, last: int
) -> list[PlanEnd]:
    """Return the plans of a zone whose last interval is in a stretch of intervals, the oldest first."""
    ends: list[PlanEnd] = []
    stretch = {"shard": shard, "first": first, "last": last}
    for (interval,) in connection.execute(_SELECT_TABLE_CHANGES, stretch).fetchall():
        starts = [*_read_starts(connection, load_table, shard, interval, interval)]
        if starts[0].header.kind is TileKind.ZONES:  # the release before it was archived
            (before,) = connection.execute(_SELECT_BEFORE, (shard, starts[0].seq)).fetchone() or (interval,)
            starts = [*_read_starts(connection, load_table, shard, before, before)][-1:] + starts
        tables = [start.table for start in starts]
        plans = [table.rows[table.position[zone]].plan for table in tables if zone in table.position]
        if plans and plans[0] != plans[-1]:
            ends.append(PlanEnd(plans[0], interval + 1))
    return ends


def read_zone_prices(
    connection: Connection, load_table: LoadTable, shard: str, zone: str, first: int, last: int
) -> list[Price]:
    """Return the prices that were decided for a zone in some intervals of its shard."""
    wanted: dict[int, _TileStart] = {}
    offsets: list[int] = []
    sizes: list[int] = []
    for start in _read_starts(connection, load_table, shard, first, last):
        if start.header.kind is TileKind.RELEASE and zone in start.table.position:
            size = row_dtype(start.header.row).itemsize
            wanted[start.seq] = start
            offsets.append(start.header_size + 2 + start.table.position[zone] * size)
            sizes.append(size)
    found = connection.execute(_SELECT_ROWS, (list(wanted), offsets, sizes, shard), binary=True).fetchall()
    return [_price_of_row(bytes(row), wanted[seq], zone) for seq, row in found]


def read_archived_prices(
    connection: Connection, load_table: LoadTable, tiles: Iterable[ArchivedTile], zone: str
) -> Iterator[Price]:
    """Yield the prices that were decided for a zone in tiles of the archive."""
    for tile in tiles:
        header, header_size = tile.read_header()
        table = load_table(connection, header.table)
        if header.kind is TileKind.RELEASE and zone in table.position:
            size = row_dtype(header.row).itemsize
            start = _TileStart(tile.seq, header, header_size, table, tile.taken_s)
            yield _price_of_row(tile.read(header_size + 1 + table.position[zone] * size, size), start, zone)


def _read_starts(
    connection: Connection, load_table: LoadTable, shard: str, first: int, last: int
) -> Iterator[_TileStart]:
    """Yield the headers of the tiles of a stretch of intervals, each with its zone table."""
    rows = connection.execute(_SELECT_STARTS, (_HEADER_BYTES, shard, first, last), binary=True).fetchall()
    for seq, data, taken_s in rows:
        line, end, _ = bytes(data).partition(b"\n")
        if not end:
            line = _require_tile(connection, shard, seq).partition(b"\n")[0]
        header, _ = parse_header(line.decode())
        yield _TileStart(seq, header, len(line), load_table(connection, header.table), float(taken_s))


def _require_tile(connection: Connection, shard: str, seq: int) -> bytes:
    row = connection.execute(_SELECT_TILE, (shard, seq), binary=True).fetchone()
    if row is None:
        raise ChainError("tile", f"{seq} of {shard}", "is not in the log")
    return bytes(row[0])


def _price_of_row(data: bytes, start: _TileStart, zone: str) -> Price:
    row = np.frombuffer(data, row_dtype(start.header.row))[0]
    kind = RowKind(int(row["kind"]))
    ticks = None if kind is RowKind.WITHHELD else int(row["price_ticks"])
    scale_wh, core_wh = float(row["scale_wh"]) or None, int(row["core_wh"])
    tick, interval = find_tick(start.table, zone), start.header.interval + start.header.lead
    return Price(interval, PRICE_KINDS[kind], ticks, tick, scale_wh, start.logged_s, core_wh)
