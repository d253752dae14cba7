"""Which messages were being read when a process ended: a message that ends it each time is quarantined.

The broker delivers what was not acknowledged again, after every restart. So before a message is read that was delivered
before, its digest is written into a small file of the landing, and removed when it has been read. A digest that is
still there was being read when the process ended.

    start             the message comes with others; the process ends
    first restart     it comes again, marked as a duplicate; its digest is written; the process ends
    second restart    its digest is there: the message is quarantined

Only reading is covered. After it there are numbers in columns, whatever the message was.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from murmurate.service.ingest.message_queue import ReceivedMessage
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.durable import PRIVATE_FILE_MODE

MAX_KNOWN_DIGESTS = 1000  # of messages that have ended a process; the oldest are dropped


class MessageAttempts:
    """The attempts of one client of the broker. The file survives a process, and need not survive a power cut."""

    def __init__(self, landing: Landing, client_id: str) -> None:
        self._path = landing.root / f".mqtt-attempts-{sha256(client_id.encode()).hexdigest()[:16]}.json"
        self._unfinished = _read_digests(self._path)  # by earlier processes, oldest first
        self._current: set[str] = set()
        self._quarantined: set[str] = set()  # of this process: if its group is tried again, it stays out

    def begin(self, message: ReceivedMessage) -> bool:
        """Note that a message is about to be read. Returns False if an earlier process has ended by it."""
        digest = _digest(message)
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
        self._current.discard(_digest(message))
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


def _read_digests(path: Path) -> list[str]:
    """The digests in a file; none if it is not there or damaged."""
    with suppress(OSError, ValueError):
        known = json.loads(path.read_bytes())
        if isinstance(known, list):
            return [digest for digest in known if isinstance(digest, str)]
    return []


def _digest(message: ReceivedMessage) -> str:
    return sha256(message.topic.encode() + b"\0" + message.payload).hexdigest()
