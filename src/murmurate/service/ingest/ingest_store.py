"""What ingest keeps in the state: which signed readings were accepted, last values of registers, halves of a net."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    @contextmanager
    def hold_registers(self, registers: Iterable[int]) -> Iterator[None]:
        """Have no other process advance these registers, nor the other one of their meters, until the block ends.

        What the block stores is committed at its end, or not at all.
        """
        hold = "SELECT meter FROM confidential.register WHERE meter = ANY(%b::bigint[]) ORDER BY meter FOR UPDATE"
        insert = """
            INSERT INTO confidential.register (meter) SELECT * FROM unnest(%b::bigint[]) ORDER BY 1
            ON CONFLICT DO NOTHING"""
        own = set(registers)
        both = [*{*own, *(~register for register in own)}]
        with self._session.transaction() as connection:
            held = {register for (register,) in connection.execute(hold, (both,)).fetchall()}
            if new := [*own - held]:  # a row that does not exist cannot be held
                connection.execute(insert, (new,))
                connection.execute(hold, (new,))
            yield

    def load_registers(self, meters: Iterable[int]) -> dict[int, RegisterState]:
        """The last values of these registers, as far as they are known."""
        query = """
            SELECT meter, first_at_s, first_wh, at_s, wh, before_first_at_s, before_first_wh, before_at_s, before_wh
            FROM confidential.register WHERE meter = ANY(%b::bigint[]) AND at_s IS NOT NULL"""
        with self._session.transaction() as connection:
            rows = connection.execute(query, (list(meters),)).fetchall()
        found = {}
        for meter, *points in rows:
            before = None if points[4] is None else (RegisterReading(*points[4:6]), RegisterReading(*points[6:]))
            found[meter] = RegisterState(RegisterReading(*points[:2]), RegisterReading(*points[2:4]), before)
        return found

    def store_registers(self, registers: Mapping[int, RegisterState], *, now_s: int) -> None:
        """Store the values of registers. An older value never replaces a newer one, unless that one is of the future.

        `now_s` is the time of the service [s of UTC].
        """
        query = """
            INSERT INTO confidential.register AS old
                (meter, first_at_s, first_wh, at_s, wh, before_first_at_s, before_first_wh, before_at_s, before_wh)
            SELECT * FROM unnest(
                %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[],
                %b::bigint[], %b::bigint[]
            ) ORDER BY 1
            ON CONFLICT (meter) DO UPDATE
            SET first_at_s = excluded.first_at_s, first_wh = excluded.first_wh, at_s = excluded.at_s, wh = excluded.wh,
                before_first_at_s = excluded.before_first_at_s, before_first_wh = excluded.before_first_wh,
                before_at_s = excluded.before_at_s, before_wh = excluded.before_wh
            WHERE old.at_s IS NULL OR old.at_s <= excluded.at_s OR old.at_s > %s"""
        rows = []
        for meter, register in registers.items():
            points = (register.first, register.last, *(register.before or ()))
            numbers = [number for point in points for number in (point.at_s, point.total_wh)]
            rows.append((meter, *numbers, *[None] * (8 - len(numbers))))
        if rows:
            with self._session.transaction() as connection:
                columns = map(list, zip(*rows, strict=True))
                connection.execute(query, (*columns, now_s + MAX_CLOCK_SKEW_S))

    def pair_energies(self, energies: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Keep (register, begin of the interval [s of UTC], energy [Wh]). Return the net energies of these intervals.

        A net energy is (meter, begin, import minus export) where both registers have one; the register of export of
        meter n is ~n. The first energy of a register and interval stays, so an interval has one net energy, in
        any order of its two halves and however often they come. What is kept is committed before it is paired: of two
        processes that keep the halves of one interval at the same time, the later one finds both. Within
        `hold_registers` there are no two such processes.
        """
        keep = """
            INSERT INTO confidential.register_energy (register, start_s, wh)
            SELECT * FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[]) ORDER BY 1, 2 ON CONFLICT DO NOTHING"""
        pair = """
            SELECT DISTINCT i.register, i.start_s, i.wh - e.wh
            FROM unnest(%b::bigint[], %b::bigint[]) AS new (register, start_s)
            JOIN confidential.register_energy i
                ON i.register = greatest(new.register, -1 - new.register) AND i.start_s = new.start_s
            JOIN confidential.register_energy e ON e.register = -1 - i.register AND e.start_s = i.start_s"""
        register, start_s, energy_wh = map(list, zip(*energies, strict=True))
        with self._session.transaction() as connection:
            connection.execute(keep, (register, start_s, energy_wh))
        with self._session.transaction() as connection:
            return connection.execute(pair, (register, start_s)).fetchall()

    def purge_claims(self, before_s: int) -> None:
        """Signed readings of intervals that began before need not be known any more: they would come late."""
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM confidential.seen WHERE start_s < %s", (before_s,))

    def purge_registers(self, before_s: int) -> None:
        """A register without a point since then begins again with its next one.

        A meter whose register of export is deleted is one without such a register.
        """
        with self._session.transaction() as connection:
            connection.execute("DELETE FROM confidential.register WHERE at_s < %s OR at_s IS NULL", (before_s,))
            connection.execute("DELETE FROM confidential.register_energy WHERE start_s < %s", (before_s,))

    def close(self) -> None:
        """Close the connection. It is reopened on the next call."""
        self._session.close()
