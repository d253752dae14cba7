"""A proxy for an HTTP server. It cuts connections around a put, so that the writer does not learn the answer."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum

_TIMEOUT_S = 120.0
_LATE_S = 0.3


class Cut(Enum):
    """What happens to a put."""

    NONE = "none"
    BEFORE = "before"  # the server never sees it
    AFTER = "after"  # the server has answered, and the answer is lost
    DURING = "during"  # the server sees it while the client tries again
    LATE = "late"  # the server sees it some time after the client has tried again


class CuttingProxy:
    """Forwards one request a connection to a port of this machine. Each put gets one of the cuts."""

    def __init__(self, target: int, cuts: Sequence[Cut], *, seed: int | None) -> None:
        self._target = target
        self._cuts = tuple(cuts)
        self._rng = None if seed is None else random.Random(seed)  # noqa: S311 nothing secret is chosen
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.counts: Counter[Cut] = Counter()
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._threads:
            self._threads.pop().join(_TIMEOUT_S)

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(client,))
                self._threads.append(thread)
                thread.start()

    def _next_cut(self, request: bytes) -> Cut:
        if not request.startswith(b"PUT "):
            return Cut.NONE
        with self._lock:
            number = sum(self.counts.values())
            cut = self._rng.choice(self._cuts) if self._rng else self._cuts[min(number, len(self._cuts) - 1)]
            self.counts[cut] += 1
        return cut

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_TIMEOUT_S)
        with suppress(OSError), client:
            request = _read_request(client)
            cut = self._next_cut(request)
            if cut in {Cut.BEFORE, Cut.DURING, Cut.LATE}:
                _reset(client)
            if cut is Cut.BEFORE:
                return
            if cut is Cut.LATE:
                time.sleep(_LATE_S)
            with socket.create_connection(("127.0.0.1", self._target), timeout=_TIMEOUT_S) as server:
                server.sendall(request.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
                answer = b"".join(iter(lambda: server.recv(1 << 16), b""))
            if cut is Cut.AFTER:
                _reset(client)
            else:
                client.sendall(answer)


def _read_request(client: socket.socket) -> bytes:
    """Head and body of a request; the body is as long as its head says."""
    request = b""
    while b"\r\n\r\n" not in request:
        more = client.recv(1 << 16)
        if not more:
            raise ConnectionError
        request += more
    head, _, body = request.partition(b"\r\n\r\n")
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0]) - len(body) if lengths else 0
    while missing > 0:
        more = client.recv(missing)
        if not more:
            raise ConnectionError
        request += more
        missing -= len(more)
    return request


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # not an orderly close
    client.close()


@contextmanager
def cutting_proxy(target: int, cuts: Sequence[Cut], *, seed: int | None = None) -> Iterator[CuttingProxy]:
    """Run a proxy during the block. Without a seed the cuts come in order, and the last one stays."""
    proxy = CuttingProxy(target, cuts, seed=seed)
    try:
        yield proxy
    finally:
        proxy.close()
