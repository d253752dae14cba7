"""Messages from a broker that are not stored yet, bounded by their bytes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

MAX_QUEUE_BYTES = 64 * 2**20  # of messages that wait or are being stored
MAX_UNCONFIRMED_BYTES = 32 * 2**20  # of these: from here on messages at QoS 0 are dropped
_OBJECT_BYTES = 512  # what a message takes in memory beside its topic and its payload; 280 were measured
_MAX_CHARACTER_BYTES = 4  # of a topic in memory


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A message, and when it came [s of UTC]: it stays so old however often it must be tried.

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
        """All that wait, at most so many, once one does; none if none comes in time."""
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
