"""One connection to PostgreSQL that is made when needed, dropped when broken, and never waits for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection

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

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None

    def __call__(self) -> Connection:
        """The connection; a new one if there is none."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._dsn, options=_OPTIONS, connect_timeout=5, tcp_user_timeout=10_000)
        return self._connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction that is committed at the end; if anything fails, the connection is dropped."""
        try:
            connection = self()
            with connection.transaction():
                yield connection
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Close it, and with it whatever it had not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
