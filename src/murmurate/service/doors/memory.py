"""What the doors remember in the state: signed readings that were taken, and where registers stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from murmurate.quantities import BoolArray, IntArray
from murmurate.service.connection import Session
from murmurate.service.doors.register import Point, Register


class DoorMemory:
    """One connection; whoever works in several threads has several of them."""

    def __init__(self, dsn: str) -> None:
        self._session = Session(dsn)

    @contextmanager
    def claim(self, meter: IntArray, start_s: IntArray) -> Iterator[BoolArray]:
        """See `intake.Seen`. Of several that claim a reading at once, one is first; the others wait for it."""
        query = """
            INSERT INTO confidential.seen SELECT * FROM unnest(%b::bigint[], %b::bigint[]) ORDER BY 1, 2
            ON CONFLICT DO NOTHING RETURNING meter, start_s"""
        wanted = list(zip(meter.tolist(), start_s.tolist(), strict=True))
        with self._session.transaction() as connection:
            left = set(connection.execute(query, (meter.tolist(), start_s.tolist())).fetchall())
            first = np.zeros(len(wanted), np.bool_)
            for row, reading in enumerate(wanted):
                first[row] = reading in left
                left.discard(reading)  # twice in one batch: the first counts
            yield first

    def registers(self, meters: Iterable[int]) -> dict[int, Register]:
        """Where these registers stood, as far as they are known."""
        query = """
            SELECT meter, first_at_s, first_wh, at_s, wh FROM confidential.register WHERE meter = ANY(%b::bigint[])"""
        with self._session.transaction() as connection:
            rows = connection.execute(query, (list(meters),)).fetchall()
        return {meter: Register(Point(*points[:2]), Point(*points[2:])) for meter, *points in rows}

    def keep_registers(self, registers: Mapping[int, Register]) -> None:
        """Remember where registers stand now; an older standing never replaces a newer one."""
        query = """
            INSERT INTO confidential.register AS old (meter, first_at_s, first_wh, at_s, wh)
            SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]) ORDER BY 1
            ON CONFLICT (meter) DO UPDATE
            SET first_at_s = excluded.first_at_s, first_wh = excluded.first_wh, at_s = excluded.at_s, wh = excluded.wh
            WHERE old.at_s < excluded.at_s"""
        rows = [(meter, one.first.at_s, one.first.wh, one.last.at_s, one.last.wh) for meter, one in registers.items()]
        if rows:
            with self._session.transaction() as connection:
                connection.execute(query, tuple(map(list, zip(*rows, strict=True))))

    def forget(self, before_s: int) -> None:
        """Signed readings of intervals that began before need not be known any more: they would come late."""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM confidential.seen WHERE start_s < %s", (before_s,))

    def close(self) -> None:
        """Hang up; a later call connects again."""
        self._session.drop()
