"""Follow the public log: read what is new, check it as anybody would, and keep what everybody asks for.

A reader of the log needs no more rights than the public has. What does not follow from what was read before is not
shown: the shard stands still, and the reason is kept. At the start the tiles of the prices that are paid now are
checked, and not the days before them: `murmurate log verify` does that. Older prices are read
afterwards, a few tiles at a time, so that the last prices of all zones are there at once.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import psycopg
from psycopg import Connection

from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import Tile, TileKind, parse_tile
from murmurate.public_log.tile_chain import begin_with_release, check_next, check_signature
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.price_columns import SLACK, PriceColumns
from murmurate.service.log_reader.tile_source import LoggedTile, PostgresTiles, TileSource
from murmurate.service.log_reader.zone_view import ShardView
from murmurate.service.storage.session import ClockReading, connect
from murmurate.units import SECONDS_PER_DAY

CHANNEL = "murmurate_tile"  # public_log.append notifies it
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
RECENT_PRICES_S = 3 * SECONDS_PER_DAY  # what is kept in memory
BROKEN_RETRY_S = 5.0
TILES_PER_QUERY = SLACK  # a view that is in use is never overwritten


class ChangedShard(NamedTuple):
    """A shard that has new tiles or older prices."""

    view: ShardView
    new_intervals: range  # that were measured and whose prices are new since the last time


class _ReadTile(NamedTuple):
    tile: Tile
    table: ZoneTable
    logged_s: float


class Follower:
    """Reads the log into views of shards. One thread at a time; views may be read by any thread.

    A view stays valid until the one after it was yielded and `SLACK` more intervals were read: who keeps views must
    replace them before asking for more.
    """

    def __init__(self, source: str | TileSource, recent_s: int = RECENT_PRICES_S) -> None:
        self._source = PostgresTiles(source) if isinstance(source, str) else source
        self._recent_s = recent_s
        self._views: dict[str, ShardView] = {}
        self._backfilled: set[str] = set()  # shards whose prices that are kept in memory were all read
        self._tables: WeakValueDictionary[tuple[str, str], ZoneTable] = WeakValueDictionary()
        self.broken: dict[str, str] = {}  # shards that stand still, and why
        self.clock_reading: ClockReading | None = None  # of the log, when it was last looked at
        self._retry_at_s: dict[str, float] = {}  # when a broken one is read again, by the monotonic clock

    def refresh(self) -> Iterator[ChangedShard]:
        """Read what is new, shard by shard.

        Of a shard that is read for the first time no price is called new: they may be days old. A broken one is read
        again now and then, from the last tile that was right: the log may have been mended.
        """
        last_tiles = self._source.last_tiles()
        self.clock_reading = self._source.clock_reading
        for shard, seq, interval, archived_seq in last_tiles:
            if self._retry_at_s.get(shard, 0.0) > time.monotonic():
                continue
            try:
                if shard not in self._views:
                    yield self._begin(shard, interval, archived_seq)
                elif self._views[shard].archived_seq != archived_seq:
                    kept = self._source.kept_seqs(shard, archived_seq)
                    view = replace(self._views[shard], archived_seq=archived_seq, kept_seqs=kept)
                    self._views[shard] = view
                    yield ChangedShard(view, range(0))
                if self._views[shard].head.tile.header.seq < seq:
                    yield from self._read_new(shard)
                self.broken.pop(shard, None)
            except (MurmurateError, ValueError, LookupError) as error:
                is_ours = isinstance(error, MurmurateError)
                self.broken[shard] = str(error) if is_ours else f"a tile cannot be read ({type(error).__name__})"
                self._retry_at_s[shard] = time.monotonic() + BROKEN_RETRY_S

    def _begin(self, shard: str, interval: int, archived_seq: int) -> ChangedShard:
        """Read the last tiles of a shard, enough for the prices that are paid now: each signed, each after the last."""
        first = self._read_one(shard, 0)
        tiles = self._source.read_intervals(shard, interval - first.header.lead - 1, interval)
        recent = [*self._parse_tiles(shard, tiles)]
        check_signature(first, verify_signature)
        kept = self._source.kept_seqs(shard, archived_seq)
        (tile, table, _), *rest = recent
        self._check_succession(first, tile, [*kept, *range(archived_seq + 1, tile.header.seq + 1)])
        if tile.header.kind is TileKind.RELEASE:
            head = begin_with_release(tile, table, verify_signature)
        else:  # it opens the shard
            head = check_next(None, tile, table, verify_signature)
        for each in rest:
            head = check_next(head, each.tile, each.table, verify_signature)
        columns = PriceColumns(head.table, self._recent_s // head.tile.header.interval_s)
        releases = [each for each in recent if each.tile.header.kind is TileKind.RELEASE]
        for each in releases:
            _write(columns, head.table, each)
        oldest = releases[0].tile.header.interval if releases else head.interval + 1
        view = ShardView(head, first.header.key, columns, oldest, head.interval, archived_seq, kept)
        self._views[shard] = view
        return ChangedShard(view, range(0))

    def _check_succession(self, first: Tile, recent: Tile, numbers: Sequence[int]) -> None:
        """Raise ChainError unless the key of a recent tile was named by the key before it, and so on from the first.

        The last tile of each key is looked for among the tiles that the log has of those up to the recent one: it must
        name the next one, and be signed. It has no rows, so it stays where the releases next to it have left the log.
        """
        shard, last, at = first.header.shard, first, 0
        while last.key_in_force != recent.header.key:
            key, low, high = last.key_in_force, at, len(numbers) - 1
            while high - low > 1:
                middle = (low + high) // 2
                is_old = self._read_one(shard, numbers[middle]).header.key == key
                low, high = (middle, high) if is_old else (low, middle)
            found = self._read_one(shard, numbers[low])
            if low == at or found.key_in_force == key:
                raise ChainError("key", recent.header.key, f"must be named by the key before it, {key}")
            check_signature(found, verify_signature)
            last, at = found, low

    def _read_one(self, shard: str, seq: int) -> Tile:
        for read in self._parse_tiles(shard, self._source.read_one(shard, seq)):
            return read.tile
        raise ChainError(f"tile {seq}", "missing", "must be in the log")

    def _parse_tiles(self, shard: str, tiles: Iterable[LoggedTile]) -> Iterator[_ReadTile]:
        """Yield tiles in order, up to one that cannot be read. Raises ChainError naming it."""
        for seq, body, logged_s in tiles:
            try:
                tile = parse_tile(body)
                if (tile.header.shard, tile.header.seq) != (shard, seq):
                    raise ChainError("tile", f"{tile.header.seq} of {tile.header.shard}", f"is not {seq} of {shard}")  # noqa: TRY301
                key = shard, tile.header.table
                table = self._tables.get(key)
                if table is None:
                    table = self._tables[key] = self._source.read_table(*key)
            except ChainError as error:
                raise ChainError(f"tile {seq}", "not valid", str(error)) from error
            yield _ReadTile(tile, table, logged_s)

    def _read_new(self, shard: str) -> Iterator[ChangedShard]:
        while True:
            view = self._views[shard]
            first_seq, before, count = view.head.tile.header.seq, view.last, 0
            try:
                for each in self._parse_tiles(shard, self._source.read_new(shard, first_seq, TILES_PER_QUERY)):
                    self._views[shard] = self._follow(self._views[shard], each)
                    count += 1
            finally:  # what was right before a tile that is not is shown
                if self._views[shard] is not view:
                    yield ChangedShard(self._views[shard], range(before + 1, self._views[shard].last + 1))
            if count < TILES_PER_QUERY:
                return

    def _follow(self, view: ShardView, read: _ReadTile) -> ShardView:
        table = read.table
        try:
            head = check_next(view.head, read.tile, table, verify_signature)
        except ChainError as error:
            raise ChainError(f"tile {view.head.tile.header.seq + 1}", "not valid", str(error)) from error
        columns = view.columns
        if table.zones_ever != view.table.zones_ever:
            columns = columns.reordered(view.table, table)
        if read.tile.header.kind is not TileKind.RELEASE:
            return replace(view, head=head, columns=columns)
        _write(columns, table, read)
        oldest = head.interval - self._recent_s // view.interval_s + 1
        return replace(view, head=head, columns=columns, last=head.interval, first=max(view.first, oldest))

    def views(self) -> list[ShardView]:
        """All shards that were read."""
        return list(self._views.values())

    @property
    def is_backfilled(self) -> bool:
        """Whether all prices that are kept in memory were read."""
        return self._views.keys() <= self._backfilled | self.broken.keys()

    def backfill(self, max_s: float) -> Iterator[ChangedShard]:
        """Read older prices for a while, newest first, a few of each shard in turn."""
        end = time.monotonic() + max_s
        while time.monotonic() < end and not self.is_backfilled:
            for shard in self._views:
                if shard not in self._backfilled and shard not in self.broken:
                    if time.monotonic() > end:
                        return
                    if self._backfill_some(shard):
                        yield ChangedShard(self._views[shard], range(0))

    def _backfill_some(self, shard: str) -> bool:
        """Read some older prices of a shard. Returns whether there were any."""
        view = self._views[shard]
        oldest = view.last - self._recent_s // view.interval_s + 1
        last = view.first - 1
        first = max(oldest, last - TILES_PER_QUERY + 1)
        try:
            found = self._source.read_intervals(shard, first, last) if first <= last else []
            tiles = [*self._parse_tiles(shard, found)]
        except (MurmurateError, ValueError, LookupError):
            tiles = []  # the prices before it are not shown
        releases = [each for each in tiles if each.tile.header.kind is TileKind.RELEASE]
        for each in releases:
            _write(view.columns, view.table, each)
        if not releases or first == oldest:
            self._backfilled.add(shard)
        if releases:
            self._views[shard] = replace(view, first=releases[0].tile.header.interval)
        return bool(releases)

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._source.close()


def _write(columns: PriceColumns, now: ZoneTable, read: _ReadTile) -> None:
    """Store a release under the zone table of now, which may have more zones, and some that were closed."""
    zones = read.table.zones
    positions = None if zones == now.zones_ever else np.array([now.column[zone] for zone in zones], np.int64)
    columns.write(read.tile.header.interval, read.tile.rows, read.table, read.logged_s, positions)


class TileNotices:
    """A connection that listens. One thread waits; any thread may interrupt it.

    Where it cannot listen, it waits all the same: its user asks the log after each wait, however that ended.
    """

    def __init__(self, dsn: str | None) -> None:
        self._dsn = dsn  # None: the log sends no notices
        self._connection: Connection | None = None
        self._wake_read, self._wake_write = os.pipe()

    def listen(self) -> None:
        """Connect, unless it is connected. Raises psycopg.Error. Tiles that come from now on end the next wait."""
        if self._connection is None and self._dsn is not None:
            connection = connect(self._dsn, autocommit=True, **_KEEPALIVES)
            try:
                connection.execute(f"LISTEN {CHANNEL}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection

    def wait(self, timeout_s: float) -> bool:
        """Wait for a notice, an interruption or the end of the time. Return whether it was a notice."""
        if self._drain():  # it may have come with an answer
            return True
        poll = select.poll()  # a server with many clients has file descriptors beyond the reach of select()
        poll.register(self._wake_read, select.POLLIN)
        if self._connection is not None:
            poll.register(self._connection.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        if self._wake_read in ready:
            os.read(self._wake_read, 1024)
        return bool(ready - {self._wake_read}) and self._drain()

    def _drain(self) -> bool:
        """Take all notices that are there. A connection that is lost is dropped."""
        found = False
        try:
            if self._connection is not None:
                self._connection.pgconn.consume_input()
                while self._connection.pgconn.notifies() is not None:
                    found = True
        except psycopg.Error:
            self._drop()
        return found

    def interrupt(self) -> None:
        """End the wait of another thread."""
        os.write(self._wake_write, b"x")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection. It cannot be used again."""
        self._drop()
        os.close(self._wake_read)
        os.close(self._wake_write)
