"""Messages from a broker that are not stored yet, bounded by their bytes, and which of them ended a process.

The broker delivers what was not acknowledged again, after every restart. So before a message is read that was delivered
before, its digest is written into a small file of the landing, and removed when it has been read. A digest that is
still there was being read when the process ended.

    start             the message comes with others; the process ends
    first restart     it comes again, marked as a duplicate; its digest is written; the process ends
    second restart    its digest is there: the message is quarantined

Only reading is covered: after it there are numbers in columns.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from murmurate.service.landing.layout import Landing
from murmurate.service.storage.durable import PRIVATE_FILE_MODE

MAX_QUEUE_BYTES = 64 * 2**20  # of messages that wait or are being stored
MAX_UNCONFIRMED_BYTES = 32 * 2**20  # of these: from here on messages at QoS 0 are dropped
_OBJECT_BYTES = 512  # what a message takes in memory without its topic and its payload; 280 were measured
_MAX_CHARACTER_BYTES = 4  # of a topic in memory
MAX_KNOWN_DIGESTS = 1000  # of messages that have ended a process; the oldest are dropped


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
        self._path = landing.root / f".mqtt-attempts-{sha256(client_id.encode()).hexdigest()[:16]}.json"
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
