"""One connection to PostgreSQL that is made when needed, dropped when broken, and never waited for without end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection

PATIENCE_S = 60.0

_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "statement_timeout": "60s",
        "idle_in_transaction_session_timeout": "60s",  # a publisher that vanished leaves no lock behind
        "default_transaction_isolation": "read\\ committed",  # each statement sees what was committed before it
    }.items()
)


class Session:
    """At most one open connection."""

    def __init__(self, dsn: str, patience_s: float = PATIENCE_S) -> None:
        self._dsn = dsn
        self._patience_s = patience_s
        self._connection: Connection | None = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, options=_OPTIONS, connect_timeout=5, tcp_user_timeout=10_000)
        return self._connection

    @contextmanager
    def hold(self) -> Iterator[Connection]:
        """The connection; a new one if there is none. A server that does not answer in time is hung up on."""
        connection = self._open()
        line = socket.socket(fileno=os.dup(connection.pgconn.socket))
        timer = threading.Timer(self._patience_s, line.shutdown, (socket.SHUT_RDWR,))
        timer.daemon = True
        timer.start()
        try:
            yield connection
        finally:
            timer.cancel()
            timer.join()
            line.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is committed at the end; if anything fails, the connection is dropped."""
        try:
            with self.hold() as connection, connection.transaction():
                yield connection
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Close it, and with it whatever it had not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
