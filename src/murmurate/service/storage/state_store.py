"""The state of a publisher in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np

from murmurate.errors import ChainError
from murmurate.planning.household_bounds import decode_bounds, encode_bounds
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import Entry, canonical_json, parse_entry
from murmurate.publisher.desired_state import Opening
from murmurate.publisher.protocol import SeenState
from murmurate.service.storage.session import Session, TransactionSource
from murmurate.types import Demand

WORKER_HEARTBEAT = "worker"  # name of the process that releases


class PostgresStateStore:
    """See `publisher.stores.StateStore`. Nothing here waits for a lock: a zone that is taken is passed over.

    Queries look up each zone by its key, whatever the planner thinks of the sizes: chains are endless.
    """

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)
        self._heads: dict[str, Entry] = {}  # as last saved; an entry of the log never changes
        self._pending: dict[str, Entry] = {}
        self._terms: dict[str, ReleaseTerms] = {}

    def lock(self, zones: Iterable[str]) -> dict[str, SeenState]:
        with self._session.connection() as connection:
            query = """
                SELECT zone, seq FROM curator.head WHERE zone IN (SELECT jsonb_array_elements_text(%s))
                FOR UPDATE SKIP LOCKED"""
            mine: dict[str, int] = dict(connection.execute(query, (canonical_json(list(zones)),)).fetchall())
            # Statements of their own: they see what was committed before the lock was ours.
            query = "SELECT zone, line FROM curator.pending WHERE zone IN (SELECT jsonb_array_elements_text(%s))"
            drafts: dict[str, str] = dict(connection.execute(query, (canonical_json(list(mine)),)).fetchall())
            unread = {
                zone: seq for zone, seq in mine.items() if seq >= 0 and _seq_or_none(self._heads.get(zone)) != seq
            }
            query = """
                SELECT mine.zone, (SELECT line FROM curator.release WHERE zone = mine.zone AND seq = mine.seq::bigint)
                FROM jsonb_each_text(%s) AS mine (zone, seq)"""
            heads: dict[str, str] = (
                dict(connection.execute(query, (canonical_json(unread),)).fetchall()) if unread else {}
            )
        self._pending = {zone: draft for zone, draft in self._pending.items() if drafts.get(zone) == draft.line}
        return {zone: self._seen_state(zone, seq, heads.get(zone), drafts.get(zone)) for zone, seq in mine.items()}

    def _seen_state(self, zone: str, seq: int, head: str | None, draft: str | None) -> SeenState:
        try:
            if seq >= 0 and _seq_or_none(self._heads.get(zone)) != seq:
                self._heads[zone] = parse_entry(head or "")
            if draft is not None and zone not in self._pending:
                self._pending[zone] = parse_entry(draft)
        except ChainError as error:
            return SeenState(None, None, damage=str(error))
        return SeenState(self._heads[zone] if seq >= 0 else None, self._pending.get(zone))

    def load_demand(self, intervals: Mapping[str, int]) -> Demand:
        query = """
            SELECT wanted.zone, d.* FROM jsonb_each_text(%s) AS wanted (zone, interval)
            CROSS JOIN LATERAL (
                SELECT energy_wh, reported, imputed, bounds FROM confidential.demand
                WHERE zone = wanted.zone AND interval = wanted.interval::bigint
                    AND energy_wh IS NOT NULL AND reported IS NOT NULL AND imputed IS NOT NULL OFFSET 0
            ) AS d"""
        with self._session.connection() as connection:
            rows = connection.execute(query, (canonical_json(dict(intervals)),)).fetchall() if intervals else []
        zones, *columns = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        *counts, texts = columns
        energy_wh, reported, imputed = (np.array(column, np.int64) for column in counts)
        known = {text: decode_bounds(text) for text in set(texts)}  # most zones have the same
        bounds = tuple(known[text] for text in texts)
        return Demand(zones=tuple(zones), energy_wh=energy_wh, reported=reported, imputed=imputed, bounds=bounds)

    def save(self, new_entries: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        drafts = {zone: draft for zone, draft in pending.items() if draft is not None}
        with self._session.connection() as connection, connection.cursor() as cursor:
            if new_entries:
                with cursor.copy("COPY curator.release (zone, seq, line) FROM STDIN") as copy:
                    for zone, entries in new_entries.items():
                        for entry in entries:
                            copy.write_row((zone, entry.record.seq, entry.line))
                query = """
                    UPDATE curator.head h SET seq = seen.seq::bigint FROM jsonb_each_text(%s) AS seen (zone, seq)
                    WHERE h.zone = seen.zone"""
                cursor.execute(
                    query, (canonical_json({zone: entries[-1].record.seq for zone, entries in new_entries.items()}),)
                )
            if stale := pending.keys() & self._pending.keys():
                query = "DELETE FROM curator.pending WHERE zone IN (SELECT jsonb_array_elements_text(%s))"
                cursor.execute(query, (canonical_json(list(stale)),))
            if drafts:
                with cursor.copy("COPY curator.pending (zone, line) FROM STDIN") as copy:
                    for zone, draft in drafts.items():
                        copy.write_row((zone, draft.line))
            connection.commit()
        self._heads |= {zone: entries[-1] for zone, entries in new_entries.items()}
        self._pending |= drafts

    def rollback(self) -> None:
        self._session.close()
        self._heads.clear()
        self._pending.clear()

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()

    def store_demand(self, interval: int, demand: Demand) -> None:
        """Keep the demand of an interval until it is released; a corrected one replaces it."""
        query = """
            INSERT INTO confidential.demand (zone, interval, energy_wh, reported, imputed, bounds)
            SELECT zone, %s, energy_wh, reported, imputed, bounds FROM unnest(
                %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[]
            ) AS d (zone, energy_wh, reported, imputed, bounds)
            ON CONFLICT (zone, interval) DO UPDATE SET energy_wh = excluded.energy_wh, reported = excluded.reported,
                imputed = excluded.imputed, bounds = excluded.bounds"""
        bounds = [encode_bounds(demand.bounds_at(row)) for row in range(len(demand.zones))]
        columns = [column.tolist() for column in (demand.energy_wh, demand.reported, demand.imputed)]
        with self._session.transaction() as connection:
            connection.execute(query, (interval, list(demand.zones), *columns, bounds))

    def register_plan(self, digest: str, document: str) -> None:
        """Keep a proven plan by its digest."""
        query = "INSERT INTO curator.plan VALUES (%s, %s) ON CONFLICT DO NOTHING"
        with self._session.transaction() as connection:
            connection.execute(query, (digest, document))

    def store_openings(self, openings: Mapping[str, Opening]) -> None:
        """Have these zones published from now on; one that is open already stays as it is."""
        query = """
            INSERT INTO curator.head (zone, opening) SELECT * FROM unnest(%s::text[], %s::jsonb[])
            ON CONFLICT DO NOTHING"""
        with self._session.transaction() as connection:
            connection.execute(query, (list(openings), [json.dumps(asdict(o)) for o in openings.values()]))

    def openings(self) -> dict[str, Opening]:
        """Every zone of this curator and how its chain began."""
        with self._session.transaction() as connection:
            rows = connection.execute("SELECT zone, opening FROM curator.head ORDER BY zone").fetchall()
        return {zone: Opening(**opening) for zone, opening in rows}

    def plan_by_zone(self) -> dict[str, str]:
        """The plan that each zone of this curator is under, as far as it has seen the log."""
        query = """
            SELECT zone, coalesce((SELECT line::jsonb ->> 'plan' FROM curator.release
                WHERE release.zone = head.zone AND release.seq = head.seq), opening ->> 'plan')
            FROM curator.head"""
        with self._session.transaction() as connection:
            return dict(connection.execute(query).fetchall())

    def terms_for_plan(self, digest: str) -> ReleaseTerms | None:
        """What a registered plan says about each release."""
        if digest not in self._terms:
            query = "SELECT document FROM curator.plan WHERE digest = %s"
            with self._session.transaction() as connection:
                row = connection.execute(query, (digest,)).fetchone()
            if row is None:
                return None
            self._terms[digest] = ReleaseTerms.from_json(row[0])
        return self._terms[digest]

    def purge_demand(self, zones: Iterable[str], before_interval: int) -> None:
        """Delete the demand of intervals before `before`: it was released, or never will be."""
        query = "DELETE FROM confidential.demand WHERE zone = ANY(%s) AND interval < %s"
        with self._session.transaction() as connection:
            connection.execute(query, (list(zones), before_interval))

    def record_heartbeat(self, process: str, report: Mapping[str, object]) -> None:
        """Store when a process was last alive, and its report."""
        query = """
            INSERT INTO curator.heartbeat VALUES (%s, clock_timestamp(), %s)
            ON CONFLICT (process) DO UPDATE SET at = excluded.at, report = excluded.report"""
        with self._session.transaction() as connection:
            connection.execute(query, (process, json.dumps(report)))

    def heartbeats(self) -> dict[str, tuple[float, dict[str, object]]]:
        return read_heartbeats(self._session)


def read_heartbeats(database: TransactionSource) -> dict[str, tuple[float, dict[str, object]]]:
    """When each process last recorded a heartbeat [s of UTC], and its report."""
    query = "SELECT process, extract(epoch FROM at)::float8, report FROM curator.heartbeat"
    with database.transaction() as connection:
        return {process: (at_s, report) for process, at_s, report in connection.execute(query).fetchall()}


def _seq_or_none(entry: Entry | None) -> int | None:
    return None if entry is None else entry.record.seq
