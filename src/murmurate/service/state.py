"""The state of a publisher in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np

from murmurate.curator.bounds import decode_bounds, encode_bounds
from murmurate.curator.terms import Terms
from murmurate.errors import ChainError
from murmurate.publication.publisher import Known
from murmurate.publication.record import Entry, encode, read
from murmurate.publication.wish import Opening
from murmurate.quantities import Demand
from murmurate.service.connection import Session


class PostgresState:
    """See `publication.stores.State`. Nothing here waits for a lock: a zone that is taken is passed over.

    Queries look up each zone by its key, whatever the planner thinks of the sizes: chains are endless.
    """

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)
        self._heads: dict[str, Entry] = {}  # as last saved; an entry of the log never changes
        self._pending: dict[str, Entry] = {}
        self._terms: dict[str, Terms] = {}

    def lock(self, zones: Iterable[str]) -> dict[str, Known]:
        with self._session.hold() as connection:
            query = """
                SELECT zone, seq FROM curator.head WHERE zone IN (SELECT jsonb_array_elements_text(%s))
                FOR UPDATE SKIP LOCKED"""
            mine: dict[str, int] = dict(connection.execute(query, (encode(list(zones)),)).fetchall())
            # Statements of their own: they see what was committed before the lock was ours.
            query = "SELECT zone, line FROM curator.pending WHERE zone IN (SELECT jsonb_array_elements_text(%s))"
            drafts: dict[str, str] = dict(connection.execute(query, (encode(list(mine)),)).fetchall())
            unread = {zone: seq for zone, seq in mine.items() if seq >= 0 and _seq(self._heads.get(zone)) != seq}
            query = """
                SELECT mine.zone, (SELECT line FROM curator.release WHERE zone = mine.zone AND seq = mine.seq::bigint)
                FROM jsonb_each_text(%s) AS mine (zone, seq)"""
            heads: dict[str, str] = dict(connection.execute(query, (encode(unread),)).fetchall()) if unread else {}
        self._pending = {zone: draft for zone, draft in self._pending.items() if drafts.get(zone) == draft.line}
        return {zone: self._known(zone, seq, heads.get(zone), drafts.get(zone)) for zone, seq in mine.items()}

    def _known(self, zone: str, seq: int, head: str | None, draft: str | None) -> Known:
        try:
            if seq >= 0 and _seq(self._heads.get(zone)) != seq:
                self._heads[zone] = read(head or "")
            if draft is not None and zone not in self._pending:
                self._pending[zone] = read(draft)
        except ChainError as error:
            return Known(None, None, damage=str(error))
        return Known(self._heads[zone] if seq >= 0 else None, self._pending.get(zone))

    def recall(self, interval: Mapping[str, int]) -> Demand:
        query = """
            SELECT wanted.zone, d.* FROM jsonb_each_text(%s) AS wanted (zone, interval)
            CROSS JOIN LATERAL (
                SELECT energy_wh, reported, imputed, bounds FROM confidential.demand
                WHERE zone = wanted.zone AND interval = wanted.interval::bigint
                    AND energy_wh IS NOT NULL AND reported IS NOT NULL AND imputed IS NOT NULL OFFSET 0
            ) AS d"""
        with self._session.hold() as connection:
            rows = connection.execute(query, (encode(dict(interval)),)).fetchall() if interval else []
        zones, *columns = zip(*rows, strict=True) if rows else ((), (), (), (), ())
        *counts, texts = columns
        energy_wh, reported, imputed = (np.array(column, np.int64) for column in counts)
        known = {text: decode_bounds(text) for text in set(texts)}  # most zones have the same
        bounds = tuple(known[text] for text in texts)
        return Demand(zones=tuple(zones), energy_wh=energy_wh, reported=reported, imputed=imputed, bounds=bounds)

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        drafts = {zone: draft for zone, draft in pending.items() if draft is not None}
        with self._session.hold() as connection, connection.cursor() as cursor:
            if seen:
                with cursor.copy("COPY curator.release (zone, seq, line) FROM STDIN") as copy:
                    for zone, entries in seen.items():
                        for entry in entries:
                            copy.write_row((zone, entry.record.seq, entry.line))
                query = """
                    UPDATE curator.head h SET seq = seen.seq::bigint FROM jsonb_each_text(%s) AS seen (zone, seq)
                    WHERE h.zone = seen.zone"""
                cursor.execute(query, (encode({zone: entries[-1].record.seq for zone, entries in seen.items()}),))
            if stale := pending.keys() & self._pending.keys():
                query = "DELETE FROM curator.pending WHERE zone IN (SELECT jsonb_array_elements_text(%s))"
                cursor.execute(query, (encode(list(stale)),))
            if drafts:
                with cursor.copy("COPY curator.pending (zone, line) FROM STDIN") as copy:
                    for zone, draft in drafts.items():
                        copy.write_row((zone, draft.line))
            connection.commit()
        self._heads |= {zone: entries[-1] for zone, entries in seen.items()}
        self._pending |= drafts

    def rollback(self) -> None:
        self._session.drop()
        self._heads.clear()
        self._pending.clear()

    def close(self) -> None:
        """Hang up; a later call connects again."""
        self._session.drop()

    def remember(self, interval: int, demand: Demand) -> None:
        """Keep the demand of an interval until it is released; a corrected one replaces it."""
        query = """
            INSERT INTO confidential.demand (zone, interval, energy_wh, reported, imputed, bounds)
            SELECT zone, %s, energy_wh, reported, imputed, bounds FROM unnest(
                %b::text[], %b::bigint[], %b::bigint[], %b::bigint[], %b::text[]
            ) AS d (zone, energy_wh, reported, imputed, bounds)
            ON CONFLICT (zone, interval) DO UPDATE SET energy_wh = excluded.energy_wh, reported = excluded.reported,
                imputed = excluded.imputed, bounds = excluded.bounds"""
        bounds = [encode_bounds(demand.bounds_at(place)) for place in range(len(demand.zones))]
        columns = [column.tolist() for column in (demand.energy_wh, demand.reported, demand.imputed)]
        with self._session.transaction() as connection:
            connection.execute(query, (interval, list(demand.zones), *columns, bounds))

    def register(self, plan: str, document: str) -> None:
        """Keep a proven plan by its digest."""
        query = "INSERT INTO curator.plan VALUES (%s, %s) ON CONFLICT DO NOTHING"
        with self._session.transaction() as connection:
            connection.execute(query, (plan, document))

    def open(self, openings: Mapping[str, Opening]) -> None:
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

    def plans(self) -> dict[str, str]:
        """The plan that each zone of this curator is under, as far as it has seen the log."""
        query = """
            SELECT zone, coalesce((SELECT line::jsonb ->> 'plan' FROM curator.release
                WHERE release.zone = head.zone AND release.seq = head.seq), opening ->> 'plan')
            FROM curator.head"""
        with self._session.transaction() as connection:
            return dict(connection.execute(query).fetchall())

    def terms(self, plan: str) -> Terms | None:
        """What a registered plan says about each release."""
        if plan not in self._terms:
            query = "SELECT document FROM curator.plan WHERE digest = %s"
            with self._session.transaction() as connection:
                row = connection.execute(query, (plan,)).fetchone()
            if row is None:
                return None
            self._terms[plan] = Terms.of(row[0])
        return self._terms[plan]

    def forget_demand(self, zones: Iterable[str], before: int) -> None:
        """Delete the demand of intervals before `before`: it was released, or never will be."""
        query = "DELETE FROM confidential.demand WHERE zone = ANY(%s) AND interval < %s"
        with self._session.transaction() as connection:
            connection.execute(query, (list(zones), before))

    def beat(self, part: str, said: Mapping[str, object]) -> None:
        """Have a part of the service say that it lives."""
        query = """
            INSERT INTO curator.heartbeat VALUES (%s, clock_timestamp(), %s)
            ON CONFLICT (part) DO UPDATE SET at = excluded.at, said = excluded.said"""
        with self._session.transaction() as connection:
            connection.execute(query, (part, json.dumps(said)))

    def heartbeats(self) -> dict[str, tuple[float, dict[str, object]]]:
        """When each part last spoke [s of UTC], and what it said."""
        query = "SELECT part, extract(epoch FROM at)::float8, said FROM curator.heartbeat"
        with self._session.transaction() as connection:
            return {part: (at, said) for part, at, said in connection.execute(query).fetchall()}


def _seq(entry: Entry | None) -> int | None:
    return None if entry is None else entry.record.seq
