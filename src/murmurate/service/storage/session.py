"""One connection to PostgreSQL that is made when needed, dropped when broken, and never waited for without end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import psycopg
from psycopg import Connection

SESSION_TIMEOUT_S = 60.0

_CONNECTION_OPTIONS = " ".join(
    f"-c {name}={value}"
    for name, value in {
        "statement_timeout": "60s",
        "idle_in_transaction_session_timeout": "60s",  # a publisher that vanished leaves no lock behind
        "default_transaction_isolation": "read\\ committed",  # each statement sees what was committed before it
    }.items()
)

CONNECT_PARAMETERS: dict[str, Any] = {
    "options": _CONNECTION_OPTIONS,
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,  # [ms] for which sent data may stay unacknowledged
}


class TransactionSource(Protocol):
    """A `Session`, or a `SessionPool` that threads share."""

    dsn: str

    def transaction(self) -> AbstractContextManager[Connection]: ...

    def close(self) -> None: ...


def open_source(database: str | TransactionSource) -> TransactionSource:
    """Return a session of its own for a connection string; a source stays as it is."""
    return Session(database) if isinstance(database, str) else database


@contextmanager
def close_after(connection: Connection[Any], timeout_s: float) -> Iterator[None]:
    """Close the socket of a connection if the block takes longer, for example because the server does not answer."""
    line = socket.socket(fileno=os.dup(connection.pgconn.socket))
    timer = threading.Timer(timeout_s, line.shutdown, (socket.SHUT_RDWR,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        line.close()


class Session:
    """At most one open connection. For one thread at a time."""

    def __init__(self, dsn: str, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self.dsn = dsn
        self._timeout_s = timeout_s
        self._connection: Connection | None = None

    def _open(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.dsn, **CONNECT_PARAMETERS)
        return self._connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """The connection; a new one if there is none. It is closed if the server does not answer in time."""
        connection = self._open()
        with close_after(connection, self._timeout_s):
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is committed at the end; if anything fails, the connection is dropped."""
        try:
            with self.connection() as connection, connection.transaction():
                yield connection
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close it, and with it whatever it had not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
