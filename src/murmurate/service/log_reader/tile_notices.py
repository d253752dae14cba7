"""Notices of PostgreSQL that a tile has come: the log need not be asked again and again."""

from __future__ import annotations

import os
import select

import psycopg
from psycopg import Connection

from murmurate.service.storage.session import connect

CHANNEL = "murmurate_tile"  # public_log.append notifies it
_KEEPALIVES = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


class TileNotices:
    """A connection that listens. One thread waits; any thread may interrupt it.

    Where it cannot listen, it waits all the same: who uses it asks the log after each wait, whatever ended it.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: Connection | None = None
        self._wake_read, self._wake_write = os.pipe()

    def listen(self) -> None:
        """Connect, unless it is connected. Raises psycopg.Error. Tiles that come from now on end the next wait."""
        if self._connection is None:
            connection = connect(self._dsn, autocommit=True, **_KEEPALIVES)
            try:
                connection.execute(f"LISTEN {CHANNEL}")
            except BaseException:
                connection.close()
                raise
            self._connection = connection

    def wait(self, timeout_s: float) -> bool:
        """Wait for a notice, an interruption or the end of the time. Return whether it was a notice."""
        if self._connection is not None and self._drain():  # it may have come with an answer
            return True
        poll = select.poll()  # a server with many clients has file descriptors beyond the reach of select()
        poll.register(self._wake_read, select.POLLIN)
        if self._connection is not None:
            poll.register(self._connection.fileno(), select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1000)}
        if self._wake_read in ready:
            os.read(self._wake_read, 1024)
        return bool(ready - {self._wake_read}) and self._drain()

    def _drain(self) -> bool:
        """Take all notices that are there. A connection that is lost is dropped."""
        connection, found = self._connection, False
        if connection is None:
            return False
        try:
            connection.pgconn.consume_input()
            while connection.pgconn.notifies() is not None:
                found = True
        except psycopg.Error:
            self._drop()
        return found

    def interrupt(self) -> None:
        """End the wait of another thread."""
        os.write(self._wake_write, b"x")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the connection. It cannot be used again."""
        self._drop()
        os.close(self._wake_read)
        os.close(self._wake_write)
