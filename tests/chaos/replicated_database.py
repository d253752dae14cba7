"""A PostgreSQL server behind an address that stays the same: it can be killed, stopped, cut off, replaced."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress

import psycopg

from tests.fault_injection.postgres_cluster import Cluster, Clusters
from tests.fault_injection.proxy import NetworkFault, Proxy

_REPLICA_TIMEOUT_S = 180.0
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

    def crash(self, down_s: float) -> None:
        """Kill every process of the server, and start it again with crash recovery."""
        self.primary.kill()
        time.sleep(down_s)
        self.primary.start()

    def pause(self, seconds: float) -> None:
        """Stop every process of the server for a time: it accepts nothing and answers nothing."""
        stopped = self.primary.processes()
        for pid in stopped:
            _send(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            for pid in reversed(stopped):
                _send(pid, signal.SIGCONT)

    def make_read_only(self, seconds: float) -> None:
        """Refuse every write for a time, as a server does whose disk is full or that has become a replica."""
        _set_parameter(self.primary, "default_transaction_read_only", "on")
        try:
            time.sleep(seconds)
        finally:
            _set_parameter(self.primary, "default_transaction_read_only", "off")

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
        _set_parameter(old, "synchronous_standby_names", "*")
        _until_in_step(old)
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


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # a session that has ended meanwhile
        os.kill(pid, number)


def _set_parameter(cluster: Cluster, name: str, value: str) -> None:
    options = "-c default_transaction_read_only=off -c synchronous_commit=local"
    with psycopg.connect(cluster.dsn, autocommit=True, options=options) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")


def _until_in_step(primary: Cluster) -> None:
    """Wait until each commit waits for the replica, and the replica has everything that was committed before."""
    end = time.monotonic() + _REPLICA_TIMEOUT_S
    query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= %s"
    position = None
    while time.monotonic() < end:
        if position is None and primary.execute("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"):
            position = primary.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        if position is not None and primary.execute(query, (position,)):
            return
        time.sleep(0.05)
    raise RuntimeError("the replica does not follow")
