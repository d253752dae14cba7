"""Where a follower reads tiles from: the tables of a log in PostgreSQL, or the objects of one in an object store."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from murmurate.errors import ChainError
from murmurate.public_log.tile import parse_header
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.log_queries import read_zone_table
from murmurate.service.storage.databases import Database, ObjectLog
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.session import ClockReading, TransactionSource, open_source

_POLL_S = 2.0  # between two looks at the objects of a shard
_MAX_INTERVALS_KEPT = 100_000

_SELECT_HEADS = """
    SELECT shard, h.seq, h.interval, coalesce(a.seq, -1), extract(epoch FROM clock_timestamp())::float8
    FROM public_log.head AS h LEFT JOIN public_log.archived AS a USING (shard) WHERE h.seq >= 0 ORDER BY shard"""
_SELECT_NEW = """
    SELECT seq, body, extract(epoch FROM taken)::float8 FROM public_log.tile
    WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s"""
_SELECT_INTERVALS = """
    SELECT seq, body, extract(epoch FROM taken)::float8 FROM public_log.tile
    WHERE shard = %s AND interval BETWEEN %s AND %s ORDER BY seq"""
_SELECT_ONE = "SELECT seq, body, 0::float8 FROM public_log.tile WHERE shard = %s AND seq = %s"
_SELECT_KEPT = "SELECT seq FROM public_log.tile WHERE shard = %s AND seq <= %s ORDER BY seq"


class LastTile(NamedTuple):
    """Where a shard ends."""

    shard: str
    seq: int
    interval: int
    archived_seq: int  # releases up to this number are in the archive


class LoggedTile(NamedTuple):
    """The bytes of a tile, and when the log took it."""

    seq: int
    body: bytes
    logged_s: float


class TileSource(Protocol):
    """What a follower asks of a log. Raises psycopg.Error or OSError where it does not answer."""

    clock_reading: ClockReading | None  # of the log, when the last tiles were last looked at

    def last_tiles(self) -> list[LastTile]:
        """The last tile of each shard that has one."""
        ...

    def read_new(self, shard: str, after_seq: int, max_tiles: int) -> list[LoggedTile]:
        """The tiles after a number, in order."""
        ...

    def read_intervals(self, shard: str, first: int, last: int) -> list[LoggedTile]:
        """The tiles of a stretch of intervals, in order."""
        ...

    def read_one(self, shard: str, seq: int) -> list[LoggedTile]:
        """The tile with a number; nothing where it is missing."""
        ...

    def kept_seqs(self, shard: str, archived_seq: int) -> tuple[int, ...]:
        """The tiles up to a number that are still in the log."""
        ...

    def read_table(self, shard: str, digest: str) -> ZoneTable:
        """A zone table that a shard names. Raises ChainError unless it is there and its zones may be in the shard."""
        ...

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        ...


class PostgresTiles:
    """See `TileSource`. The server has checked which zones may be in a shard."""

    def __init__(self, database: str | TransactionSource) -> None:
        self._session = open_source(database)
        self.clock_reading: ClockReading | None = None

    def last_tiles(self) -> list[LastTile]:
        with self._session.transaction() as connection:
            asked_s = time.monotonic()
            rows = connection.execute(_SELECT_HEADS).fetchall()
            if rows:
                self.clock_reading = ClockReading(rows[0][4], asked_s, time.monotonic())
        return [LastTile(*row[:4]) for row in rows]

    def read_new(self, shard: str, after_seq: int, max_tiles: int) -> list[LoggedTile]:
        return self._read(_SELECT_NEW, (shard, after_seq, max_tiles))

    def read_intervals(self, shard: str, first: int, last: int) -> list[LoggedTile]:
        return self._read(_SELECT_INTERVALS, (shard, first, last))

    def read_one(self, shard: str, seq: int) -> list[LoggedTile]:
        return self._read(_SELECT_ONE, (shard, seq))

    def _read(self, query: str, parameters: Sequence[object]) -> list[LoggedTile]:
        with self._session.transaction() as connection:
            rows = connection.execute(query, parameters, binary=True).fetchall()
        return [LoggedTile(seq, bytes(body), float(logged_s)) for seq, body, logged_s in rows]

    def kept_seqs(self, shard: str, archived_seq: int) -> tuple[int, ...]:
        with self._session.transaction() as connection:
            return tuple(seq for (seq,) in connection.execute(_SELECT_KEPT, (shard, archived_seq)))

    def read_table(self, shard: str, digest: str) -> ZoneTable:  # noqa: ARG002
        with self._session.transaction() as connection:
            return read_zone_table(connection, digest)

    def close(self) -> None:
        self._session.close()


class ObjectTiles:
    """See `TileSource`. The objects are looked for by their numbers, every few seconds."""

    def __init__(self, store: ObjectStore) -> None:
        self._log = ObjectLogStore(store)
        self.clock_reading: ClockReading | None = None  # a reader creates nothing, so it is shown no time
        self._last: dict[str, LastTile] = {}
        self._looked_s = float("-inf")
        self._intervals: dict[tuple[str, int], int] = {}  # by shard and number

    def last_tiles(self) -> list[LastTile]:
        if time.monotonic() >= self._looked_s + _POLL_S:
            known = {shard: self._last[shard].seq if shard in self._last else -1 for shard in self._log.shard_names()}
            for shard, seq in self._log.find_last(known).items():
                if seq >= 0 and seq != known[shard]:
                    self._last[shard] = LastTile(shard, seq, self._interval_of(shard, seq), -1)
            self._looked_s = time.monotonic()
        return [self._last[shard] for shard in sorted(self._last)]

    def _interval_of(self, shard: str, seq: int) -> int:
        interval = self._intervals.get((shard, seq))
        if interval is None:
            try:
                interval = parse_header(self._log.read_header_line(shard, seq).decode())[0].interval
            except (ChainError, UnicodeDecodeError):  # who reads the tile says so: it stands where the one before does
                interval = self._interval_of(shard, seq - 1) if seq else 0
            if len(self._intervals) >= _MAX_INTERVALS_KEPT:
                self._intervals.clear()
            self._intervals[shard, seq] = interval
        return interval

    def read_new(self, shard: str, after_seq: int, max_tiles: int) -> list[LoggedTile]:
        return self._read(shard, range(after_seq + 1, min(self._last[shard].seq, after_seq + max_tiles) + 1))

    def read_intervals(self, shard: str, first: int, last: int) -> list[LoggedTile]:
        return self._read(shard, self.find_numbers(shard, first, last, self._last[shard].seq))

    def find_numbers(self, shard: str, first: int, last: int, last_seq: int) -> range:
        """The numbers of the tiles of a stretch of intervals, up to `last_seq`."""
        return range(self._first_of(shard, first, last_seq), self._first_of(shard, last + 1, last_seq))

    def find_without_rows(self, shard: str, numbers: range) -> list[int]:
        """Which of these tiles release nothing: number and interval grow together along the others."""
        if not numbers or not numbers[0]:
            return [0, *self.find_without_rows(shard, numbers[1:])] if numbers else []
        before, last = numbers[0] - 1, numbers[-1]
        if self._interval_of(shard, last) - self._interval_of(shard, before) == len(numbers):
            return []
        if len(numbers) == 1:
            return [last]
        half = len(numbers) // 2
        return self.find_without_rows(shard, numbers[:half]) + self.find_without_rows(shard, numbers[half:])

    def _first_of(self, shard: str, interval: int, last_seq: int) -> int:
        """The number of the first tile of an interval or a later one: along a shard intervals never become less."""
        low, high = -1, last_seq + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._interval_of(shard, middle) < interval else (low, middle)
        return high

    def read_one(self, shard: str, seq: int) -> list[LoggedTile]:
        return self._read(shard, range(seq, seq + 1))

    def _read(self, shard: str, numbers: range) -> list[LoggedTile]:
        return [LoggedTile(seq, self._log.read_body(shard, seq), self._log.created_s(shard, seq)) for seq in numbers]

    def kept_seqs(self, shard: str, archived_seq: int) -> tuple[int, ...]:  # noqa: ARG002  nothing is archived
        return ()

    def read_table(self, shard: str, digest: str) -> ZoneTable:
        table = self._log.table(digest)
        self._log.check_zones(shard, table)
        return table

    def close(self) -> None:
        self._log.close()


def open_tile_source(log: Database | ObjectLog) -> TileSource:
    """Return where a follower of a log reads."""
    return PostgresTiles(log.dsn) if isinstance(log, Database) else ObjectTiles(log.open())
