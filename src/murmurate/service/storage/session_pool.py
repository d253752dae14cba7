"""Connections to PostgreSQL that many threads share: bounded, checked before use, never waited for without end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import Connection
from psycopg_pool import ConnectionPool

from murmurate.service.storage.server_checks import hide_parameters
from murmurate.service.storage.session import CONNECT_PARAMETERS, SESSION_TIMEOUT_S, BoundedConnection, close_after

MAX_POOL_SIZE = 16
MAX_WAITING_THREADS = 64
POOL_TIMEOUT_S = 5.0  # to get a connection: all are in use, or the server does not answer

logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # its warnings name the server; callers report the failure


class SessionPool:
    """A `Session` for threads: each transaction borrows a connection, and returns it."""

    def __init__(self, dsn: str, *, max_size: int = MAX_POOL_SIZE, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self.dsn = dsn
        self._max_size = max_size
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pool: ConnectionPool[BoundedConnection] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is committed at the end. Raises psycopg.OperationalError if there is no connection."""
        with (
            self._open().connection() as connection,
            close_after(connection, self._timeout_s),
            connection.transaction(),
        ):
            yield connection

    @property
    def in_use(self) -> int:
        """Connections that are borrowed now."""
        with self._lock:
            figures = {} if self._pool is None else self._pool.get_stats()
        return figures.get("pool_size", 0) - figures.get("pool_available", 0)

    def _open(self) -> ConnectionPool[BoundedConnection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.dsn,
                    connection_class=BoundedConnection,
                    kwargs=CONNECT_PARAMETERS,
                    min_size=0,
                    max_size=self._max_size,
                    max_waiting=MAX_WAITING_THREADS,
                    timeout=POOL_TIMEOUT_S,
                    reconnect_timeout=POOL_TIMEOUT_S,  # then the next request tries again
                    check=_check_connection,
                    configure=_configure_connection,
                    open=True,
                )
            return self._pool

    def close(self) -> None:
        """Close all connections. They are reopened on the next call."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _configure_connection(connection: BoundedConnection) -> None:
    """Protect a new connection. Raises psycopg.OperationalError if the server does not answer."""
    with close_after(connection, POOL_TIMEOUT_S):
        hide_parameters(connection)


def _check_connection(connection: BoundedConnection) -> None:
    """Raise psycopg.OperationalError if the server does not answer, for example because it was restarted."""
    with close_after(connection, POOL_TIMEOUT_S):
        ConnectionPool.check_connection(connection)
