"""Reads just after a new price, when every device asks at once, beside the same reads once the answers are ready.

Each of many connections sends one request, all at the same moment, and waits for its answer. Just after a new price no
answer is ready: each zone's is made once, for the first who asks. Then the same requests follow once more.
"""

from __future__ import annotations

import resource
import select
import socket
import time
from collections.abc import Callable, Sequence

import numpy as np

from murmurate.units import FloatArray

RECEIVE_BYTES = 65_536


class WaitingClients:
    """Connections that send their requests at the same moment."""

    def __init__(self, port: int, paths: Sequence[str], connections: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * connections + 100)), hard))
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = [
            f"GET {paths[n % len(paths)]} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for n in range(connections)
        ]
        self._index = {each.fileno(): n for n, each in enumerate(self._sockets)}
        self._poll = select.epoll()
        for each in self._sockets:
            self._poll.register(each, select.EPOLLIN)

    def ask(self) -> FloatArray:
        """The time until each connection has its answer [s]. Any status other than 200 ends the benchmark."""
        sent, took = np.zeros(len(self._sockets)), np.zeros(len(self._sockets))
        received = [b""] * len(self._sockets)
        for n, each in enumerate(self._sockets):
            sent[n] = time.perf_counter()
            each.sendall(self._requests[n])
        waiting = len(self._sockets)
        while waiting:
            for file, _ in self._poll.poll(30):
                n = self._index[file]
                received[n] += self._sockets[n].recv(RECEIVE_BYTES)
                if _is_complete(received[n]):
                    took[n] = time.perf_counter() - sent[n]
                    waiting -= 1
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in received), min(received)[:200]
        return took

    def close(self) -> None:
        self._poll.close()
        for each in self._sockets:
            each.close()


def _is_complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return len(body) >= int(length.partition(b":")[2])


def measure_edge(clients: WaitingClients, next_price: Callable[[], None], rounds: int) -> tuple[float, float]:
    """The time within which 99 of 100 have their answer [s]: just after a new price, and once answers are ready.

    The median over the rounds: a machine that stands still for a second during one round changes nothing. `next_price`
    returns when the server has a new price.
    """
    clients.ask()
    cold, warm = [], []
    for _ in range(rounds):
        next_price()
        cold.append(clients.ask())
        warm.append(clients.ask())
    cold_s, warm_s = (float(np.median([np.percentile(round_s, 99) for round_s in waits])) for waits in (cold, warm))
    return cold_s, warm_s
