"""Look things up in the public log, however long ago they were."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress

from psycopg import Connection

from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import is_closed_by, parse_header, parse_tile
from murmurate.public_log.zone_line import make_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.zone_history import (
    read_archived_prices,
    read_entry_key,
    read_plan_ends,
    read_zone_prices,
)
from murmurate.service.log_reader.zone_view import PlanEnd, Price, ZoneView
from murmurate.service.storage.session import TransactionSource, open_source
from murmurate.service.storage.tile_archive import TileArchive

_SELECT_ARCHIVED = "SELECT seq, interval FROM public_log.archived WHERE shard = %s"
_SELECT_TILE = "SELECT body FROM public_log.tile WHERE shard = %s AND seq = %s"
_SELECT_SHARD_OF_ZONE = "SELECT shard FROM public_log.claim WHERE zone = %s"
_SELECT_TILE_RANGE = "SELECT body FROM public_log.tile WHERE shard = %s AND seq BETWEEN %s AND %s ORDER BY seq"
_SELECT_DOCUMENT = "SELECT body FROM public_log.document WHERE digest = %s"
_SELECT_DOCUMENTS = "SELECT digest, body FROM public_log.document WHERE digest = ANY(%s)"
_SELECT_TILES = "SELECT seq, body FROM public_log.tile WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s"
_SELECT_TABLE_TILES = """
    SELECT substring(body FROM 1 FOR position('\\x0a'::bytea IN body) - 1)
    FROM (SELECT seq, body, interval, lag(interval) OVER (ORDER BY seq) AS before
          FROM public_log.tile WHERE shard = %s) AS t
    WHERE before IS NULL OR before = interval OR seq <= %s"""
# Every tile but a release has the interval of the one before it. Up to the archived number there are no releases.
_ROWS_PER_QUERY = 512
_TILES_PER_CHUNK = 16  # of the log of a zone
_MAX_TABLES_KEPT = 256
_NOTHING_ARCHIVED = (-1, -(2**62))  # number and interval of a tile


class TilesArchivedError(MurmurateError):
    """Tiles that were asked for have left the log, and the archive is not at hand."""

    def __init__(self, shard: str) -> None:
        allowed = "has left this service: ask its operator for the archive, which murmurate verify takes"
        super().__init__("log", f"of {shard} so long ago", allowed)


class Archive:
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
        shard, lead, found = view.shard, view.lead_intervals, list[Price]()
        end = min(view.last_decided, last) - lead + 1
        for start in range(max(view.row.since, first - lead), end, _ROWS_PER_QUERY):
            until = min(end, start + _ROWS_PER_QUERY) - 1
            with self._session.transaction() as connection:
                _, archived = _archived(connection, shard.name)
                if start <= archived:
                    files, last_archived = self._require_files(shard.name), min(until, archived)
                    tiles = files.read_intervals(shard.name, start, last_archived)
                    found += read_archived_prices(connection, self._table, tiles, view.zone)
                if until > archived:
                    first_kept = max(start, archived + 1)
                    found += read_zone_prices(connection, self._table, shard.name, view.zone, first_kept, until)
        return found

    def read_opening_key(self, view: ZoneView) -> str:
        """The key that signed the first line of a zone's log. It is another one than its shard's after a rotation."""
        if view.key == view.shard.opening_key:
            return view.key
        with self._session.transaction() as connection:
            return read_entry_key(connection, self._table, view.shard.name, view.row)

    def read_older_plans(self, view: ZoneView, first: int) -> tuple[PlanEnd, ...]:
        """The plans of a zone that ended in `first` or later, and before the prices in memory begin."""
        shard, first = view.shard, max(view.row.since, first - 1)
        if first >= shard.first:
            return ()
        with self._session.transaction() as connection:
            return tuple(read_plan_ends(connection, self._table, shard.name, view.zone, first, shard.first - 1))

    def _table(self, connection: Connection, digest: str) -> ZoneTable:
        table = self._tables.get(digest)
        if table is None:
            row = connection.execute(_SELECT_DOCUMENT, (digest,)).fetchone()
            if row is None:
                raise ChainError("zone table", digest, "is not in the log")
            if len(self._tables) >= _MAX_TABLES_KEPT:
                self._tables.clear()
            table = self._tables[digest] = ZoneTable.from_json(row[0])
        return table

    def read_log_chunks(self, view: ZoneView) -> Iterator[bytes]:
        """The lines of one zone as a file that `murmurate verify` takes, up to the last tile of the view.

        Each chunk is read in a transaction of its own, and may be empty. The log only grows: chunks of one moment are
        those up to the tile that was the last one then.
        """
        plans: set[str] = set()
        zone, shard, last = view.zone, view.shard.name, view.shard.head.tile.header.seq
        for first in range(0, last + 1, _TILES_PER_CHUNK):
            end = min(last, first + _TILES_PER_CHUNK - 1)
            with self._session.transaction() as connection:
                archived, _ = _archived(connection, shard)
                bodies: list[bytes] = []
                if first <= archived:
                    tiles = self._require_files(shard).read_tiles(shard, first, min(end, archived))
                    bodies = [tile.read() for tile in tiles]
                kept = (shard, max(first, archived + 1), end)
                bodies += [body for (body,) in connection.execute(_SELECT_TILE_RANGE, kept, binary=True)]
                lines = [line for body in bodies for line in self._tile_lines(connection, body, zone, plans)]
            yield "".join(f"{line}\n" for line in lines).encode()

    def zone_lines(self, connection: Connection, zone: str) -> Iterator[str]:
        """The lines of one zone, each plan before the first line under it, in the transaction of a connection."""
        plans: set[str] = set()
        (shard,) = connection.execute(_SELECT_SHARD_OF_ZONE, (zone,)).fetchone() or ("",)
        archived, _ = _archived(connection, shard)
        if archived >= 0:
            for tile in self._require_files(shard).read_tiles(shard, 0, archived):
                yield from self._tile_lines(connection, tile.read(), zone, plans)
        with connection.cursor("zone_lines", binary=True) as cursor:
            cursor.itersize = _TILES_PER_CHUNK
            query = "SELECT body FROM public_log.tile WHERE shard = %s AND seq > %s ORDER BY seq"
            cursor.execute(query, (shard, archived))
            for (body,) in cursor:
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


def _archived(connection: Connection, shard: str) -> tuple[int, int]:
    """The last tile and interval that have left the log; both before the first one: none."""
    row = connection.execute(_SELECT_ARCHIVED, (shard,)).fetchone()
    return _NOTHING_ARCHIVED if row is None else (row[0], row[1])
