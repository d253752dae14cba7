"""Connections to PostgreSQL, one for a thread or a pool for many. None is waited for without end."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg import Connection
from psycopg.abc import RV, PQGen
from psycopg_pool import ConnectionPool

from murmurate.service.storage.server_checks import hide_parameters

SESSION_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5

_SESSION_SETTINGS = {
    "default_transaction_isolation": "read\\ committed",  # each statement sees what was committed before it
    "jit": "off",  # look-ups of many keys are estimated as costly, and compiling them takes longer than it saves
    "search_path": "pg_catalog,pg_temp",  # no operator or function that another role has created is called
    "log_parameter_max_length_on_error": "0",  # no demand in the server's log, here and below
    "debug_print_parse": "off",
    "debug_print_rewritten": "off",
    "debug_print_plan": "off",
}
_TIMEOUTS = {
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "60s",  # a publisher that vanished leaves no lock behind
}


def _encode_options(settings: Mapping[str, str]) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


UNLIMITED_OPTIONS = _encode_options(_SESSION_SETTINGS)  # for a long read, or a migration

CONNECT_PARAMETERS: dict[str, Any] = {
    "options": _encode_options(_SESSION_SETTINGS | _TIMEOUTS),
    "connect_timeout": CONNECT_TIMEOUT_S,
    "tcp_user_timeout": 10_000,  # [ms] for which sent data may stay unacknowledged
}


NO_ANSWER = "the server did not answer in time"


class BoundedConnection(Connection[Any]):
    """A connection that is closed where its server has not answered at a given time.

    The timeouts of TCP and PostgreSQL do not see a server that has stopped on a machine that still acknowledges.
    """

    deadline_s = math.inf  # by the monotonic clock

    def wait(self, gen: PQGen[RV], *args: Any, **named: Any) -> RV:
        """Wait for what the server answers, as psycopg does for every request."""

        def end_in_time() -> PQGen[RV]:  # psycopg resumes it several times a second, also without an answer
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if time.monotonic() > self.deadline_s:
                        self.close()
                        raise psycopg.OperationalError(NO_ANSWER)
                    wanted = gen.send(ready)
            except StopIteration as done:
                result: RV = done.value
                return result

        return super().wait(end_in_time(), *args, **named)


def connect(dsn: str, **parameters: Any) -> BoundedConnection:
    """Return a connection with the timeouts and protections of this package.

    The server has 5 s to answer, or `connect_timeout`.
    """
    settings = CONNECT_PARAMETERS | parameters
    connection = BoundedConnection.connect(dsn, **settings)
    try:
        with close_after(connection, settings["connect_timeout"]):
            hide_parameters(connection)
    except BaseException:
        connection.close()
        raise
    return connection


class TransactionSource(Protocol):
    """A `Session`, or a `SessionPool` that threads share."""

    dsn: str

    def transaction(self) -> AbstractContextManager[Connection]: ...

    def close(self) -> None: ...


def open_source(database: str | TransactionSource) -> TransactionSource:
    """Return a new session for a connection string; a source stays as it is."""
    return Session(database) if isinstance(database, str) else database


@contextmanager
def close_after(connection: BoundedConnection, timeout_s: float) -> Iterator[None]:
    """Close a connection that still waits for its server after this time. The block fails with OperationalError."""
    connection.deadline_s = time.monotonic() + timeout_s
    try:
        yield
    finally:
        connection.deadline_s = math.inf


class Session:
    """At most one open connection. For one thread at a time."""

    def __init__(self, dsn: str, timeout_s: float = SESSION_TIMEOUT_S) -> None:
        self.dsn = dsn
        self._timeout_s = timeout_s
        self._connection: BoundedConnection | None = None

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """The connection; a new one if there is none. It is closed if the server does not answer in time."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.dsn)
        with close_after(self._connection, self._timeout_s):
            yield self._connection

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
        """Close the connection. What was not committed is rolled back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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
                    check=partial(_close_if_slow, ConnectionPool.check_connection),  # a server may have been restarted
                    configure=partial(_close_if_slow, hide_parameters),
                    open=True,
                )
            pool = self._pool
        with pool.connection() as connection, close_after(connection, self._timeout_s), connection.transaction():
            yield connection

    @property
    def in_use(self) -> int:
        """Connections that are borrowed now."""
        with self._lock:
            figures = {} if self._pool is None else self._pool.get_stats()
        return figures.get("pool_size", 0) - figures.get("pool_available", 0)

    def close(self) -> None:
        """Close all connections. They are reopened on the next call."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _close_if_slow(ask: Callable[[BoundedConnection], None], connection: BoundedConnection) -> None:
    """Ask the server for something. Raises psycopg.OperationalError if it does not answer."""
    with close_after(connection, POOL_TIMEOUT_S):
        ask(connection)


class ClockReading(NamedTuple):
    """What the clock of a database showed [s of UTC], at some time between two of this machine's monotonic clock."""

    shown_s: float
    asked_s: float
    answered_s: float

    @property
    def earliest_s(self) -> float:
        """The earliest time that this clock can show now [s of UTC]. It advances as the monotonic clock does here."""
        return self.shown_s + time.monotonic() - self.answered_s

    @property
    def latest_s(self) -> float:
        """The latest time that this clock can show now [s of UTC]."""
        return self.shown_s + time.monotonic() - self.asked_s


def read_clock(database: TransactionSource) -> ClockReading:
    """Ask a database for its time. Raises psycopg.Error if it does not answer."""
    with database.transaction() as connection:
        asked_s = time.monotonic()
        (shown_s,) = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()[0]
        return ClockReading(shown_s, asked_s, time.monotonic())
