"""Store what messages carry: many messages together, in few files. A message that cannot be read keeps out no other.

Points of registers become the energy of intervals, and the state keeps the last point of each register. A point counts
for the time that it names, or else for that of its arrival. Some points are refused:

    future        it names a time ahead of the clock; were it kept, its register would be silent until then
    retained      it names no time and was published before this client subscribed
    redelivered   it names no time and was delivered before: it is older than its arrival
    clock         it names no time and came while the clocks of the service differed
    queued        it names no time and may have waited at the broker or in a socket (`mqtt_consumer.py`)
    late          it came more than an interval after a later point of its register

The broker delivers what was not acknowledged again, after every restart. So before a message is read that was delivered
before, its digest is written into a small file of the landing's folder (of a temporary folder, if it is a bucket),
and removed when it has been read. A digest that is still there was being read when the process ended.

    start             the message comes with others; the process ends
    first restart     it comes again, marked as a duplicate; its digest is written; the process ends
    second restart    its digest is there: the message is quarantined

Only reading is covered: after it there are numbers in columns.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

import psycopg

from murmurate.errors import MurmurateError, ReadingError
from murmurate.readings.batch import ReadingBatch
from murmurate.readings.text_lines import NOTHING_READABLE
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState, parse_register_reading
from murmurate.service.ingest.decoder_pool import DECODERS, JSON_LINES, PARQUET, DecoderPool
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import (
    MAX_CLOCK_SKEW_S,
    UNKNOWN_METER,
    IngestBusyError,
    ReadingIngestor,
    Receipt,
)
from murmurate.service.ingest.meter_registry import NOT_FOUND
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.durable import PRIVATE_FILE_MODE, private_temporary_folder
from murmurate.service.storage.object_store import FolderStore

logger = logging.getLogger(__name__)

BATCH_TOPIC = "murmurate/readings"
EXPORT_REGISTER = "ACTIVE_ENERGY_N"  # last part of the topic of a register of what a meter feeds in
MAX_QUEUE_BYTES = 64 * 2**20  # of messages that wait or are being stored
MAX_UNCONFIRMED_BYTES = 32 * 2**20  # of these: from here on messages at QoS 0 are dropped
_OBJECT_BYTES = 512  # what a message takes in memory without its topic and its payload; 280 were measured
_MAX_CHARACTER_BYTES = 4  # of a topic in memory
MAX_KNOWN_DIGESTS = 1000  # of messages that have ended a process; the oldest are dropped
MAX_MESSAGE_BYTES = 32 * 2**20
MAX_JOINED_MESSAGE_BYTES = 16 * 1024  # smaller messages of lines are parsed together, as one body
MAX_JOINED_BYTES = 2**20
# The disk or the state fails, or the time is not known: no message is the cause.
RETRIED_ERRORS = (OSError, psycopg.Error, IngestBusyError, ClockDifferenceError)
_INGEST_RETRY_S = 5.0
_MAX_PENDING_BATCHES = 1000  # that are parsed and not yet stored
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
REFUSED_POINT_CAUSES = ("future", "retained", "redelivered", "clock", "queued", "late", "unknown_meter")
REFUSED_POINT_PREFIX = "register_"  # of their counts: register_future
RegisterPoint = tuple[str, RegisterReading, int]  # meter, what its register showed, when the message came [s of UTC]


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A message, and when it came [s of UTC]: this time stays if it must be tried again.

    When it came is not known (None) where the clocks of the service differed then.
    """

    topic: str
    payload: bytes
    received_s: int | None
    qos: int = 1
    mid: int = 0
    is_duplicate: bool = False  # the broker has delivered it before
    is_retained: bool = False  # it was published before this client subscribed
    may_have_waited: bool = False  # at the broker or in a socket, before it came

    @property
    def digest(self) -> str:
        return sha256(self.topic.encode() + b"\0" + self.payload).hexdigest()

    @property
    def held_bytes(self) -> int:
        return len(self.payload) + _MAX_CHARACTER_BYTES * len(self.topic) + _OBJECT_BYTES


class MessageQueue:
    """One thread puts messages, another one takes them. A message counts until it is released."""

    def __init__(self, max_bytes: int = MAX_QUEUE_BYTES, max_unconfirmed_bytes: int = MAX_UNCONFIRMED_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_unconfirmed_bytes = max_unconfirmed_bytes
        self._waiting: deque[ReceivedMessage] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self.held_bytes = 0

    def put(self, message: ReceivedMessage) -> bool:
        """Add a message. Returns False if it is dropped.

        At QoS 0 a message that has no room is dropped: the sender does not expect more. At QoS 1 the caller waits, so
        that no more is read from the broker, which keeps what it has not sent. A message of any size fits when there
        is no other one.
        """
        with self._changed:
            if message.qos == 0 and self._is_full(message, self._max_unconfirmed_bytes):
                return False
            while self._is_full(message, self._max_bytes) and not self._is_closed:
                self._changed.wait()
            self._waiting.append(message)
            self.held_bytes += message.held_bytes
            self._changed.notify_all()
        return True

    def _is_full(self, message: ReceivedMessage, max_bytes: int) -> bool:
        return bool(self.held_bytes) and self.held_bytes + message.held_bytes > max_bytes

    def take(self, max_messages: int, timeout_s: float) -> list[ReceivedMessage]:
        """Return the messages that wait, at most `max_messages`, once there is one; none if none comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, timeout_s)
            return [self._waiting.popleft() for _ in range(min(max_messages, len(self._waiting)))]

    def release(self, messages: Iterable[ReceivedMessage]) -> None:
        """Make room: these messages are stored."""
        with self._changed:
            self.held_bytes -= sum(message.held_bytes for message in messages)
            self._changed.notify_all()

    def close(self) -> None:
        """Let nothing wait for room any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class MessageAttempts:
    """The attempts of one client of the broker. The file survives a process, and need not survive a power cut."""

    def __init__(self, landing: Landing, client_id: str) -> None:
        folder = landing.root if isinstance(landing.store, FolderStore) else private_temporary_folder()
        self._path = folder / f".mqtt-attempts-{sha256(client_id.encode()).hexdigest()[:16]}.json"
        self._unfinished: list[str] = []  # by earlier processes, oldest first; none if the file is damaged
        with suppress(OSError, ValueError):
            known = json.loads(self._path.read_bytes())
            if isinstance(known, list):
                self._unfinished = [digest for digest in known if isinstance(digest, str)]
        self._current: set[str] = set()
        self._quarantined: set[str] = set()  # of this process: if its group is tried again, it stays out

    def begin(self, message: ReceivedMessage) -> bool:
        """Note that a message is about to be read. Returns False if an earlier process has ended by it."""
        digest = message.digest
        if digest in self._quarantined:
            return False
        if digest in self._unfinished:
            self._quarantined.add(digest)
            if not message.is_retained:  # a retained one comes again with every connection
                self._unfinished.remove(digest)
                self._write()
            return False
        self._current.add(digest)
        self._write()
        return True

    def end(self, message: ReceivedMessage) -> None:
        """Note that a message was read, or that the reason why it was not is not the message."""
        self._current.discard(message.digest)
        self._write()

    def _write(self) -> None:
        digests = [*self._unfinished, *sorted(self._current)][-MAX_KNOWN_DIGESTS:]
        if not digests:
            self._path.unlink(missing_ok=True)
            return
        part = self._path.with_name(f"{self._path.name}.part")
        part.touch(PRIVATE_FILE_MODE)
        part.write_text(json.dumps(digests))
        part.replace(self._path)


class MessageIngest:
    """Stores what one group of messages carries. Each try has a new one."""

    def __init__(
        self, *, ingestor: ReadingIngestor, store: IngestStore, decoders: DecoderPool, attempts: MessageAttempts
    ) -> None:
        self.ingestor = ingestor
        self._store = store
        self._decoders = decoders
        self._attempts = attempts
        self._pending: list[Receipt] = []
        self._points: list[RegisterPoint] = []
        self._export_points: list[RegisterPoint] = []
        self._refused_points: list[str] = []
        self._small: list[bytes] = []
        self._refused = 0
        self._quarantined = 0

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
        if self._points or self._export_points:
            ingest_register_points(self.ingestor, self._store, self._points, self._export_points)
        for cause in self._refused_points:
            self.ingestor.counts[f"{REFUSED_POINT_PREFIX}{cause}"] += 1
        refused = self._refused + len(self._refused_points)
        self.ingestor.counts.update(refused=refused, mqtt_quarantined=self._quarantined)

    def _read_suspect(self, message: ReceivedMessage) -> None:
        """Read a message that may have ended a process before, alone."""
        if not self._attempts.begin(message):
            self._quarantined += 1
            facts = {"consumer": "mqtt", "topic": message.topic, "bytes": len(message.payload)}
            logger.warning("message quarantined", extra=facts)
            return
        try:
            self._read(message, alone=True)
        except RETRIED_ERRORS:
            self._attempts.end(message)
            raise
        self._attempts.end(message)  # after any other error its digest stays: it ends this process

    def _read(self, message: ReceivedMessage, *, alone: bool = False) -> None:
        payload = message.payload
        if message.topic != BATCH_TOPIC:
            self._read_point(message)
        elif alone or len(payload) > MAX_JOINED_MESSAGE_BYTES or payload.startswith(b"PAR1"):
            self._start_alone(payload)
        else:
            self._small.append(payload)

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
            _, meter, register = message.topic.split("/")
            points = self._export_points if register == EXPORT_REGISTER else self._points
            points.append((meter, reading, received_s))

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
        batch, refused = self._decoders.parse(media_type, body, interval_s=self.ingestor.landing.interval_s)
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
            self.ingestor.finish_batch(self._pending.pop())


def ingest_until_stored(
    messages: Sequence[ReceivedMessage],
    *,
    consumer: str,
    current_ingestor: Callable[[], ReadingIngestor],
    store: IngestStore,
    attempts: MessageAttempts,
    stopped: threading.Event,
) -> bool:
    """Store what messages carry; while the disk or the state fails, try again. What cannot be read is only counted.

    Returns whether all of it may be acknowledged; it may not if `stopped` is set before it is stored.
    """
    while not stopped.is_set():
        try:
            MessageIngest(ingestor=current_ingestor(), store=store, decoders=DECODERS, attempts=attempts).ingest(
                messages
            )
        except RETRIED_ERRORS as error:
            logger.warning("failing", extra={"consumer": consumer, "reason": type(error).__name__})
            stopped.wait(_INGEST_RETRY_S)
        else:
            return True
    return False


def start_consumer_thread(run: Callable[[], None], consumer: str, on_failure: Callable[[], None]) -> threading.Thread:
    """Run a consumer in another thread. `on_failure` is called if the thread ends by an error."""

    def run_and_report() -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001  readings no longer come in
            logger.warning("broken", extra={"consumer": consumer, "reason": type(error).__name__})
            on_failure()

    thread = threading.Thread(target=run_and_report, name=consumer, daemon=True)
    thread.start()
    return thread


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


def ingest_register_points(
    ingestor: ReadingIngestor,
    store: IngestStore,
    points: Sequence[RegisterPoint],
    export_points: Sequence[RegisterPoint] = (),
) -> None:
    """Store the energy of the intervals that these points complete, then the points.

    An energy that is stored without its points is computed again. Of two points of one second the first counts: the
    sort leaves them in the order in which they came. A register whose last point lies ahead of the clock begins again.
    Other processes that have points of the same registers wait.

    A meter with a register of export has a reading for an interval if both registers have an energy for it: their
    difference. The state keeps the register of export of meter n as number ~n, that is -1 - n.
    """
    now_s = max(received_s for _, _, received_s in (*points, *export_points))
    registry, interval_s = ingestor.registry, ingestor.landing.interval_s
    unknown = late = 0
    readings: dict[int, list[RegisterReading]] = {}  # by number of the register
    rows = registry.find_rows([meter for meter, _, _ in (*points, *export_points)]).tolist()
    for at, (row, (_, reading, _)) in enumerate(zip(rows, (*points, *export_points), strict=True)):
        if row == NOT_FOUND:
            unknown += 1
        else:
            number = int(registry.number[row])
            readings.setdefault(number if at < len(points) else ~number, []).append(reading)
    with store.hold_registers(readings):
        known = store.load_registers({*readings, *(~number for number in readings)})
        advanced: dict[int, RegisterState] = {}
        energy_rows: list[tuple[int, int, int]] = []  # register, begin of the interval, energy
        for number, own in readings.items():
            register = known.get(number)
            if register is not None and register.last.at_s > now_s + MAX_CLOCK_SKEW_S:
                register = None
            for reading in sorted(own, key=lambda reading: reading.at_s):
                register = register or RegisterState(reading, reading)
                late += register.is_too_late(reading, interval_s=interval_s)
                register, energies = register.advance(reading, interval_s=interval_s)
                energy_rows += [(number, start_s, energy_wh) for start_s, energy_wh in energies]
                advanced[number] = register
        exporting = {~number for number in (*known, *readings) if number < 0}  # meters with both registers
        halves = [row for row in energy_rows if max(row[0], ~row[0]) in exporting]
        energy_rows = [row for row in energy_rows if max(row[0], ~row[0]) not in exporting]
        energy_rows += store.pair_energies(halves) if halves else []
        refused = Receipt(refused=dict.fromkeys(range(-unknown, 0), UNKNOWN_METER))
        ingestor.ingest_batch(ReadingBatch.from_numbered_rows(energy_rows), None, refused)
        store.store_registers(advanced, now_s=now_s)
    ingestor.counts.update(
        {f"{REFUSED_POINT_PREFIX}unknown_meter": unknown, f"{REFUSED_POINT_PREFIX}late": late, "refused": late}
    )
