"""What ingest keeps in the state: which signed readings were accepted, and the last values of registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.ingest.ingestor import MAX_CLOCK_SKEW_S
from murmurate.service.storage.session import TransactionSource, open_source
from murmurate.units import BoolArray, IntArray


class IngestStore:
    """Claims and register readings in the state database. Threads may share one that has a pool."""

    def __init__(self, database: str | TransactionSource) -> None:
        self._session = open_source(database)

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        """See `ingestor.ClaimStore`. Of several claims of a reading at once, one is first; the others wait."""
        query = """
            INSERT INTO confidential.seen SELECT * FROM unnest(%b::bigint[], %b::bigint[]) ORDER BY 1, 2
            ON CONFLICT DO NOTHING RETURNING meter, start_s"""
        readings = list(zip(meter.tolist(), start_s.tolist(), strict=True))
        with self._session.transaction() as connection:
            claimed = set(connection.execute(query, (meter.tolist(), start_s.tolist())).fetchall())
            first = np.zeros(len(readings), np.bool_)
            for row, reading in enumerate(readings):
                first[row] = reading in claimed
                claimed.discard(reading)  # twice in one batch: the first counts
            yield first

    def load_registers(self, meters: Iterable[int]) -> dict[int, RegisterState]:
        """The last values of these registers, as far as they are known."""
        query = """
            SELECT meter, first_at_s, first_wh, at_s, wh FROM confidential.register WHERE meter = ANY(%b::bigint[])"""
        with self._session.transaction() as connection:
            rows = connection.execute(query, (list(meters),)).fetchall()
        return {
            meter: RegisterState(RegisterReading(*points[:2]), RegisterReading(*points[2:])) for meter, *points in rows
        }

    def store_registers(self, registers: Mapping[int, RegisterState], *, now_s: int) -> None:
        """Store the values of registers. An older value never replaces a newer one, unless that one is of the future.

        `now_s` is the time of the service [s of UTC].
        """
        query = """
            INSERT INTO confidential.register AS old (meter, first_at_s, first_wh, at_s, wh)
            SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]) ORDER BY 1
            ON CONFLICT (meter) DO UPDATE
            SET first_at_s = excluded.first_at_s, first_wh = excluded.first_wh, at_s = excluded.at_s, wh = excluded.wh
            WHERE old.at_s < excluded.at_s OR old.at_s > %s"""
        rows = [
            (meter, register.first.at_s, register.first.total_wh, register.last.at_s, register.last.total_wh)
            for meter, register in registers.items()
        ]
        if rows:
            with self._session.transaction() as connection:
                columns = map(list, zip(*rows, strict=True))
                connection.execute(query, (*columns, now_s + MAX_CLOCK_SKEW_S))

    def purge_claims(self, before_s: int) -> None:
        """Signed readings of intervals that began before need not be known any more: they would come late."""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM confidential.seen WHERE start_s < %s", (before_s,))

    def purge_registers(self, before_s: int) -> None:
        """A register without a point since then begins again with its next one."""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM confidential.register WHERE at_s < %s OR at_s IS NULL", (before_s,))

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()
