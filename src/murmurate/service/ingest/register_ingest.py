"""Points of registers become the energy of intervals, and the state keeps the last point of each register.

A point counts for the time that it names, or else for that of its arrival. Some points are refused:

    future        it names a time ahead of the clock; were it kept, its register would be silent until then
    retained      it names no time and was published before this client subscribed
    redelivered   it names no time and was delivered before: it is older than its arrival
    clock         it names no time and came while the clocks of the service differed
    queued        it names no time and may have waited at the broker or in a socket (`delivery_fence.py`)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from murmurate.service.ingest.batch import ReadingBatch, Receipt
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState, parse_register_reading
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import MAX_CLOCK_SKEW_S, UNKNOWN_METER, ReadingIngestor
from murmurate.service.ingest.message_queue import ReceivedMessage
from murmurate.service.ingest.meter_registry import NOT_FOUND

REFUSED_POINT_CAUSES = ("future", "retained", "redelivered", "clock", "queued", "unknown_meter")
REFUSED_POINT_PREFIX = "register_"  # of their counts: register_future


@dataclass(frozen=True, slots=True)
class RegisterPoint:
    """A point of one meter's register, and when it came [s of UTC]."""

    meter: str
    reading: RegisterReading
    received_s: int


def parse_register_message(message: ReceivedMessage, now_s: int) -> tuple[RegisterPoint, str | None]:
    """The point that a message carries, and why it must be refused, if so. Raises ReadingError if it cannot be read."""
    received_s = now_s if message.received_s is None else message.received_s
    reading, has_time = parse_register_reading(message.payload, received_s)
    cause = None
    if reading.at_s > now_s + MAX_CLOCK_SKEW_S:
        cause = "future"
    elif not has_time:
        cause = _waiting_cause(message)
    return RegisterPoint(message.topic.split("/")[1], reading, received_s), cause


def _waiting_cause(message: ReceivedMessage) -> str | None:
    """Why a message is older than its arrival, if it is or may be, or why the time of its arrival is not known."""
    if message.is_retained:
        return "retained"
    if message.is_duplicate:
        return "redelivered"
    if message.received_s is None:
        return "clock"
    return "queued" if message.may_have_waited else None


def ingest_register_points(ingestor: ReadingIngestor, store: IngestStore, points: Sequence[RegisterPoint]) -> None:
    """Store the energy of the intervals that these points complete, then the points.

    A point that is lost between the two is computed again. Of two points of one second the first counts: the sort
    leaves them in the order in which they came.
    """
    now_s = max(point.received_s for point in points)
    by_row: dict[int, list[RegisterReading]] = {}
    registry = ingestor.registry
    rows = registry.find_rows([point.meter for point in points]).tolist()
    for row, point in zip(rows, points, strict=True):
        by_row.setdefault(row, []).append(point.reading)
    unknown_meter = by_row.pop(NOT_FOUND, [])
    readings = {int(registry.number[row]): own for row, own in by_row.items()}
    advanced, energy_rows = _advance_registers(ingestor.landing.interval_s, store, readings, now_s)
    ingestor.ingest_batch(
        ReadingBatch.from_numbered_rows(energy_rows),
        None,
        Receipt(refused=dict.fromkeys(range(-len(unknown_meter), 0), UNKNOWN_METER)),
    )
    ingestor.counts[f"{REFUSED_POINT_PREFIX}unknown_meter"] += len(unknown_meter)
    store.store_registers(advanced, now_s=now_s)


def _advance_registers(
    interval_s: int, store: IngestStore, readings: dict[int, list[RegisterReading]], now_s: int
) -> tuple[dict[int, RegisterState], list[tuple[int, int, int]]]:
    """The registers after these readings, by number of the meter, and (meter, begin, energy) of complete intervals."""
    known = _without_future(store.load_registers(readings), now_s)
    advanced: dict[int, RegisterState] = {}
    energy_rows: list[tuple[int, int, int]] = []
    for number, own in readings.items():
        register: RegisterState | None = known.get(number)
        for reading in sorted(own, key=lambda reading: reading.at_s):
            register, energies = RegisterState.start_or_advance(register, reading, interval_s=interval_s)
            energy_rows += [(number, start_s, energy_wh) for start_s, energy_wh in energies]
            advanced[number] = register
    return advanced, energy_rows


def _without_future(registers: dict[int, RegisterState], now_s: int) -> dict[int, RegisterState]:
    """Leave out registers whose last point lies ahead of the clock: they begin again with their next point."""
    return {meter: register for meter, register in registers.items() if register.last.at_s <= now_s + MAX_CLOCK_SKEW_S}


def count_refused_points(ingestor: ReadingIngestor, causes: Iterable[str]) -> None:
    for cause in causes:
        ingestor.counts[f"{REFUSED_POINT_PREFIX}{cause}"] += 1
        ingestor.counts["refused"] += 1
