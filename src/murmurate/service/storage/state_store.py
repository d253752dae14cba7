"""The state of a publisher in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from psycopg import Connection

from murmurate.errors import ChainError, MurmurateError, PrivacyError
from murmurate.planning.household_bounds import decode_bounds, encode_bounds
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.public_inputs import MAX_INPUT_AGE_S, Inputs, select_inputs
from murmurate.public_log.tile import TileHeader, TileKind, parse_tile
from murmurate.public_log.tile_chain import ShardHead, rebuild_head
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import ShardOpening, ZoneOpening
from murmurate.publisher.steps import Offer, SeenState
from murmurate.service.storage.heartbeats import StoredHeartbeat, read_heartbeats, record_heartbeat
from murmurate.service.storage.session import Session
from murmurate.types import Demand

_PLANS_PER_QUERY = 1000
_ZONES_PER_STATEMENT = 100_000  # each statement has a minute, also on a busy server
PLANS_PER_PROGRESS = 100  # a plan takes about a millisecond to read, and a hundred times that on a busy machine
_DEMAND_COLUMNS = ("energy_wh", "reported", "imputed", "silent_bound_wh", "silent_export_bound_wh")
_INSERT_ZONES = "INSERT INTO curator.zone SELECT * FROM unnest(%s::text[], %s::text[], %s::jsonb[])"


class _Pending(NamedTuple):
    """A pending tile as it was stored, with the SHA-256 of its bytes."""

    offer: Offer
    digest: bytes

    @classmethod
    def from_offer(cls, offer: Offer) -> _Pending:
        return cls(offer, sha256(offer.tile.to_bytes()).digest())


class PostgresStateStore:
    """See `publisher.steps.StateStore`. Nothing here waits for a lock: a shard that is taken is passed over.

    Queries look up each shard by its key, also where the planner expects few rows: chains are endless.
    """

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)
        self._heads: dict[str, ShardHead] = {}  # as last saved; a tile of the log never changes
        self._pending: dict[str, _Pending] = {}  # another publisher may have replaced it since
        self._tables: dict[str, ZoneTable] = {}
        self._terms: dict[str, ReleaseTerms] = {}
        self._document_hashes: dict[str, str] = {}  # SHA-256 of the document of each plan in `_terms`

    def lock(self, shards: Iterable[str]) -> dict[str, SeenState]:
        with self._session.connection() as connection:
            query = "SELECT shard, seq FROM curator.shard WHERE shard = ANY(%s) FOR UPDATE SKIP LOCKED"
            mine: dict[str, int] = dict(connection.execute(query, (list(shards),)).fetchall())
            # Another statement: it sees what was committed before the lock was ours.
            query = """
                SELECT t.shard, CASE WHEN sha256(t.body) IS DISTINCT FROM mine.pending THEN t.body END
                FROM unnest(%s::text[], %s::bigint[], %s::bytea[]) AS mine (shard, seq, pending)
                JOIN curator.tile AS t ON t.shard = mine.shard AND t.seq > mine.seq"""
            known = [self._pending[shard].digest if shard in self._pending else None for shard in mine]
            rows = connection.execute(query, (list(mine), list(mine.values()), known), binary=True).fetchall()
            drafts: dict[str, bytes | None] = dict(rows)
            self._pending = {shard: draft for shard, draft in self._pending.items() if shard in drafts}
            return {shard: self._seen_state(connection, shard, seq, drafts.get(shard)) for shard, seq in mine.items()}

    def _seen_state(self, connection: Connection, shard: str, seq: int, draft: bytes | None) -> SeenState:
        """Return what is known of a shard. `draft`: its pending tile, where it is not the one that is kept here."""
        try:
            head = self._load_head(connection, shard, seq) if seq >= 0 else None
            if draft is not None:
                self._pending.pop(shard, None)
                tile = parse_tile(bytes(draft))
                self._pending[shard] = _Pending.from_offer(Offer(tile, self._table(connection, tile.header.table)))
        except ChainError as error:
            return SeenState(None, None, damage=str(error))
        return SeenState(head, self._pending[shard].offer if shard in self._pending else None)

    def _load_head(self, connection: Connection, shard: str, seq: int) -> ShardHead:
        """Return the head, from the last release on: later tiles have no rows."""
        known = self._heads.get(shard)
        if known is None or known.tile.header.seq != seq:
            query = """
                SELECT body FROM curator.tile WHERE shard = %(shard)s AND seq <= %(seq)s AND seq >= coalesce((
                    SELECT seq FROM curator.tile WHERE shard = %(shard)s AND seq <= %(seq)s AND releases
                    ORDER BY seq DESC LIMIT 1
                ), 0) ORDER BY seq"""
            rows = connection.execute(query, {"shard": shard, "seq": seq}, binary=True).fetchall()
            tiles = [parse_tile(bytes(body)) for (body,) in rows]
            if not tiles or tiles[-1].header.seq != seq:
                raise ChainError("state", f"without tile {seq}", f"must have every tile of {shard} that it has seen")
            tables = {tile.header.table: self._table(connection, tile.header.table) for tile in tiles}
            self._heads[shard] = rebuild_head(tiles, tables)
        return self._heads[shard]

    def _table(self, connection: Connection, digest: str) -> ZoneTable:
        if digest not in self._tables:
            row = connection.execute("SELECT body FROM curator.document WHERE digest = %s", (digest,)).fetchone()
            if row is None:
                raise ChainError("zone table", digest, "is not in the state")
            self._tables[digest] = ZoneTable.from_json(row[0])
        return self._tables[digest]

    def load_demand(self, intervals: Mapping[str, tuple[int, tuple[str, ...]]]) -> Demand:
        zones = [zone for _, names in intervals.values() for zone in names]
        numbers = [interval for interval, names in intervals.values() for _ in names]
        query = """
            SELECT wanted.zone, d.* FROM unnest(%s::bigint[], %s::text[]) AS wanted (interval, zone)
            CROSS JOIN LATERAL (
                SELECT energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh, bounds
                FROM confidential.demand
                WHERE zone = wanted.zone AND interval = wanted.interval
                    AND num_nulls(energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh) = 0 OFFSET 0
            ) AS d"""
        with self._session.connection() as connection:
            rows = connection.execute(query, (numbers, zones), binary=True).fetchall() if zones else []
        found, *columns = zip(*rows, strict=True) if rows else [()] * (2 + len(_DEMAND_COLUMNS))
        *counts, texts = columns
        known = {text: decode_bounds(text) for text in set(texts)}  # most zones have the same
        bounds = tuple(known[text] for text in texts)
        energy_wh, reported, imputed, silent_wh, silent_export_wh = (np.array(column, np.int64) for column in counts)
        return Demand(
            zones=tuple(found),
            energy_wh=energy_wh,
            reported=reported,
            imputed=imputed,
            silent_bound_wh=silent_wh,
            silent_export_bound_wh=silent_export_wh,
            bounds=bounds,
        )

    def save(self, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]) -> None:
        drafts = {shard: draft for shard, draft in pending.items() if draft is not None}
        confirmed = {  # shards whose pending tile was seen in the log
            shard
            for shard, heads in new_heads.items()
            if shard in self._pending and any(head.tile.hash == self._pending[shard].offer.tile.hash for head in heads)
        }
        stale = (pending.keys() & self._pending.keys()) - confirmed  # those whose pending tile is dropped
        with self._session.connection() as connection, connection.cursor() as cursor:
            if stale:
                cursor.execute("DELETE FROM curator.tile WHERE shard = ANY(%s) AND NOT seen", (sorted(stale),))
            if confirmed:
                query = "UPDATE curator.tile SET seen = true WHERE shard = ANY(%s) AND NOT seen"
                cursor.execute(query, (sorted(confirmed),))
            seen = [
                (shard, head.tile, head.table)
                for shard, heads in new_heads.items()
                for head in heads
                if shard not in confirmed or head.tile.hash != self._pending[shard].offer.tile.hash
            ]
            drafted = [(shard, draft.tile, draft.table) for shard, draft in drafts.items()]
            tables = {table.digest: table for _, _, table in (*seen, *drafted) if table.digest not in self._tables}
            if tables:
                query = """
                    INSERT INTO curator.document SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING"""
                cursor.execute(query, (list(tables), [table.text for table in tables.values()]))
                self._tables |= tables
            with cursor.copy("COPY curator.tile (shard, seq, releases, seen, body) FROM STDIN BINARY") as copy:
                copy.set_types(("text", "int8", "bool", "bool", "bytea"))
                for known, tiles in ((True, seen), (False, drafted)):
                    for shard, tile, _ in tiles:
                        releases = tile.header.kind is TileKind.RELEASE
                        copy.write_row((shard, tile.header.seq, releases, known, tile.to_bytes()))
            if new_heads:
                query = """
                    UPDATE curator.shard s SET seq = seen.seq FROM unnest(%s::text[], %s::bigint[]) AS seen (shard, seq)
                    WHERE s.shard = seen.shard"""
                cursor.execute(query, (list(new_heads), [heads[-1].tile.header.seq for heads in new_heads.values()]))
            connection.commit()
        self._heads |= {shard: heads[-1] for shard, heads in new_heads.items()}
        kept = {shard: draft for shard, draft in self._pending.items() if shard not in confirmed | stale}
        self._pending = kept | {shard: _Pending.from_offer(draft) for shard, draft in drafts.items()}

    def rollback(self) -> None:
        self._session.close()
        self._heads.clear()
        self._pending.clear()
        self._tables.clear()

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()

    def store_demand(self, interval: int, demand: Demand) -> None:
        """Keep the demand of an interval until it is released; a corrected one replaces it."""
        query = """
            INSERT INTO confidential.demand (
                zone, interval, energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh, bounds
            )
            SELECT zone, %s, energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh, bounds FROM unnest(
                %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[]
            ) AS d (zone, energy_wh, reported, imputed, silent_bound_wh, silent_export_bound_wh, bounds)
            ON CONFLICT (interval, zone) DO UPDATE SET energy_wh = excluded.energy_wh, reported = excluded.reported,
                imputed = excluded.imputed, silent_bound_wh = excluded.silent_bound_wh,
                silent_export_bound_wh = excluded.silent_export_bound_wh, bounds = excluded.bounds"""
        bounds = [encode_bounds(demand.bounds_at(row)) for row in range(len(demand.zones))]
        columns = [list(demand.zones), *(getattr(demand, name).tolist() for name in _DEMAND_COLUMNS), bounds]
        for at in range(0, len(demand.zones), _ZONES_PER_STATEMENT):
            with self._session.transaction() as connection:
                connection.execute(query, (interval, *(column[at : at + _ZONES_PER_STATEMENT] for column in columns)))

    def register_plans(self, documents: Mapping[str, str]) -> None:
        """Keep proven plans by their digests. A document that was damaged since is replaced."""
        query = """
            INSERT INTO curator.document AS old SELECT * FROM unnest(%s::text[], %s::text[])
            ON CONFLICT (digest) DO UPDATE SET body = excluded.body WHERE old.body <> excluded.body"""
        with self._session.transaction() as connection:
            connection.execute(query, (list(documents), list(documents.values())))

    def store_openings(self, shards: Mapping[str, ShardOpening], zones: Mapping[str, tuple[str, ZoneOpening]]) -> None:
        """Have these shards and zones published from now on; one that is open already stays as it is."""
        with self._session.transaction() as connection:
            query = """
                INSERT INTO curator.shard (shard, opening) SELECT * FROM unnest(%s::text[], %s::jsonb[])
                ON CONFLICT DO NOTHING"""
            connection.execute(query, (list(shards), [json.dumps(asdict(each)) for each in shards.values()]))
            query = f"{_INSERT_ZONES} ON CONFLICT DO NOTHING"
            connection.execute(query, _encode_openings(zones))

    def assign_zones(self, zones: Mapping[str, tuple[str, ZoneOpening]]) -> None:
        """Have these zones published in the shards that the log says, wherever they should have been before."""
        query = f"{_INSERT_ZONES} ON CONFLICT (zone) DO UPDATE SET shard = excluded.shard, opening = excluded.opening"
        with self._session.transaction() as connection:
            connection.execute(query, _encode_openings(zones))

    def shards(self) -> dict[str, ShardOpening]:
        """Every shard of this publisher and how it began. One that has ended with its last zone is left out."""
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT shard, opening FROM curator.shard ORDER BY shard").fetchall()
        ended = {shard for shard, table in self.tables().items() if not table.rows}
        return {shard: ShardOpening(**opening) for shard, opening in rows if shard not in ended}

    def zones(self) -> dict[str, tuple[str, ZoneOpening]]:
        """Every zone of this publisher: the shard that it should be in, and how it enters it. Without closed ones."""
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT zone, shard, opening FROM curator.zone ORDER BY zone").fetchall()
        closed = self.closed_zones()
        return {zone: (shard, ZoneOpening(**opening)) for zone, shard, opening in rows if zone not in closed}

    def closed_zones(self) -> set[str]:
        """The zones that were closed, as far as the log was seen."""
        return {zone for table in self.tables().values() for zone in table.closed_by_zone}

    def head_at(self, shard: str, seq: int) -> ShardHead:
        """The head after a tile that was seen. Raises ChainError where the state does not have it."""
        with self._session.transaction() as connection:
            return self._load_head(connection, shard, seq)

    def table(self, digest: str) -> ZoneTable:
        """A zone table that was seen. Raises ChainError where the state does not have it."""
        with self._session.transaction() as connection:
            return self._table(connection, digest)

    def tables(self) -> dict[str, ZoneTable]:
        """The zone table of each shard that was seen in the log."""
        query = """
            SELECT s.shard, convert_from(substring(t.body FROM 1 FOR position('\\x0a'::bytea IN t.body) - 1), 'UTF8')
            FROM curator.shard AS s JOIN curator.tile AS t ON t.shard = s.shard AND t.seq = s.seq"""
        with self._session.transaction() as connection:
            headers = connection.execute(query).fetchall()
            return {shard: self._table(connection, json.loads(header)["table"]) for shard, header in headers}

    def plan_by_zone(self, zones: Mapping[str, tuple[str, ZoneOpening]] | None = None) -> dict[str, str]:
        """The plan that each zone is under, as far as the log was seen. `zones`, where they were read already."""
        opened = {zone: opening.plan for zone, (_, opening) in (self.zones() if zones is None else zones).items()}
        return opened | {row.zone: row.plan for table in self.tables().values() for row in table.rows}

    def terms_for_plan(self, digest: str) -> ReleaseTerms | None:
        """What a registered plan says about each release. Raises PrivacyError where its document is damaged."""
        if digest not in self._terms:
            with self._session.transaction() as connection:
                query = "SELECT body FROM curator.document WHERE digest = %s"
                row = connection.execute(query, (digest,)).fetchone()
            if row is None:
                return None
            self._keep_terms(digest, row[0])
        return self._terms[digest]

    def load_terms(self, digests: Iterable[str], on_progress: Callable[[], object] = lambda: None) -> None:
        """Read the terms of many plans with few queries. A damaged plan is left out.

        A hundred thousand plans take minutes: `on_progress` is called at least each `PLANS_PER_PROGRESS` plans.
        """
        self._read_documents(set(digests) - self._terms.keys(), on_progress)

    def _read_documents(self, digests: set[str], on_progress: Callable[[], object]) -> set[str]:
        """Keep the terms of these plans. Returns those whose documents are there and sound."""
        sound = set()
        query = "SELECT digest, body FROM curator.document WHERE digest = ANY(%s)"
        for wanted in _batches(digests):
            on_progress()
            with self._session.transaction() as connection:
                rows = connection.execute(query, (wanted,)).fetchall()
            for number, (digest, text) in enumerate(rows, 1):
                if number % PLANS_PER_PROGRESS == 0:
                    on_progress()
                with suppress(MurmurateError):
                    self._keep_terms(digest, text)
                    sound.add(digest)
        return sound

    def _keep_terms(self, digest: str, text: str) -> None:
        terms = ReleaseTerms.from_json(text)
        if terms.plan_digest != digest:
            raise PrivacyError("plan", digest, "must be the document with this digest: the state is damaged")
        self._terms[digest] = terms
        self._document_hashes[digest] = sha256(text.encode()).hexdigest()

    def find_damaged_plans(self, on_progress: Callable[[], object] = lambda: None) -> set[str]:
        """Digests of plans in memory whose documents are gone from the state, or no longer have their digest."""
        query = """
            SELECT digest, encode(sha256(convert_to(body, 'UTF8')), 'hex') FROM curator.document
            WHERE digest = ANY(%s)"""
        found: dict[str, str] = {}
        for wanted in _batches(self._document_hashes):
            on_progress()
            with self._session.transaction() as connection:
                found.update(connection.execute(query, (wanted,)).fetchall())
        changed = {digest for digest, known in self._document_hashes.items() if found.get(digest) != known}
        return changed - self._read_documents(changed, on_progress)

    def find_inputs(self, series: Collection[str], last: TileHeader, interval: int) -> Inputs:
        """Return the public inputs of an interval that comes after a tile, from what was posted until now."""
        interval_s, ahead = last.interval_s, interval + last.lead
        query = """
            SELECT series, interval, thousandths FROM curator.public_input
            WHERE series = ANY(%s) AND interval_s = %s AND interval BETWEEN %s AND %s"""
        values: dict[str, dict[int, int]] = {}
        with self._session.connection() as connection:
            first = interval - MAX_INPUT_AGE_S // interval_s
            for name, at, thousandths in connection.execute(query, (list(series), interval_s, first, ahead)).fetchall():
                values.setdefault(name, {})[at] = thousandths
        return select_inputs(values, series, interval=interval, lead=last.lead, interval_s=interval_s)

    def purge_inputs(self, before_s: int) -> None:
        """Delete public inputs of intervals before a time."""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM curator.public_input WHERE interval * interval_s < %s", (before_s,))

    def purge_demand(self, interval_s: int, before_interval: int) -> None:
        """Delete the demand of earlier intervals of this length: it was released, or never will be."""
        query = """
            DELETE FROM confidential.demand WHERE interval < %s AND zone IN (
                SELECT z.zone FROM curator.zone AS z JOIN curator.shard AS s USING (shard)
                WHERE (s.opening ->> 'interval_s')::bigint = %s)"""
        with self._session.transaction() as connection:
            connection.execute(query, (before_interval, interval_s))

    def begin_aggregation(self, interval_s: int, interval: int) -> int:
        """Count that the aggregation of an interval is begun, unless another worker is at it. Returns the count.

        The lock of a worker ends with its connection, so a count above 1 is of workers that ended before they finished.
        """
        query = """
            INSERT INTO curator.aggregation_attempt AS a
            VALUES (%s, %s, pg_try_advisory_lock(hashtextextended(%s, 0))::int)
            ON CONFLICT (interval_s, interval) DO UPDATE SET attempts = a.attempts + excluded.attempts
            RETURNING attempts"""
        with self._session.transaction() as connection:
            row = connection.execute(query, (interval_s, interval, f"aggregation {interval_s} {interval}")).fetchone()
        return int(row[0]) if row else 0

    def finish_aggregation(self, interval_s: int, interval: int) -> None:
        """Delete the counts of an interval and of those before it."""
        query = "DELETE FROM curator.aggregation_attempt WHERE interval_s = %s AND interval <= %s"
        with self._session.transaction() as connection:
            connection.execute(query, (interval_s, interval))
            connection.execute("SELECT pg_advisory_unlock_all()")

    def record_heartbeat(self, process: str, report: Mapping[str, object]) -> float:
        """Store when a process was last alive, and its report. Returns the time by the database's clock [s of UTC]."""
        return record_heartbeat(self._session, process, report)

    def heartbeats(self) -> dict[str, StoredHeartbeat]:
        return read_heartbeats(self._session)


def _batches(digests: Iterable[str]) -> Iterator[list[str]]:
    wanted = sorted(digests)
    return (wanted[at : at + _PLANS_PER_QUERY] for at in range(0, len(wanted), _PLANS_PER_QUERY))


def _encode_openings(zones: Mapping[str, tuple[str, ZoneOpening]]) -> tuple[list[str], list[str], list[str]]:
    """Return columns of names, shards and openings."""
    openings = [json.dumps(asdict(opening)) for _, opening in zones.values()]
    return list(zones), [shard for shard, _ in zones.values()], openings
