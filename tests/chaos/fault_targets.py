"""A target of faults: a PostgreSQL server behind an address that stays the same."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from typing import Any

import psycopg

from tests.support.postgres_cluster import Clusters
from tests.support.postgres_proxy import NetworkFault, Proxy

_PARAMETERS = "sslmode=disable&gssencmode=disable"


class ReplicatedDatabase:
    """One server and, during a failover, its synchronous replica. Clients connect through a proxy."""

    def __init__(self, clusters: Clusters, name: str) -> None:
        self.name = name
        self._clusters = clusters
        self.primary = clusters.new(name).start()
        self._proxy = Proxy(self.primary.port, word=b"never")

    @property
    def dsn(self) -> str:
        """The address that the services have."""
        return f"postgresql://postgres@127.0.0.1:{self._proxy.port}/postgres?{_PARAMETERS}"

    @property
    def direct_dsn(self) -> str:
        """The address of the server itself, past the proxy."""
        return f"postgresql://postgres@127.0.0.1:{self.primary.port}/postgres?{_PARAMETERS}"

    def connect_directly(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection past the proxy that only reads."""
        return psycopg.connect(self.direct_dsn, connect_timeout=5, options="-c default_transaction_read_only=on")

    def crash(self, down_s: float) -> None:
        """Kill every process of the server, and start it again with crash recovery."""
        self.primary.kill()
        time.sleep(down_s)
        self.primary.start()

    def pause(self, seconds: float) -> None:
        """Stop every process of the server for a time: it accepts nothing and answers nothing."""
        stopped = self.primary.processes()
        for pid in stopped:
            self._send(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            for pid in reversed(stopped):
                self._send(pid, signal.SIGCONT)

    @staticmethod
    def _send(pid: int, number: int) -> None:
        with suppress(ProcessLookupError):  # a session that has ended meanwhile
            os.kill(pid, number)

    def make_read_only(self, seconds: float) -> None:
        """Refuse every write for a time, as a server does whose disk is full or that has become a replica."""
        self.primary.set_parameter("default_transaction_read_only", "on")
        try:
            time.sleep(seconds)
        finally:
            self.primary.set_parameter("default_transaction_read_only", "off")

    def cut_network(self, seconds: float, *, hang: bool) -> None:
        """Close every connection and refuse new ones for a time, or leave them open without an answer."""
        self._proxy.fault = NetworkFault.HANG if hang else NetworkFault.REFUSE
        try:
            time.sleep(seconds)
        finally:
            self._proxy.fault = NetworkFault.FORWARD

    def fail_over(self, shared_s: float) -> None:
        """Kill the server while a synchronous replica follows, and promote the replica."""
        old = self.primary
        standby = self._clusters.standby(old, old.port)
        old.wait_for_standby(is_synchronous=True)
        time.sleep(shared_s)
        old.kill()
        standby.promote()
        self._proxy.target = standby.port
        self.primary = standby
        shutil.rmtree(old.data, ignore_errors=True)

    def close(self) -> None:
        self._proxy.fault = NetworkFault.REFUSE
        self._proxy.close()
        self.primary.kill()
