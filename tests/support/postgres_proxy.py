"""A proxy for a PostgreSQL server that behaves like a bad network: it loses acknowledgements, refuses or hangs."""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any

from tests.support.postgres_cluster import dsn_of

_POLL_S = 0.05
_TAIL_BYTES = 1 << 13  # that are shown again with the bytes after them


class NetworkFault(Enum):
    """What the network does."""

    FORWARD = "forward"  # no fault
    LOSE = "lose"  # drops some of the acknowledgements of commits
    REFUSE = "refuse"  # closes every open and new connection
    HANG = "hang"  # accepts data and forwards nothing


class Messages:
    """Splits one direction of a connection into PostgreSQL's messages. A startup message has no type."""

    def __init__(self, *, startup: bool, on_bytes: Callable[[bytes], None]) -> None:
        self._rest = self._tail = b""
        self._startup = startup
        self._on_bytes = on_bytes

    def split(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield type and body of every complete message."""
        self._on_bytes(self._tail + data)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
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


class ProxiedConnection:
    """One connection through the proxy. It parses enough to find the commits."""

    def __init__(
        self, client: socket.socket, server: socket.socket, word: bytes, on_bytes: Callable[[bytes], None]
    ) -> None:
        self.client, self.server = client, server
        self._word = word  # only transactions that contain this text count
        self._matched = False
        self._in_transaction = False
        self._named: dict[bytes, bytes] = {}
        self._requests = Messages(startup=True, on_bytes=on_bytes)
        self._responses = Messages(startup=False, on_bytes=on_bytes)
        self.drop_response = False

    def on_client_data(self, data: bytes) -> bool:
        """Return whether the client's data contain a relevant commit."""
        committing = False
        for kind, body in self._requests.split(data):
            text = self._text(kind, body)
            if not text:
                continue
            self._matched |= self._word in text
            first = text.strip().rstrip(b";\0").upper()
            committing |= self._matched and (first == b"COMMIT" or (not self._in_transaction and self._word in text))
            self._in_transaction |= first.startswith(b"BEGIN")
        return committing

    def _text(self, kind: bytes, body: bytes) -> bytes:
        if kind == b"Q":
            return body
        if kind == b"P":
            name, text = body.split(b"\0")[:2]
            self._named[name] = text
            return text
        return self._named.get(body.split(b"\0")[1], b"") if kind == b"B" else b""

    def on_server_data(self, data: bytes) -> bool:
        """Return whether the server's data end a transaction."""
        idle = False
        for kind, body in self._responses.split(data):
            if kind == b"Z" and body == b"I":
                idle, self._matched, self._in_transaction = True, False, False
        return idle

    def close(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )  # reset instead of an orderly close
            end.close()


class Proxy:
    """Listens on a port of its own and forwards to one server, with the current fault."""

    def __init__(self, target: int, *, word: bytes, loss: float = 0.5, seed: int = 0) -> None:
        self.target = target
        self.fault = NetworkFault.FORWARD
        self.lost = 0
        self._word, self._loss = word, loss
        self._rng = random.Random(seed)  # noqa: S311 nothing secret is chosen
        self._closing = False
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_POLL_S)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def dsn(self) -> str:
        return dsn_of(self.port)

    def close(self) -> None:
        self._closing = True
        while self._threads:
            self._threads.pop().join(120)
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
        if self._is_now(NetworkFault.REFUSE):
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=60)
            server.settimeout(None)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = ProxiedConnection(client, server, self._word, self.on_bytes)
        try:
            with suppress(OSError):
                while not self._closing and not self._is_now(NetworkFault.REFUSE) and self._forward(connection):
                    pass
        finally:
            connection.close()

    def _forward(self, connection: ProxiedConnection) -> bool:
        """Forward the data that have arrived. Return False where the connection is closed."""
        if self._is_now(NetworkFault.HANG):
            time.sleep(_POLL_S)
            return True
        ready, _, _ = select.select([connection.client, connection.server], [], [], _POLL_S)
        for end in ready:
            data = end.recv(1 << 16)
            if not data:
                return False
            while self._is_now(NetworkFault.HANG) and not self._closing:
                time.sleep(_POLL_S)
            if end is connection.client:
                connection.drop_response |= connection.on_client_data(data) and self._drops_response()
                connection.server.sendall(data)
            elif connection.on_server_data(data) and connection.drop_response:
                with self._lock:
                    self.lost += 1
                return False
            elif not connection.drop_response:
                connection.client.sendall(data)
        return True

    def _is_now(self, fault: NetworkFault) -> bool:
        """Whether this is the fault. Another thread may change it between two calls."""
        return self.fault is fault

    def on_bytes(self, data: bytes) -> None:
        """See what is going to be forwarded in either direction, after the bytes before it."""

    def _drops_response(self) -> bool:
        """Decide about a commit that is going to be forwarded whether its response is dropped."""
        with self._lock:
            return self._is_now(NetworkFault.LOSE) and self._rng.random() < self._loss


@contextmanager
def proxy(target: int, **settings: Any) -> Iterator[Proxy]:
    """Run a proxy during the block."""
    network = Proxy(target, **settings)
    try:
        yield network
    finally:
        network.close()
