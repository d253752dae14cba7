"""The state of a publisher in PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict

import numpy as np

from murmurate.curator.terms import Terms
from murmurate.publication.publisher import Known
from murmurate.publication.record import Entry, read
from murmurate.publication.wish import Opening
from murmurate.quantities import Demand
from murmurate.service.connection import Session


class PostgresState:
    """See `publication.stores.State`. Nothing here waits for a lock: a zone that is taken is passed over."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)
        self._read: dict[str, Entry] = {}  # by line, as last locked: reading a line takes longer than fetching it
        self._terms: dict[str, Terms] = {}

    def lock(self, zones: Iterable[str]) -> dict[str, Known]:
        connection = self._session()
        wanted = list(zones)
        query = "SELECT zone FROM curator.head WHERE zone = ANY (%s) ORDER BY zone FOR UPDATE SKIP LOCKED"
        mine = [zone for (zone,) in connection.execute(query, (wanted,))]
        # A statement of its own: it sees what was committed before the lock was ours.
        query = """
            SELECT h.zone, r.line, p.line FROM curator.head h
            LEFT JOIN curator.release r ON r.zone = h.zone AND r.seq = h.seq
            LEFT JOIN curator.pending p ON p.zone = h.zone
            WHERE h.zone = ANY (%s)"""
        rows = connection.execute(query, (mine,)).fetchall()
        return {zone: Known(self._entry(head), self._entry(pending)) for zone, head, pending in rows}

    def _entry(self, line: str | None) -> Entry | None:
        return None if line is None else self._read.pop(line, None) or read(line)

    def recall(self, interval: Mapping[str, int]) -> Demand:
        query = """
            SELECT zone, energy_wh, reported, imputed FROM confidential.demand
            JOIN unnest(%s::text[], %s::bigint[]) AS wanted (zone, interval) USING (zone, interval)"""
        rows = self._session().execute(query, (list(interval), list(interval.values()))).fetchall() if interval else []
        zones, *columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        energy_wh, reported, imputed = (np.array(column, np.int64) for column in columns)
        return Demand(zones=tuple(zones), energy_wh=energy_wh, reported=reported, imputed=imputed)

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        connection = self._session()
        with connection.cursor() as cursor:
            if seen:
                with cursor.copy("COPY curator.release (zone, seq, line) FROM STDIN") as copy:
                    for zone, entries in seen.items():
                        for entry in entries:
                            copy.write_row((zone, entry.record.seq, entry.line))
                query = """
                    UPDATE curator.head SET seq = seen.seq FROM unnest(%s::text[], %s::bigint[]) AS seen (zone, seq)
                    WHERE head.zone = seen.zone"""
                cursor.execute(query, (list(seen), [entries[-1].record.seq for entries in seen.values()]))
            if pending:
                cursor.execute("DELETE FROM curator.pending WHERE zone = ANY (%s)", (list(pending),))
                with cursor.copy("COPY curator.pending (zone, line) FROM STDIN") as copy:
                    for zone, draft in pending.items():
                        if draft is not None:
                            copy.write_row((zone, draft.line))
        connection.commit()
        written = [entries[-1] for entries in seen.values()] + [
            entry for entry in pending.values() if entry is not None
        ]
        self._read.update({entry.line: entry for entry in written})

    def rollback(self) -> None:
        self._session.drop()
        self._read.clear()

    def remember(self, interval: int, demand: Demand) -> None:
        """Keep the demand of an interval until it is released; a corrected one replaces it."""
        query = """
            INSERT INTO confidential.demand (zone, interval, energy_wh, reported, imputed)
            SELECT zone, %s, energy_wh, reported, imputed
            FROM unnest(%b::text[], %b::bigint[], %b::bigint[], %b::bigint[]) AS d (zone, energy_wh, reported, imputed)
            ON CONFLICT (zone, interval) DO UPDATE SET
                energy_wh = excluded.energy_wh, reported = excluded.reported, imputed = excluded.imputed"""
        columns = [column.tolist() for column in (demand.energy_wh, demand.reported, demand.imputed)]
        with self._session.transaction() as connection:
            connection.execute(query, (interval, list(demand.zones), *columns))

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

    def terms(self, plan: str) -> Terms | None:
        """What a registered plan says about each release."""
        if plan not in self._terms:
            query = "SELECT document FROM curator.plan WHERE digest = %s"
            row = self._session().execute(query, (plan,)).fetchone()
            if row is None:
                return None
            self._terms[plan] = Terms.of(row[0])
        return self._terms[plan]
