"""Read the public log from its database, and from the archive what has left it. Of a tile only a part is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from psycopg import Connection

from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.canonical import canonical_json, compute_digest
from murmurate.public_log.tile import (
    RowKind,
    TileHeader,
    TileKind,
    is_closed_by,
    parse_header,
    parse_tile,
    row_dtype,
)
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.zone_view import PRICE_KINDS, PlanEnd, Price, ZoneView, find_tick
from murmurate.service.storage.session import TransactionSource, open_source
from murmurate.service.storage.tile_archive import TileArchive

_SELECT_ARCHIVED = "SELECT seq, interval FROM public_log.archived WHERE shard = %s"
_SELECT_TILE = "SELECT body FROM public_log.tile WHERE shard = %s AND seq = %s"
_SELECT_HEAD_OF_ZONE = (
    "SELECT shard, h.seq FROM public_log.claim JOIN public_log.head AS h USING (shard) WHERE zone = %s"
)
_SELECT_TILE_RANGE = "SELECT body FROM public_log.tile WHERE shard = %s AND seq BETWEEN %s AND %s ORDER BY seq"
_SELECT_DOCUMENT = "SELECT body FROM public_log.document WHERE digest = %s"
_SELECT_DOCUMENTS = "SELECT digest, body FROM public_log.document WHERE digest = ANY(%s)"
_SELECT_TILES = "SELECT seq, body FROM public_log.tile WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s"
_SELECT_TABLE_TILES = """
    SELECT substring(body FROM 1 FOR position('\\x0a'::bytea IN body) - 1)
    FROM (SELECT seq, body, interval, lag(interval) OVER (ORDER BY seq) AS before
          FROM public_log.tile WHERE shard = %s) AS t
    WHERE before IS NULL OR before = interval OR seq <= %s"""
_HEADER_BYTES = 4096  # where the header of a tile usually ends
_SELECT_STARTS = """
    SELECT seq, substring(body FROM 1 FOR %s), extract(epoch FROM taken)::float8
    FROM public_log.tile WHERE shard = %s AND interval BETWEEN %s AND %s ORDER BY seq"""
_SELECT_TABLE_CHANGES = """
    SELECT interval FROM public_log.tile WHERE shard = %(shard)s AND interval BETWEEN %(first)s AND %(last)s
    GROUP BY interval HAVING count(*) > 1
        OR interval <= (SELECT a.interval FROM public_log.archived AS a WHERE a.shard = %(shard)s)
    ORDER BY interval"""  # with a release, which may have left the log: another table, or another key
_SELECT_BEFORE = "SELECT interval FROM public_log.tile WHERE shard = %s AND seq < %s ORDER BY seq DESC LIMIT 1"
_SELECT_ROWS = """
    SELECT t.seq, substring(t.body FROM mine.start FOR mine.size)
    FROM unnest(%s::bigint[], %s::int[], %s::int[]) AS mine (seq, start, size)
    JOIN public_log.tile AS t ON t.shard = %s AND t.seq = mine.seq ORDER BY t.seq"""
# Every tile but a release has the interval of the one before it. Up to the archived number there are no releases.
_ROWS_PER_QUERY = 512
_TILES_PER_CHUNK = 16  # of the log of a zone
_MAX_TABLES_KEPT = 256
_NOTHING_ARCHIVED = (-1, -(2**62))  # number and interval of a tile


class TilesArchivedError(MurmurateError):
    """Tiles that were asked for have left the log, and there is no archive to read them from."""

    def __init__(self, shard: str) -> None:
        allowed = "has left this service: ask its operator for the archive, which murmurate log verify takes"
        super().__init__("log", f"of {shard} so long ago", allowed)


class _TileStart(NamedTuple):
    """The header of a tile in the log, and what it takes to read one of its rows."""

    seq: int
    header: TileHeader
    header_size: int  # bytes of its line, without the end
    table: ZoneTable
    logged_s: float

    def find_row(self, zone: str) -> tuple[int, int] | None:
        """Where the row of a zone begins in the tile, and its size [bytes]; None where it has none."""
        if self.header.kind is not TileKind.RELEASE or zone not in self.table.position:
            return None
        size = row_dtype(self.header.row).itemsize
        return self.header_size + 1 + self.table.position[zone] * size, size

    def read_price(self, data: bytes, zone: str) -> Price:
        """Return the price in a row."""
        row = np.frombuffer(data, row_dtype(self.header.row))[0]
        kind = RowKind(int(row["kind"]))
        ticks = None if kind is RowKind.WITHHELD else int(row["price_ticks"])
        scale_wh, core_wh = float(row["scale_wh"]) or None, int(row["core_wh"])
        tick, interval = find_tick(self.table, zone), self.header.interval + self.header.lead
        return Price(interval, PRICE_KINDS[kind], ticks, tick, scale_wh, self.logged_s, core_wh)


class LogReader:
    """Reads the public log. Threads may share one that has a pool. `files`: where tiles are that left it."""

    def __init__(self, database: str | TransactionSource, files: TileArchive | None = None) -> None:
        self._session, self._files = open_source(database), files
        self._tables: dict[str, ZoneTable] = {}

    def read_document(self, digest: str) -> str | None:
        """A plan or a zone table of the log."""
        with self._session.transaction() as connection:
            row = connection.execute(_SELECT_DOCUMENT, (digest,)).fetchone()
        return None if row is None else str(row[0])

    def read_documents(self, digests: Sequence[str]) -> dict[str, str]:
        """Plans and zone tables by their digests, as far as the log has them."""
        with self._session.transaction() as connection:
            return dict(connection.execute(_SELECT_DOCUMENTS, (list(digests),)).fetchall())

    def read_table_digests(self, shard: str) -> set[str]:
        """The zone tables that the tiles of a shard name."""
        with self._session.transaction() as connection:
            parameters = (shard, _archived(connection, shard)[0])
            rows = connection.execute(_SELECT_TABLE_TILES, parameters, binary=True).fetchall()
        return {parse_header(bytes(header).decode())[0].table for (header,) in rows}

    def read_tile(self, shard: str, seq: int) -> bytes | None:
        """A tile as it was appended."""
        with self._session.transaction() as connection:
            row = connection.execute(_SELECT_TILE, (shard, seq), binary=True).fetchone()
            is_archived = row is None and seq <= _archived(connection, shard)[0]
        if is_archived:
            return self._require_files(shard).read_tile(shard, seq)
        return None if row is None else bytes(row[0])

    def _require_files(self, shard: str) -> TileArchive:
        if self._files is None:
            raise TilesArchivedError(shard)
        return self._files

    def require_whole_log(self, shard: str) -> None:
        """Raise TilesArchivedError where `read_log_chunks` would lack tiles."""
        with self._session.transaction() as connection:
            if _archived(connection, shard)[0] >= 0:
                self._require_files(shard)

    def read_tiles(self, shard: str, after_seq: int, max_tiles: int) -> list[tuple[int, bytes]]:
        """The next tiles of a shard after a number, each with its number. What cannot be read any more is left out."""
        with self._session.transaction() as connection:
            rows = connection.execute(_SELECT_TILES, (shard, after_seq, max_tiles), binary=True).fetchall()
            archived, _ = _archived(connection, shard)
        found = {seq: bytes(body) for seq, body in rows}
        last = min(archived, after_seq + max_tiles)
        if self._files is not None and last > after_seq:
            with suppress(MurmurateError, OSError):  # what is missing is reported by the reader
                found |= {tile.seq: tile.read() for tile in self._files.read_tiles(shard, after_seq + 1, last)}
        return sorted(found.items())[:max_tiles]

    def read_prices(self, view: ZoneView, first: int, last: int) -> list[Price]:
        """The prices of a stretch of intervals."""
        shard, zone, lead, found = view.shard.name, view.zone, view.lead_intervals, list[Price]()
        end = min(view.last_decided, last) - lead + 1
        for at in range(max(view.row.since, first - lead), end, _ROWS_PER_QUERY):
            until = min(end, at + _ROWS_PER_QUERY) - 1
            with self._session.transaction() as connection:
                _, archived = _archived(connection, shard)
                if at <= archived:
                    for tile in self._require_files(shard).read_intervals(shard, at, min(until, archived)):
                        header, header_size = tile.read_header()
                        table = self._table(connection, header.table)
                        start = _TileStart(tile.seq, header, header_size, table, tile.taken_s)
                        if (place := start.find_row(zone)) is not None:
                            found.append(start.read_price(tile.read(*place), zone))
                if until > archived:
                    read = self._read_starts(connection, shard, max(at, archived + 1), until)
                    starts = {start.seq: start for start in read}
                    places = {seq: place for seq, start in starts.items() if (place := start.find_row(zone))}
                    offsets = [offset + 1 for offset, _ in places.values()]
                    sizes = [size for _, size in places.values()]
                    rows = connection.execute(_SELECT_ROWS, (list(places), offsets, sizes, shard), binary=True)
                    found += [starts[seq].read_price(bytes(row), zone) for seq, row in rows.fetchall()]
        return found

    def read_opening_key(self, view: ZoneView) -> str:
        """The key that signed the first line of a zone's log. It is another one than its shard's after a rotation."""
        if view.key == view.shard.opening_key:
            return view.key
        with self._session.transaction() as connection:
            before = view.row.since - 1  # the zone entered its shard in the tile before its first interval
            for start in self._read_starts(connection, view.shard.name, before, before):
                if view.zone in start.table.position:
                    return start.header.key
        raise ChainError("since", view.row.since, f"must be the interval after {view.zone} entered {view.shard.name}")

    def read_older_plans(self, view: ZoneView, first: int) -> tuple[PlanEnd, ...]:
        """The plans of a zone that ended in `first` or later, and before the prices in memory begin; oldest first."""
        shard, zone, found = view.shard.name, view.zone, list[PlanEnd]()
        first, last = max(view.row.since, first - 1), view.shard.first - 1
        if first > last:
            return ()
        with self._session.transaction() as connection:
            changes = connection.execute(_SELECT_TABLE_CHANGES, {"shard": shard, "first": first, "last": last})
            for (interval,) in changes.fetchall():
                starts = [*self._read_starts(connection, shard, interval, interval)]
                if starts[0].header.kind is TileKind.ZONES:  # the release before it was archived
                    (before,) = connection.execute(_SELECT_BEFORE, (shard, starts[0].seq)).fetchone() or (interval,)
                    starts = [*self._read_starts(connection, shard, before, before)][-1:] + starts
                tables = [start.table for start in starts]
                plans = [table.rows[table.position[zone]].plan for table in tables if zone in table.position]
                if plans and plans[0] != plans[-1]:
                    found.append(PlanEnd(plans[0], interval + 1))
        return tuple(found)

    def _read_starts(self, connection: Connection, shard: str, first: int, last: int) -> Iterator[_TileStart]:
        """Yield the headers of the tiles of a stretch of intervals, each with its zone table."""
        rows = connection.execute(_SELECT_STARTS, (_HEADER_BYTES, shard, first, last), binary=True).fetchall()
        for seq, data, taken_s in rows:
            line, end, _ = bytes(data).partition(b"\n")
            if not end:
                whole = connection.execute(_SELECT_TILE, (shard, seq), binary=True).fetchone()
                if whole is None:
                    raise ChainError("tile", f"{seq} of {shard}", "is not in the log")
                line = bytes(whole[0]).partition(b"\n")[0]
            header, _ = parse_header(line.decode())
            yield _TileStart(seq, header, len(line), self._table(connection, header.table), float(taken_s))

    def _table(self, connection: Connection, digest: str) -> ZoneTable:
        table = self._tables.get(digest)
        if table is None:
            if len(self._tables) >= _MAX_TABLES_KEPT:
                self._tables.clear()
            table = self._tables[digest] = read_zone_table(connection, digest)
        return table

    def read_log_chunks(self, view: ZoneView) -> Iterator[bytes]:
        """The lines of one zone as a file that `murmurate log verify` takes, up to the last tile of the view.

        Each chunk is read in its own transaction, and may be empty. The log only grows: chunks of one moment are
        those up to the tile that was the last one then.
        """
        plans: set[str] = set()
        shard, end = view.shard.name, view.shard.head.tile.header.seq + 1
        for first in range(0, end, _TILES_PER_CHUNK):
            numbers = range(first, min(end, first + _TILES_PER_CHUNK))
            with self._session.transaction() as connection:
                lines = [*self._read_lines(connection, shard, numbers, view.zone, plans)]
            yield "".join(f"{line}\n" for line in lines).encode()

    def zone_lines(self, connection: Connection, zone: str) -> Iterator[str]:
        """The lines of one zone, each plan before the first line under it, in the transaction of a connection."""
        plans: set[str] = set()
        shard, last = connection.execute(_SELECT_HEAD_OF_ZONE, (zone,)).fetchone() or ("", -1)
        archived, _ = _archived(connection, shard)
        yield from self._read_lines(connection, shard, range(archived + 1), zone, plans)
        for first in range(archived + 1, last + 1, _TILES_PER_CHUNK):
            numbers = range(first, min(last + 1, first + _TILES_PER_CHUNK))
            yield from self._read_lines(connection, shard, numbers, zone, plans)

    def _read_lines(
        self, connection: Connection, shard: str, numbers: range, zone: str, plans: set[str]
    ) -> Iterator[str]:
        """The lines of a zone in tiles, each plan before the first line under it unless it is among `plans`."""
        archived, _ = _archived(connection, shard)
        if numbers.start <= archived:
            for tile in self._require_files(shard).read_tiles(shard, numbers.start, min(numbers.stop - 1, archived)):
                yield from self._tile_lines(connection, tile.read(), zone, plans)
        kept = (shard, max(numbers.start, archived + 1), numbers.stop - 1)
        for (body,) in connection.execute(_SELECT_TILE_RANGE, kept, binary=True).fetchall():
            yield from self._tile_lines(connection, body, zone, plans)

    def _tile_lines(self, connection: Connection, body: bytes, zone: str, plans: set[str]) -> Iterator[str]:
        """The line of a zone in a tile, if it has one, and its plan before it unless that is among `plans`."""
        tile = parse_tile(bytes(body))
        table = self._table(connection, tile.header.table)
        if zone not in table.position and not is_closed_by(tile.header, zone):
            return
        line = make_zone_line(tile, table, zone)
        if line.proof is not None and line.proof.plan not in plans:
            plans.add(line.proof.plan)
            row = connection.execute(_SELECT_DOCUMENT, (line.proof.plan,)).fetchone()
            if row is not None:
                yield canonical_json(json.loads(row[0]))
        yield line.to_json()

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()


def read_zone_table(connection: Connection, digest: str) -> ZoneTable:
    """Read a zone table of the log. Raises ChainError unless it is there and has its digest."""
    row = connection.execute(_SELECT_DOCUMENT, (digest,)).fetchone()
    if row is None:
        raise ChainError("zone table", digest, "is not in the log")
    if compute_digest(row[0]) != digest:
        raise ChainError("zone table", digest, "must be the digest of the document")
    return ZoneTable.from_json(row[0])


def _archived(connection: Connection, shard: str) -> tuple[int, int]:
    """The last tile and interval that have left the log; both before the first one: none."""
    row = connection.execute(_SELECT_ARCHIVED, (shard,)).fetchone()
    return _NOTHING_ARCHIVED if row is None else (row[0], row[1])
