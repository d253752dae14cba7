"""A proxy for a TCP port of this machine that can cut its clients off and has them know it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

_LOOK_S = 0.05


class GateProxy:
    """Forwards connections. While it is cut, those that exist are ended, and new ones get no answer."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target = target
        self._listener = socket.create_server((host, 0), backlog=100)
        self.host, self.port = self._listener.getsockname()
        self._is_cut = False

    def cut(self) -> None:
        self._is_cut = True

    def connect(self) -> None:
        self._is_cut = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while self._is_cut:
                time.sleep(_LOOK_S)
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                answers = threading.Thread(target=self._copy, args=(server, client), daemon=True)
                answers.start()
                self._copy(client, server)
                answers.join()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        source.settimeout(_LOOK_S)
        with suppress(OSError):
            while not self._is_cut:
                try:
                    data = source.recv(1 << 16)
                except TimeoutError:
                    continue
                if not data:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
