"""The disk of the state, and of the log, is full for a while.

Where mounting is permitted the cluster lives on a small tmpfs, and a ballast takes what is free (ENOSPC). Elsewhere the
kernel is told that its files may grow no further (RLIMIT_FSIZE, EFBIG). Both stop a table and the WAL alike.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from tests.live.checks import check, witness
from tests.live.cluster import Cluster, Clusters, hand_over, person
from tests.live.killing import keep_ahead
from tests.live.pair import Pair, Room, Violation, crew

_SIZE = "80m"
_LEFT = 16_384  # bytes that the ballast leaves
_LARGEST = 400_000  # of a file, where nothing can be mounted: less than a segment of the WAL
_SIGNS = ("No space left on device", "File too large")


class Tmpfs:
    """A small disk of its own for a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._ballast = cluster.data / "ballast"

    def fill(self) -> None:
        with self._ballast.open("wb", buffering=0) as file:
            with suppress(OSError):
                while file.write(b"\0" * 65_536) == 65_536:
                    pass
            file.truncate(max(0, file.tell() - _LEFT))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class GrowthLimit:
    """No file of the cluster may grow beyond a size."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def fill(self) -> None:
        self._limit(str(_LARGEST))

    def free(self) -> None:
        self._limit("unlimited")

    def _limit(self, size: str) -> None:
        """For the postmaster and each of its children; asked for by whom they run as, who may always do so."""
        for pid in self._cluster.processes():
            command = ["prlimit", "--pid", str(pid), f"--fsize={size}:"]
            subprocess.run(command, check=False, capture_output=True, **person())  # a child may be gone by now


def _mount(folder: Path) -> bool:
    """Whether a small disk could be mounted there."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE},mode=0700", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(mount, check=False, capture_output=True).returncode == 0


@contextmanager
def small_disk(clusters: Clusters, name: str) -> Iterator[tuple[Cluster, Tmpfs | GrowthLimit]]:
    """A running cluster whose disk can be filled."""
    cluster = clusters.new(name, empty=True)
    cluster.data.mkdir(mode=0o700)
    mounted = _mount(cluster.data)
    hand_over(cluster.data)
    try:
        clusters.fill(cluster)
        yield cluster.start(), Tmpfs(cluster) if mounted else GrowthLimit(cluster)
    finally:
        cluster.kill()
        if mounted:
            subprocess.run(["umount", str(cluster.data)], check=True)


def disk_full(room: Room, times: int) -> dict[str, int]:
    """Publishing stops with errors while there is no room, and goes on when there is again."""
    with small_disk(room.clusters, "full-state") as (state, its), small_disk(room.clusters, "full-log") as (log, other):
        pair = Pair(room, "disk-full", state, log)
        pair.prepare()
        refused = 0
        with crew(pair, 2) as band:
            for number in range(times):
                keep_ahead(pair)
                band.work(0.3)
                cluster, disk = ((state, its), (log, other))[number % 2]
                disk.fill()
                band.work(1.0)
                refused += _remember_in_vain(pair) if cluster is state else 0
                disk.free()
                _recover(cluster)
                witness(pair)
        until = pair.heal()
        stopped = _errors(state) + _errors(log)
        if not stopped:
            raise Violation("no error was seen: the disk was not full")
        counts = {"disks full": times, "errors of it": stopped, "demand refused": refused}
        counts |= {"releases": check(pair, until)}
        pair.keep_evidence()
    return counts


def _errors(cluster: Cluster) -> int:
    """Signs of a full disk in what the server logged."""
    text = cluster.log.read_text(errors="replace")
    return sum(text.count(sign) for sign in _SIGNS)


def _remember_in_vain(pair: Pair) -> int:
    """Demand that the full disk refuses; what the error says is kept for the search. How often it was refused."""
    refused = 0
    for _ in range(40):
        try:
            pair.extend(5)
        except psycopg.Error as error:
            pair.room.keep_error(error)
            refused += 1
    return refused


def _recover(cluster: Cluster) -> None:
    """A server that gave up without a disk is started again, as its supervisor would."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            _restart(cluster)
            cluster.execute("CREATE TEMP TABLE room (line text)")
        except (psycopg.Error, RuntimeError):
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the cluster does not come back")


def _restart(cluster: Cluster) -> None:
    if not cluster.running:
        cluster.kill()
        cluster.start()
