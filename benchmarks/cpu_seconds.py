"""The cost of a job in core seconds: the CPU time of this process and of all processes that it has started.

A cluster's daemons, executors and their Python processes are descendants of this process, so they are included.
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

from benchmarks.aggregation_data import digest

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A job, and the preparation before it, which is not measured."""

    name: str
    run: Callable[[], pa.Table | None]
    prepare: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of an engine in each round."""

    rounds: tuple[tuple[float, float], ...]  # core seconds and seconds
    digests: frozenset[str]

    @property
    def core_s(self) -> float:
        """The median of the core seconds."""
        return median(core_s for core_s, _ in self.rounds)

    @property
    def wall_s(self) -> float:
        return median(wall_s for _, wall_s in self.rounds)

    def ratio_to(self, other: Cost) -> float:
        """The median ratio of core seconds in one round: load of a while affects both engines."""
        return median(own[0] / its[0] for own, its in zip(self.rounds, other.rounds, strict=True))


def measure_in_turn(
    engines: Sequence[Engine], *, rounds: int = 3, warm_up: int = 1, settle_s: float = 0.0
) -> dict[str, Cost]:
    """Measure the engines in turn, so that other load affects all alike. The first `warm_up` rounds are not counted.

    Every second round runs in reverse order, so that no engine always follows the same one. `settle_s` is the wait
    before the clock is read: a JVM still compiles and collects garbage after its response.
    """
    seen: dict[str, list[tuple[float, float, frozenset[str]]]] = {engine.name: [] for engine in engines}
    for n in range(warm_up + rounds):
        for engine in engines[:: -1 if n % 2 else 1]:
            engine.prepare()
            seen[engine.name].append(_measure(engine.run, settle_s))
    return {
        name: Cost(
            rounds=tuple((core_s, wall_s) for core_s, wall_s, _ in results[warm_up:]),
            digests=frozenset[str]().union(*(digests for *_, digests in results)),
        )
        for name, results in seen.items()
    }


def _measure(run: Callable[[], pa.Table | None], settle_s: float) -> tuple[float, float, frozenset[str]]:
    before_s, own_s, begin = _descendants_s(), time.process_time(), time.perf_counter()
    rows = run()
    wall_s = time.perf_counter() - begin
    time.sleep(settle_s)
    core_s = time.process_time() - own_s + _descendants_s() - before_s
    return core_s, wall_s, frozenset() if rows is None else frozenset({digest(rows)})


def measure_once(run: Callable[[], pa.Table | None]) -> Cost:
    """Measure a job once, without a warm-up."""
    core_s, wall_s, digests = _measure(run, 0.0)
    return Cost(rounds=((core_s, wall_s),), digests=digests)


def process_core_s(pid: int) -> float:
    """Return the core seconds that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / _TICKS_PER_S


def _descendants_s() -> float:
    """Return the core seconds of all descendants of this process, running or ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(_descendants().values())


def _descendants() -> dict[int, float]:
    """Return the core seconds of each running descendant, including the children it has waited for."""
    parent, core_s = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        pid = int(path.parent.name)
        parent[pid], core_s[pid] = int(fields[1]), sum(map(int, fields[11:15])) / _TICKS_PER_S
    me = os.getpid()

    def is_descendant(pid: int) -> bool:
        while pid in parent and pid != me:
            pid = parent[pid]
        return pid == me

    return {pid: seconds for pid, seconds in core_s.items() if pid != me and is_descendant(pid)}
