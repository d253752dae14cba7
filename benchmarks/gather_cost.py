"""What a job costs, in core seconds: the processor time of this process and of everything that it has started.

A cluster's daemons, executors and their Pythons are children of children of this process, so they count too.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.gather_world import digest

_TICKS = os.sysconf("SC_CLK_TCK")


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A job, what must be done before it and does not count, and the digest of what it returned, if that is demand."""

    name: str
    run: Callable[[], pa.Table | None]
    ready: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a contestant took: the median of its rounds."""

    core_s: float
    wall_s: float
    digests: frozenset[str]


def alternately(contestants: Sequence[Contestant], *, rounds: int = 3, settle_s: float = 0.0) -> dict[str, Cost]:
    """What each takes, in turn, so that a noisy neighbour disturbs all alike; a first round does not count.

    Every other round goes the other way round: none always comes after the same one.
    `settle_s` is waited before the clock is read: a JVM goes on compiling and sweeping after it has answered.
    """
    seen: dict[str, list[tuple[float, float, frozenset[str]]]] = {one.name: [] for one in contestants}
    for n in range(1 + rounds):
        for one in contestants[:: -1 if n % 2 else 1]:
            one.ready()
            seen[one.name].append(_measured(one.run, settle_s))
    costs = {}
    for name, results in seen.items():
        core_s, wall_s, digests = zip(*results, strict=True)
        everything = frozenset[str]().union(*digests)
        costs[name] = Cost(core_s=median(core_s[1:]), wall_s=median(wall_s[1:]), digests=everything)
    return costs


def _measured(run: Callable[[], pa.Table | None], settle_s: float) -> tuple[float, float, frozenset[str]]:
    others_s, own_s, begin = _others(), time.process_time(), time.perf_counter()
    rows = run()
    wall_s = time.perf_counter() - begin
    time.sleep(settle_s)
    core_s = time.process_time() - own_s + _others() - others_s
    return core_s, wall_s, frozenset() if rows is None else frozenset({digest(rows)})


def once(run: Callable[[], pa.Table | None]) -> Cost:
    """What a job takes the first time."""
    core_s, wall_s, digests = _measured(run, 0.0)
    return Cost(core_s=core_s, wall_s=wall_s, digests=digests)


def _others() -> float:
    """Core seconds of all that came of this process, alive or waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(_descendants().values())


def _descendants() -> dict[int, float]:
    """Core seconds of each living descendant and of the children it has waited for."""
    parent, core_s = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parent[pid], core_s[pid] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS
    me = os.getpid()

    def ours(pid: int) -> bool:
        while pid in parent and pid != me:
            pid = parent[pid]
        return pid == me

    return {pid: seconds for pid, seconds in core_s.items() if pid != me and ours(pid)}
