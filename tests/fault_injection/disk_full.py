"""Scenario: the disk of the state, and then of the log, is full for a time.

Where mounting is permitted, the cluster is on a small tmpfs, which is made smaller (ENOSPC). Elsewhere a limit on the
file size is set (RLIMIT_FSIZE, EFBIG). Both stop tables and the WAL.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg

from tests.fault_injection.checks import check_append_only, finish
from tests.fault_injection.crashes import keep_ahead
from tests.fault_injection.store_pair import RunContext, StorePair, Violation, publisher_pool
from tests.support.postgres_cluster import Cluster, Clusters, give_to_postgres, postgres_user
from tests.support.small_disk import SmallDisk
from tests.support.waiting import wait_until

_SIZE_BYTES = 80 << 20
_SPARE_BYTES = 16_384
_MAX_FILE_BYTES = 400_000  # where nothing can be mounted: less than a segment of the WAL
_ERROR_TEXTS = ("No space left on device", "File too large")


class GrowthLimit:
    """No file of the cluster may grow beyond a size."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def fill(self, _: int) -> bool:
        self._limit(str(_MAX_FILE_BYTES))
        return True

    def free(self) -> None:
        self._limit("unlimited")

    def _limit(self, size: str) -> None:
        """Set the limit of the postmaster and each of its children, as the user that they run as."""
        for pid in self._cluster.processes():
            command = ["prlimit", "--pid", str(pid), f"--fsize={size}:"]
            subprocess.run(command, check=False, capture_output=True, **postgres_user())  # a child may have ended


@contextmanager
def small_disk(clusters: Clusters, name: str) -> Iterator[tuple[Cluster, SmallDisk | GrowthLimit]]:
    """Run a cluster whose disk can be filled."""
    cluster = clusters.new(name, empty=True)
    disk = SmallDisk(cluster.data, _SIZE_BYTES)
    give_to_postgres(cluster.data)
    try:
        clusters.copy_template(cluster)
        yield cluster.start(), disk if disk.mounted else GrowthLimit(cluster)
    finally:
        cluster.kill()
        disk.close()


def disk_full(context: RunContext, times: int, _: int) -> dict[str, int]:
    """Fill the disks. Publishing must stop with errors, and continue when there is space again."""
    with (
        small_disk(context.clusters, "full-state") as (state, state_disk),
        small_disk(context.clusters, "full-log") as (log, log_disk),
    ):
        stores = StorePair(context, "disk-full", state, log)
        stores.prepare()
        refused = 0
        with publisher_pool(stores, 2) as pool:
            for number in range(times):
                keep_ahead(stores)
                pool.run_for(0.3)
                cluster, disk = ((state, state_disk), (log, log_disk))[number % 2]
                wait_until(partial(disk.fill, _SPARE_BYTES), pause_s=0.0)
                pool.run_for(1.0)
                refused += _store_demand_on_full_disk(stores) if cluster is state else 0
                disk.free()
                _recover(cluster)
                check_append_only(stores)
        logs = "".join(cluster.log.read_text(errors="replace") for cluster in (state, log))
        errors = sum(map(logs.count, _ERROR_TEXTS))
        if not errors:
            raise Violation("no error occurred: the disk was not full")
        return finish(stores, {"disks full": times, "disk errors": errors, "demand refused": refused})


def _store_demand_on_full_disk(stores: StorePair) -> int:
    """Store demand on the full disk and keep the errors for the search. Return how often it was refused."""
    refused = 0
    for _ in range(40):
        try:
            stores.extend_demand(5)
        except psycopg.Error as error:
            stores.context.keep_error(error)
            refused += 1
    return refused


def _recover(cluster: Cluster) -> None:
    """Restart a server that stopped because of the full disk, as a supervisor does."""

    def is_writable() -> bool:
        with suppress(psycopg.Error, RuntimeError):
            if not cluster.running:
                cluster.kill()
                cluster.start()
            cluster.execute("CREATE TEMP TABLE probe (line text)")
            return True
        return False

    if not wait_until(is_writable, pause_s=0.1):
        raise RuntimeError("the cluster does not start again")
