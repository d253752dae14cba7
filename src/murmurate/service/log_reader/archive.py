"""Look things up in the public log, however long ago they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import psycopg
from psycopg import Connection

from murmurate.public_log.record import RELEASE_KINDS, Entry, RecordKind, canonical_json
from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.storage.session import TransactionSource, open_source

LOG_CURSOR_ROWS = 2000

_SELECT_PLANS = """
    SELECT document FROM public_log.plan WHERE %(zone)s::text IS NULL OR digest IN (
        SELECT line::jsonb ->> 'plan' FROM public_log.entry
        WHERE zone = %(zone)s AND (seq = 0 OR line LIKE '%%"kind":"plan"%%'))
    ORDER BY digest"""
_SELECT_ENTRIES = """
    SELECT line FROM public_log.entry WHERE %(zone)s::text IS NULL OR zone = %(zone)s ORDER BY zone, seq"""
_SELECT_ENTRY_RANGE = """
    SELECT line, extract(epoch FROM taken)::float8 FROM public_log.entry
    WHERE zone = %s AND seq BETWEEN %s AND %s ORDER BY seq"""


def price_from_entry(entry: Entry, logged_s: float) -> Price:
    """What a release says about the price of the interval that pays it."""
    record = entry.record
    scale_wh = None if record.scale_wh is None else float(record.scale_wh)
    return Price(
        record.applies, record.kind, record.price_ticks, Fraction(record.tick), scale_wh, logged_s, record.core_wh
    )


def price_from_line(line: str, logged_s: float) -> Price | None:
    """The price in a line that was checked when it was new: a tenth of what it takes to check it again."""
    record = json.loads(line)
    if record["kind"] not in RELEASE_KINDS:
        return None
    scale_wh = None if record["scale_wh"] is None else float(record["scale_wh"])
    kind, tick = RecordKind(record["kind"]), _parse_tick(record["tick"])
    return Price(record["applies"], kind, record["price_ticks"], tick, scale_wh, logged_s, record["core_wh"])


_parse_tick = lru_cache(maxsize=64)(Fraction)


def log_lines(connection: Connection, zone: str | None) -> Iterator[str]:
    """The log, or one zone of it: plans first, then every entry in order."""
    parameters = {"zone": zone}
    for (document,) in connection.execute(_SELECT_PLANS, parameters):
        yield canonical_json(json.loads(document))
    with connection.cursor("export") as cursor:
        cursor.itersize = LOG_CURSOR_ROWS
        for (line,) in cursor.execute(_SELECT_ENTRIES, parameters):
            yield line


class Archive:
    """Reads the public log. Threads may share one that has a pool."""

    def __init__(self, database: str | TransactionSource) -> None:
        self._session = open_source(database)

    def read_plan(self, digest: str) -> str | None:
        """The document of a published plan."""
        query = "SELECT document FROM public_log.plan WHERE digest = %s"
        with self._session.transaction() as connection:
            row = connection.execute(query, (digest,)).fetchone()
        return None if row is None else str(row[0])

    def read_prices(self, view: ZoneView, first: int, last: int) -> list[Price]:
        """The prices of a stretch of intervals.

        A record moves the interval by one or by none. So the record of an interval is at least as many records after
        the first one as the interval is after it, and at least as many before the last one.
        """
        low, high = (
            max(0, first - (view.first_priced - 1)),
            view.seq - (view.last_decided - min(last, view.last_decided)),
        )
        with self._session.transaction() as connection:
            rows = connection.execute(_SELECT_ENTRY_RANGE, (view.zone, low, high)).fetchall()
        prices = (price_from_line(line, taken_s) for line, taken_s in rows)
        return [price for price in prices if price is not None and first <= price.interval <= last]

    def read_log_chunks(self, zone: str | None) -> Iterator[bytes]:
        """The log as a file that `murmurate verify` takes, as it stands at one moment."""
        with psycopg.connect(self._session.dsn, connect_timeout=5) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            batch: list[str] = []
            for line in log_lines(connection, zone):
                batch.append(line)
                if len(batch) == 100:
                    yield ("\n".join(batch) + "\n").encode()
                    batch.clear()
            if batch:
                yield ("\n".join(batch) + "\n").encode()

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()
