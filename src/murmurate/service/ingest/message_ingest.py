"""Store what messages carry: many messages together, in few files. A message that cannot be read keeps out no other.

Points of registers become the energy of intervals, and the state keeps the last point of each register. A point counts
for the time that it names, or else for that of its arrival. Some points are refused:

    future        it names a time ahead of the clock; were it kept, its register would be silent until then
    retained      it names no time and was published before this client subscribed
    redelivered   it names no time and was delivered before: it is older than its arrival
    clock         it names no time and came while the clocks of the service differed
    queued        it names no time and may have waited at the broker or in a socket (`mqtt_consumer.py`)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from murmurate.errors import MurmurateError, ReadingError
from murmurate.readings.batch import ReadingBatch
from murmurate.readings.text_lines import NOTHING_READABLE
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.batch import MAX_CLOCK_SKEW_S, Receipt
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState, parse_register_reading
from murmurate.service.ingest.decoder_pool import DecoderPool
from murmurate.service.ingest.decoder_process import JSON_LINES, PARQUET
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import UNKNOWN_METER, IngestBusyError, PendingReceipt, ReadingIngestor
from murmurate.service.ingest.message_queue import MessageAttempts, ReceivedMessage
from murmurate.service.ingest.meter_registry import NOT_FOUND

logger = logging.getLogger(__name__)

BATCH_TOPIC = "murmurate/readings"
MAX_MESSAGE_BYTES = 32 * 2**20
MAX_JOINED_MESSAGE_BYTES = 16 * 1024  # smaller messages of lines are parsed together, as one body
MAX_JOINED_BYTES = 2**20
# The disk or the state fails, or the time is not known: no message is the cause.
RETRIED_ERRORS = (OSError, psycopg.Error, IngestBusyError, ClockDifferenceError)
_MAX_PENDING_BATCHES = 1000  # that are parsed and not yet stored
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
REFUSED_POINT_CAUSES = ("future", "retained", "redelivered", "clock", "queued", "unknown_meter")
REFUSED_POINT_PREFIX = "register_"  # of their counts: register_future
RegisterPoint = tuple[str, RegisterReading, int]  # meter, what its register showed, when the message came [s of UTC]


@dataclass(slots=True, kw_only=True)
class MessageIngest:
    """Stores what one group of messages carries. Made anew for each try."""

    ingestor: ReadingIngestor
    store: IngestStore
    decoders: DecoderPool
    attempts: MessageAttempts
    _pending: list[PendingReceipt] = field(default_factory=list, init=False)
    _points: list[RegisterPoint] = field(default_factory=list, init=False)
    _refused_points: list[str] = field(default_factory=list, init=False)
    _small: list[bytes] = field(default_factory=list, init=False)
    _refused: int = field(default=0, init=False)
    _quarantined: int = field(default=0, init=False)

    def ingest(self, messages: Iterable[ReceivedMessage]) -> None:
        """Store what they carry; what cannot be read is only counted. On return all of it may be acknowledged.

        Raises one of `RETRIED_ERRORS` if something could not be stored: then all of it must be tried again.
        """
        for message in messages:
            if message.is_duplicate or message.is_retained:
                self._read_suspect(message)
            else:
                self._read(message)
        for body, parts in join_bodies(self._small):
            self._start_joined(body, parts)
        self._wait_until_stored()
        if self._points:
            ingest_register_points(self.ingestor, self.store, self._points)
        for cause in self._refused_points:
            self.ingestor.counts[f"{REFUSED_POINT_PREFIX}{cause}"] += 1
        refused = self._refused + len(self._refused_points)
        self.ingestor.counts.update(refused=refused, mqtt_quarantined=self._quarantined)

    def _read_suspect(self, message: ReceivedMessage) -> None:
        """Read a message that may have ended a process before."""
        if not self.attempts.begin(message):
            self._quarantined += 1
            facts = {"consumer": "mqtt", "topic": message.topic, "bytes": len(message.payload)}
            logger.warning("message quarantined", extra=facts)
            return
        try:
            if message.topic == BATCH_TOPIC:
                self._start_alone(message.payload)
            else:
                self._read(message)
        except RETRIED_ERRORS:
            self.attempts.end(message)
            raise
        self.attempts.end(message)  # after any other error its digest stays: it ends this process

    def _read(self, message: ReceivedMessage) -> None:
        payload = message.payload
        if message.topic != BATCH_TOPIC:
            self._read_point(message)
        elif len(payload) <= MAX_JOINED_MESSAGE_BYTES and not payload.startswith(b"PAR1"):
            self._small.append(payload)
        else:
            self._start_alone(payload)

    def _read_point(self, message: ReceivedMessage) -> None:
        """Read a point. One that names no time must not have waited, and the time of its arrival must be known."""
        now_s = int(self.ingestor.now())
        received_s = now_s if message.received_s is None else message.received_s
        try:
            reading, has_time = parse_register_reading(message.payload, received_s)
        except MurmurateError:
            self._refused += 1
            return
        causes = {
            "future": reading.at_s > now_s + MAX_CLOCK_SKEW_S,
            "retained": not has_time and message.is_retained,
            "redelivered": not has_time and message.is_duplicate,
            "clock": not has_time and message.received_s is None,
            "queued": not has_time and message.may_have_waited,
        }
        if cause := next((cause for cause, holds in causes.items() if holds), None):
            self._refused_points.append(cause)
        else:
            self._points.append((message.topic.split("/")[1], reading, received_s))

    def _start_joined(self, body: bytes, parts: Sequence[bytes]) -> None:
        """Begin to store messages that were joined. Where no line of them can be read, no message has one.

        If they were refused for another reason, each one is read alone.
        """
        try:
            self._start_body(body)
        except MurmurateError as error:
            for part in parts:
                if error.value == NOTHING_READABLE and part.strip():
                    self._refused += 1
                else:
                    self._start_alone(part)

    def _start_alone(self, payload: bytes) -> None:
        try:
            if len(payload) > MAX_MESSAGE_BYTES:
                raise ReadingError("message", "too large", f"must have at most {MAX_MESSAGE_BYTES:,} bytes")
            self._start_body(payload)
        except MurmurateError:
            self._refused += 1

    def _start_body(self, body: bytes) -> None:
        """Begin to store a body. If too much waits, what is pending is stored first."""
        media_type = PARQUET if body.startswith(b"PAR1") else JSON_LINES
        batch, refused = self.decoders.parse(media_type, body, interval_s=self.ingestor.landing.interval_s)
        if len(self._pending) >= _MAX_PENDING_BATCHES:
            self._wait_until_stored()
        if self._pending:
            with suppress(IngestBusyError):
                self._pending.append(self.ingestor.start_batch(batch, None, Receipt(refused=dict(refused))))
                return
            self._wait_until_stored()
        self._pending.append(self.ingestor.start_batch(batch, None, Receipt(refused=refused)))

    def _wait_until_stored(self) -> None:
        while self._pending:
            self._pending.pop().wait_until_stored()


def join_bodies(payloads: Iterable[bytes]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Messages of JSON lines as few bodies, each with the messages in it.

    >>> list(join_bodies([b'{"a": 1}', b'{"b": 2}']))
    [(b'{"a": 1}\\n{"b": 2}', [b'{"a": 1}', b'{"b": 2}'])]
    """
    parts: list[bytes] = []
    size = 0
    for payload in payloads:
        if parts and size + len(payload) > MAX_JOINED_BYTES:
            yield b"\n".join(parts), parts
            parts, size = [], 0
        parts.append(payload.removeprefix(_BYTE_ORDER_MARK))
        size += len(payload) + 1
    if parts:
        yield b"\n".join(parts), parts


def ingest_register_points(ingestor: ReadingIngestor, store: IngestStore, points: Sequence[RegisterPoint]) -> None:
    """Store the energy of the intervals that these points complete, then the points.

    A point that is lost between the two is computed again. Of two points of one second the first counts: the sort
    leaves them in the order in which they came. A register whose last point lies ahead of the clock begins again.
    """
    now_s = max(received_s for _, _, received_s in points)
    registry, unknown = ingestor.registry, 0
    readings: dict[int, list[RegisterReading]] = {}  # by number of the meter
    rows = registry.find_rows([meter for meter, _, _ in points]).tolist()
    for row, (_, reading, _) in zip(rows, points, strict=True):
        if row == NOT_FOUND:
            unknown += 1
        else:
            readings.setdefault(int(registry.number[row]), []).append(reading)
    known = store.load_registers(readings)
    advanced: dict[int, RegisterState] = {}
    energy_rows: list[tuple[int, int, int]] = []  # meter, begin of the interval, energy
    for number, own in readings.items():
        register = known.get(number)
        if register is not None and register.last.at_s > now_s + MAX_CLOCK_SKEW_S:
            register = None
        for reading in sorted(own, key=lambda reading: reading.at_s):
            register = register or RegisterState(reading, reading)
            register, energies = register.advance(reading, interval_s=ingestor.landing.interval_s)
            energy_rows += [(number, start_s, energy_wh) for start_s, energy_wh in energies]
            advanced[number] = register
    refused = Receipt(refused=dict.fromkeys(range(-unknown, 0), UNKNOWN_METER))
    ingestor.ingest_batch(ReadingBatch.from_numbered_rows(energy_rows), None, refused)
    ingestor.counts[f"{REFUSED_POINT_PREFIX}unknown_meter"] += unknown
    store.store_registers(advanced, now_s=now_s)
