"""The public log in PostgreSQL, in another failure domain than the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from psycopg import Connection

from murmurate.public_log.record import GENESIS_PREV, Entry, canonical_json
from murmurate.publisher.protocol import LogTail
from murmurate.service.storage.session import Session

MAX_LINES_PER_READ = 500  # lines of one zone in one answer


class PostgresLogStore:
    """See `publisher.stores.LogStore`. The rules are enforced by the server, in `sql/log`."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)
        self._offered: dict[str, Entry] = {}  # last; if the log says that its head has this hash, it need not send it

    def read(self, after_seq: Mapping[str, int]) -> dict[str, LogTail]:
        query = """
            SELECT h.zone, h.seq, h.hash FROM public_log.head h
            WHERE h.zone IN (SELECT jsonb_array_elements_text(%s))"""
        with self._session.transaction() as connection:
            heads = {
                zone: (seq, last) for zone, seq, last in connection.execute(query, (canonical_json(list(after_seq)),))
            }
            lines: dict[str, tuple[str, ...]] = {
                zone: (self._offered[zone].line,)
                for zone in heads
                if self._is_last_offered(zone, *heads[zone], after_seq)
            }
            unread = {
                zone: after_seq[zone] for zone, (seq, _) in heads.items() if seq > after_seq[zone] and zone not in lines
            }
            if unread:
                lines |= self._read_lines(connection, unread)
        ends = {zone: heads.get(zone, (-1, GENESIS_PREV)) for zone in after_seq}
        return {zone: LogTail(seq, lines.get(zone, ()), last) for zone, (seq, last) in ends.items()}

    def _is_last_offered(self, zone: str, seq: int, last: str, after_seq: Mapping[str, int]) -> bool:
        """Whether all that is new is the line that was offered from here."""
        offered = self._offered.get(zone)
        return offered is not None and (offered.hash, offered.record.seq) == (last, seq) and seq == after_seq[zone] + 1

    @staticmethod
    def _read_lines(connection: Connection, after_seq: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        query = """
            SELECT mine.zone, array_agg(e.line ORDER BY e.seq) FROM jsonb_each_text(%s) AS mine (zone, seq)
            CROSS JOIN LATERAL (
                SELECT seq, line FROM public_log.entry
                WHERE zone = mine.zone AND seq > mine.seq::bigint ORDER BY seq LIMIT %s
            ) AS e GROUP BY mine.zone"""
        rows = connection.execute(query, (canonical_json(dict(after_seq)), MAX_LINES_PER_READ)).fetchall()
        return {zone: tuple(lines) for zone, lines in rows}

    def append(self, entries: Iterable[Entry]) -> None:
        self._offered = {entry.record.zone: entry for entry in entries}
        lines = "\n".join(entry.line for entry in self._offered.values())
        with self._session.transaction() as connection:
            connection.execute("SELECT count(*) FROM public_log.append(%s)", (lines,))

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()

    def publish_plan(self, digest: str, document: str) -> None:
        """Show a plan before anything is released under it."""
        query = "INSERT INTO public_log.plan VALUES (%s, %s) ON CONFLICT DO NOTHING"
        with self._session.transaction() as connection:
            connection.execute(query, (digest, document))

    def plan_document(self, digest: str) -> str | None:
        """The document of a published plan."""
        query = "SELECT document FROM public_log.plan WHERE digest = %s"
        with self._session.transaction() as connection:
            row = connection.execute(query, (digest,)).fetchone()
        return None if row is None else str(row[0])
