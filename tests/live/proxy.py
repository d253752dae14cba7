"""A proxy before a PostgreSQL server that behaves like a bad network: it loses acknowledgements, refuses, hangs."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

from tests.live.chance import chance
from tests.live.cluster import dsn_of

_TICK_S = 0.05


class Mood(Enum):
    """What the network does."""

    FORWARD = "forward"
    LOSE = "lose"  # some of the acknowledgements of commits
    REFUSE = "refuse"  # closes whatever is open or new
    HANG = "hang"  # takes everything, forwards nothing


class Messages:
    """Cuts one direction of a conversation into PostgreSQL's messages; a startup message has no type."""

    def __init__(self, *, startup: bool) -> None:
        self._rest = b""
        self._startup = startup

    def cut(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Type and body of every message that is complete by now."""
        self._rest += data
        while True:
            head = 0 if self._startup else 1
            if len(self._rest) < head + 4:
                return
            (length,) = struct.unpack_from("!I", self._rest, head)
            if len(self._rest) < head + length:
                return
            kind, body = self._rest[:head], self._rest[head + 4 : head + length]
            self._rest = self._rest[head + length :]
            self._startup = False
            yield kind, body


class Conversation:
    """One connection through the proxy, as far as it must be understood to know when a transaction is committed."""

    def __init__(self, client: socket.socket, server: socket.socket, word: bytes) -> None:
        self.client, self.server = client, server
        self._word = word  # a transaction counts only if it said this
        self._said = False
        self._begun = False
        self._named: dict[bytes, bytes] = {}
        self._asked, self._answered = Messages(startup=True), Messages(startup=False)
        self.doomed = False

    def hear_client(self, data: bytes) -> bool:
        """Whether a commit that matters is among what the client says."""
        committing = False
        for kind, body in self._asked.cut(data):
            text = self._text(kind, body)
            if not text:
                continue
            self._said |= self._word in text
            first = text.strip().rstrip(b";\0").upper()
            committing |= self._said and (first == b"COMMIT" or (not self._begun and self._word in text))
            self._begun |= first.startswith(b"BEGIN")
        return committing

    def _text(self, kind: bytes, body: bytes) -> bytes:
        if kind == b"Q":
            return body
        if kind == b"P":
            name, text = body.split(b"\0")[:2]
            self._named[name] = text
            return text
        return self._named.get(body.split(b"\0")[1], b"") if kind == b"B" else b""

    def hear_server(self, data: bytes) -> bool:
        """Whether a transaction has ended on the server, and its answer is in our hands."""
        idle = False
        for kind, body in self._answered.cut(data):
            if kind == b"Z" and body == b"I":
                idle, self._said, self._begun = True, False, False
        return idle

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset, no farewell
            end.close()


class Proxy:
    """Listens on a port of its own and forwards to one server, according to its mood."""

    def __init__(self, target: int, *, word: bytes, loss: float = 0.5, seed: int = 0) -> None:
        self.target = target
        self.mood = Mood.FORWARD
        self.lost = 0
        self._word, self._loss = word, loss
        self._chance = chance(seed)
        self._closing = False
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TICK_S)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def dsn(self) -> str:
        return dsn_of(self.port)

    def close(self) -> None:
        self._closing = True
        while self._threads:
            self._threads.pop().join(30)
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            with suppress(TimeoutError):
                client, _ = self._listener.accept()
                client.settimeout(None)
                thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, client: socket.socket) -> None:
        if self.mood is Mood.REFUSE:
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        talk = Conversation(client, server, self._word)
        try:
            with suppress(OSError):
                while not self._closing and self.mood is not Mood.REFUSE and self._forward(talk):
                    pass
        finally:
            talk.close()

    def _forward(self, talk: Conversation) -> bool:
        """Pass on what has come; False where the conversation is over."""
        if self.mood is Mood.HANG:
            time.sleep(_TICK_S)
            return True
        ready, _, _ = select.select([talk.client, talk.server], [], [], _TICK_S)
        for end in ready:
            data = end.recv(1 << 16)
            if not data:
                return False
            while self.mood is Mood.HANG and not self._closing:
                time.sleep(_TICK_S)
            if end is talk.client:
                talk.doomed |= talk.hear_client(data) and self._unlucky()
                talk.server.sendall(data)
            elif talk.hear_server(data) and talk.doomed:
                with self._guard:
                    self.lost += 1
                return False
            elif not talk.doomed:
                talk.client.sendall(data)
        return True

    def _unlucky(self) -> bool:
        with self._guard:
            return self.mood is Mood.LOSE and self._chance.random() < self._loss


@contextmanager
def proxy(target: int, **settings: object) -> Iterator[Proxy]:
    """A proxy for as long as the block lasts."""
    network = Proxy(target, **settings)
    try:
        yield network
    finally:
        network.close()
