"""The public log in PostgreSQL, in another failure domain than the state."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from psycopg import Connection

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import GENESIS_PREV, Tile, parse_tile
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import LogTail, Offer
from murmurate.service.storage.session import ClockReading, TransactionSource, open_source

MAX_TILES_PER_READ = 16  # tiles of one shard in one answer
_MAX_TABLES_KEPT = 4096


class PostgresLogStore:
    """See `publisher.steps.LogStore`. The rules are enforced by the server, in `sql/log`."""

    def __init__(self, database: str | TransactionSource) -> None:
        self._session = open_source(database)
        self._offered: dict[str, Offer] = {}  # last; if the log's head has this hash, it need not be read
        self._tables: OrderedDict[str, ZoneTable] = OrderedDict()
        self.clock_reading: ClockReading | None = None  # of the last read that found a shard

    def heads(self) -> dict[str, tuple[int, str]]:
        """The number and the hash of the last tile of each shard."""
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT shard, seq, hash FROM public_log.head WHERE seq >= 0").fetchall()
        return {shard: (seq, last) for shard, seq, last in rows}

    def read(self, after_seq: Mapping[str, int], max_tiles: int = MAX_TILES_PER_READ) -> dict[str, LogTail]:
        query = """
            SELECT shard, h.seq, h.hash, coalesce(a.seq, -1), extract(epoch FROM clock_timestamp())::float8
            FROM public_log.head AS h LEFT JOIN public_log.archived AS a USING (shard)
            WHERE shard = ANY(%s) AND h.seq >= 0"""
        with self._session.transaction() as connection:
            asked_s = time.monotonic()
            rows = connection.execute(query, (list(after_seq),)).fetchall()
            if rows:
                self.clock_reading = ClockReading(rows[0][4], asked_s, time.monotonic())
            heads = {shard: (seq, last, archived) for shard, seq, last, archived, _ in rows}
            tiles: dict[str, tuple[Offer | str, ...]] = {}
            for shard, (seq, last, _) in heads.items():
                offered = self._offered.get(shard)
                if offered is not None and offered.tile.hash == last and seq == after_seq[shard] + 1:
                    tiles[shard] = (offered,)  # all that is new is the tile that was offered from here
            unread = {
                shard: max(after_seq[shard], archived)
                for shard, (seq, _, archived) in heads.items()
                if seq > after_seq[shard] and shard not in tiles
            }
            if unread:
                tiles |= self._read_tiles(connection, unread, max_tiles)
            begun = [shard for shard in unread if after_seq[shard] < 0 <= heads[shard][2]]
            kept = {shard: self._read_kept(connection, shard, heads[shard][2]) for shard in begun}
        return {
            shard: LogTail(seq, tiles.get(shard, ()), last, archived, kept.get(shard, ()))
            for shard, (seq, last, archived) in (
                (shard, heads.get(shard, (-1, GENESIS_PREV, -1))) for shard in after_seq
            )
        }

    @staticmethod
    def _read_kept(connection: Connection, shard: str, archived_seq: int) -> tuple[Tile, ...]:
        """Return the tiles without rows that stayed in the log, but for those that cannot be read."""
        query = "SELECT body FROM public_log.tile WHERE shard = %s AND seq <= %s ORDER BY seq"
        found = []
        for (body,) in connection.execute(query, (shard, archived_seq), binary=True):
            with suppress(ChainError):
                found.append(parse_tile(bytes(body)))
        return tuple(found)

    def _read_tiles(
        self, connection: Connection, after_seq: Mapping[str, int], max_tiles: int
    ) -> dict[str, tuple[Offer | str, ...]]:
        query = """
            SELECT shard, body FROM unnest(%s::text[], %s::bigint[]) AS mine (shard, seq)
            CROSS JOIN LATERAL (
                SELECT t.seq AS number, t.body FROM public_log.tile AS t
                WHERE t.shard = mine.shard AND t.seq > mine.seq ORDER BY t.seq LIMIT %s
            ) AS t ORDER BY shard, number"""
        rows = connection.execute(query, (list(after_seq), list(after_seq.values()), max_tiles), binary=True)
        found: dict[str, list[Offer | str]] = {}
        for shard, body in rows:
            try:
                tile = parse_tile(bytes(body))
                offer: Offer | str = Offer(tile, self._table(connection, tile.header.table))
            except ChainError as error:
                offer = str(error)
            found.setdefault(shard, []).append(offer)
        return {shard: tuple(tiles) for shard, tiles in found.items()}

    def _table(self, connection: Connection, digest: str) -> ZoneTable:
        if digest not in self._tables:
            row = connection.execute("SELECT body FROM public_log.document WHERE digest = %s", (digest,)).fetchone()
            if row is None:
                raise ChainError("zone table", digest, "is not in the log")
            self._tables[digest] = ZoneTable.from_json(row[0])
            if len(self._tables) > _MAX_TABLES_KEPT:
                self._tables.popitem(last=False)
        return self._tables[digest]

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        with self._session.transaction() as connection:
            query = "SELECT zone, shard FROM public_log.claim_zones(%s::jsonb)"
            return dict(connection.execute(query, (canonical_json(dict(claims)),)).fetchall())

    def shards_of(self, zones: Iterable[str]) -> dict[str, str]:
        """The shard that has claimed each zone; zones without a claim are left out."""
        query = "SELECT zone, shard FROM public_log.claim WHERE zone = ANY(%s)"
        with self._session.transaction() as connection:
            return dict(connection.execute(query, (list(zones),)).fetchall())

    def shard_names(self) -> set[str]:
        """Every shard that has claimed a zone: all that were ever opened."""
        with self._session.transaction() as connection:
            return {shard for (shard,) in connection.execute("SELECT DISTINCT shard FROM public_log.claim")}

    def read_heads(self, shards: Iterable[str]) -> dict[str, Offer]:
        """The last tile of each of these shards that has one. Raises ChainError where it cannot be read."""
        heads = self.heads()
        tails = self.read({shard: heads[shard][0] - 1 for shard in shards if shard in heads}, max_tiles=1)
        found = {}
        for shard, tail in tails.items():
            offer = tail.tiles[0] if tail.tiles else "is missing"
            if isinstance(offer, str):
                raise ChainError("log", f"of {shard}", offer)
            found[shard] = offer
        return found

    def read_offer(self, shard: str, seq: int) -> Offer:
        """One tile. Raises ChainError where it is missing or cannot be read."""
        tiles = self.read({shard: seq - 1}, max_tiles=1)[shard].tiles
        offer = tiles[0] if tiles else "is missing"
        if not isinstance(offer, str) and offer.tile.header.seq != seq:
            offer = "is in the archive"
        if isinstance(offer, str):
            raise ChainError("log", f"tile {seq} of {shard}", offer)
        return offer

    def read_bodies(self, shard: str, after_seq: int) -> Iterator[bytes]:
        """The tiles of a shard after a number, as they were appended, readable or not."""
        query = "SELECT seq, body FROM public_log.tile WHERE shard = %s AND seq > %s ORDER BY seq LIMIT %s"
        while True:
            with self._session.transaction() as connection:
                rows = connection.execute(query, (shard, after_seq, MAX_TILES_PER_READ), binary=True).fetchall()
            for seq, body in rows:
                yield bytes(body)
                after_seq = seq
            if len(rows) < MAX_TILES_PER_READ:
                return

    def table(self, digest: str) -> ZoneTable:
        """A zone table of the log. Raises ChainError where it is missing or cannot be read."""
        with self._session.transaction() as connection:
            return self._table(connection, digest)

    def append(self, offers: Mapping[str, Offer]) -> None:
        self._offered = dict(offers)
        tables = {offer.table.digest: offer.table for offer in offers.values()}
        new = {digest: table for digest, table in tables.items() if digest not in self._tables}
        with self._session.transaction() as connection:
            if new:
                self._publish_documents(connection, {digest: table.text for digest, table in new.items()})
            bodies = [offer.tile.to_bytes() for offer in offers.values()]
            connection.execute("SELECT count(*) FROM public_log.append(%s)", (bodies,), binary=True)
        self._tables |= new

    def publish_documents(self, documents: Mapping[str, str]) -> None:
        """Show plans, by digest, before anything is released under them."""
        with self._session.transaction() as connection:
            self._publish_documents(connection, documents)

    @staticmethod
    def _publish_documents(connection: Connection, documents: Mapping[str, str]) -> None:
        query = """
            INSERT INTO public_log.document SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING"""
        connection.execute(query, (list(documents), list(documents.values())))

    def documents(self, digests: Iterable[str]) -> dict[str, str]:
        """The documents with these digests, as far as the log has them."""
        query = "SELECT digest, body FROM public_log.document WHERE digest = ANY(%s)"
        with self._session.transaction() as connection:
            return dict(connection.execute(query, (list(digests),)).fetchall())

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()
