"""The public log in PostgreSQL, in another failure domain than the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from murmurate.publication.publisher import Beyond
from murmurate.publication.record import NOBODY, Entry, encode
from murmurate.service.connection import Session

AT_ONCE = 500  # lines of one zone in one answer


class PostgresLog:
    """See `publication.stores.Log`. The rules are enforced by the server, in `sql/log`."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)

    def read(self, after: Mapping[str, int]) -> dict[str, Beyond]:
        query = """
            SELECT h.zone, h.seq, h.hash, e.line FROM jsonb_each_text(%s) AS mine (zone, seq)
            JOIN public_log.head h ON h.zone = mine.zone
            LEFT JOIN LATERAL (
                SELECT line FROM public_log.entry
                WHERE zone = mine.zone AND seq > mine.seq::bigint ORDER BY seq LIMIT %s
            ) AS e ON true"""
        heads: dict[str, tuple[int, str]] = {}
        lines: dict[str, list[str]] = {}
        with self._session.transaction() as connection:
            for zone, seq, last, line in connection.execute(query, (encode(dict(after)), AT_ONCE)):
                heads[zone] = (seq, last)
                if line is not None:
                    lines.setdefault(zone, []).append(line)
        ends = {zone: heads.get(zone, (-1, NOBODY)) for zone in after}
        return {zone: Beyond(seq, tuple(lines.get(zone, ())), last) for zone, (seq, last) in ends.items()}

    def append(self, entries: Iterable[Entry]) -> None:
        offered = {entry.record.zone: entry.line for entry in entries}
        with self._session.transaction() as connection:
            query = "SELECT count(*) FROM public_log.append(%s, %s)"
            connection.execute(query, (encode(list(offered)), "\n".join(offered.values())))

    def close(self) -> None:
        """Hang up; a later call connects again."""
        self._session.drop()

    def publish_plan(self, plan: str, document: str) -> None:
        """Show a plan before anything is released under it."""
        query = "INSERT INTO public_log.plan VALUES (%s, %s) ON CONFLICT DO NOTHING"
        with self._session.transaction() as connection:
            connection.execute(query, (plan, document))

    def plan(self, digest: str) -> str | None:
        """The document of a published plan."""
        query = "SELECT document FROM public_log.plan WHERE digest = %s"
        with self._session.transaction() as connection:
            row = connection.execute(query, (digest,)).fetchone()
        return None if row is None else str(row[0])
