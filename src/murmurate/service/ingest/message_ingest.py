"""What messages carry, stored: many messages together, in few files, whichever of them cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psycopg

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.batch import Receipt
from murmurate.service.ingest.body_formats import JSON_LINES, PARQUET
from murmurate.service.ingest.decoder_pool import DecoderPool
from murmurate.service.ingest.formats.text_lines import NOTHING_READABLE
from murmurate.service.ingest.group_commit import IngestBusyError
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import PendingReceipt, ReadingIngestor
from murmurate.service.ingest.message_attempts import MessageAttempts
from murmurate.service.ingest.message_queue import ReceivedMessage
from murmurate.service.ingest.register_ingest import (
    RegisterPoint,
    count_refused_points,
    ingest_register_points,
    parse_register_message,
)

logger = logging.getLogger(__name__)

BATCH_TOPIC = "murmurate/readings"
MAX_MESSAGE_BYTES = 32 * 2**20
MAX_JOINED_MESSAGE_BYTES = 16 * 1024  # smaller messages of lines are parsed together, as one body
MAX_JOINED_BYTES = 2**20
# The disk or the state fails, or the time is not known: no message is the cause.
RETRIED_ERRORS = (OSError, psycopg.Error, IngestBusyError, ClockDifferenceError)
_MAX_PENDING_BATCHES = 1000  # that are parsed and not yet stored
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
        count_refused_points(self.ingestor, self._refused_points)
        self.ingestor.counts.update(refused=self._refused, mqtt_quarantined=self._quarantined)

    def _read_suspect(self, message: ReceivedMessage) -> None:
        """Read a message that may have ended a process before."""
        if not self.attempts.begin(message):
            self._quarantined += 1
            facts = {"consumer": "mqtt", "topic": message.topic, "bytes": len(message.payload)}
            logger.warning("message quarantined", extra=facts)
            return
        with self._attempt(message):
            if message.topic == BATCH_TOPIC:
                self._start_alone(message.payload)
            else:
                self._read(message)

    @contextmanager
    def _attempt(self, message: ReceivedMessage) -> Iterator[None]:
        """The attempt ends unless the process does, or an error that ends it."""
        try:
            yield
        except RETRIED_ERRORS:
            self.attempts.end(message)
            raise
        self.attempts.end(message)

    def _read(self, message: ReceivedMessage) -> None:
        payload = message.payload
        if message.topic != BATCH_TOPIC:
            self._read_point(message)
        elif len(payload) <= MAX_JOINED_MESSAGE_BYTES and not payload.startswith(b"PAR1"):
            self._small.append(payload)
        else:
            self._start_alone(payload)

    def _read_point(self, message: ReceivedMessage) -> None:
        try:
            point, cause = parse_register_message(message, int(self.ingestor.now()))
        except MurmurateError:
            self._refused += 1
            return
        if cause is None:
            self._points.append(point)
        else:
            self._refused_points.append(cause)

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
