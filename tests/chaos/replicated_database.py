"""A target of faults: a PostgreSQL server behind an address that stays the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
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

    def processes(self) -> list[int]:
        return self.primary.processes()

    @contextmanager
    def crashed(self) -> Iterator[None]:
        """Kill every process of the server, and start it again with crash recovery."""
        self.primary.kill()
        yield
        self.primary.start()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Refuse every write, as a server does whose disk is full or that has become a replica."""
        self.primary.set_parameter("default_transaction_read_only", "on")
        yield
        self.primary.set_parameter("default_transaction_read_only", "off")

    @contextmanager
    def cut_off(self, *, hang: bool) -> Iterator[None]:
        """Close every connection and refuse new ones, or leave them open without an answer."""
        self._proxy.fault = NetworkFault.HANG if hang else NetworkFault.REFUSE
        yield
        self._proxy.fault = NetworkFault.FORWARD

    @contextmanager
    def failing_over(self) -> Iterator[None]:
        """Have a synchronous replica follow; then kill the server, and promote the replica."""
        old = self.primary
        standby = self._clusters.standby(old, old.port)
        old.wait_for_standby(is_synchronous=True)
        yield
        old.kill()
        standby.promote()
        self._proxy.target = standby.port
        self.primary = standby
        shutil.rmtree(old.data, ignore_errors=True)

    def close(self) -> None:
        self._proxy.fault = NetworkFault.REFUSE
        self._proxy.close()
        self.primary.kill()
