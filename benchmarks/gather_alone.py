"""Gather in a process of its own, which does nothing else: one round for each line it is sent.

    python -m benchmarks.gather_alone FOLDER METERS

Answers with the core seconds of closing, of gathering, and the peak memory of this process so far [GiB].
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa

from benchmarks.gather_world import World, world
from murmurate.service.gathering.demandfile import table as demand_table
from murmurate.service.gathering.job import close_all, gather
from murmurate.service.gathering.metertable import MeterTable

ROUNDS = 3


def close_and_gather(where: World, table: MeterTable, starts_s: Sequence[int]) -> pa.Table:
    """Everything from the files to the demand: close, check each file, gather."""
    return demand_table(gather(where.landing, table, close_all(where.landing, starts_s, table)))


def serve(folder: Path, meters: int) -> None:
    """One round for each line that comes in."""
    where = world(folder, meters)
    table = where.table()
    for _ in sys.stdin:
        where.reopen()
        begin = time.process_time()
        closings = close_all(where.landing, where.starts_s, table)
        closed = time.process_time()
        demand_table(gather(where.landing, table, closings))
        end = time.process_time()
        print(closed - begin, end - closed, _peak_gib(), flush=True)


def _peak_gib() -> float:
    """Of this program alone: getrusage would count the process that started it, if that was the larger one."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What a process that only gathers took: medians of its warm rounds."""

    closing_s: float
    gathering_s: float
    peak_gib: float


def in_processes_of_their_own(folders: Mapping[int, Path]) -> dict[int, Alone]:
    """What each number of meters takes, in turn; the first round does not count."""
    seen: dict[int, list[list[float]]] = {meters: [] for meters in folders}
    with ExitStack() as stack:
        children = {
            meters: stack.enter_context(
                subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "benchmarks.gather_alone", str(folder), str(meters)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for meters, folder in folders.items()
        }
        for _ in range(1 + ROUNDS):
            for meters, child in children.items():
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write("go\n")
                child.stdin.flush()
                seen[meters].append([float(word) for word in child.stdout.readline().split()])
    return {meters: _of(rounds[1:]) for meters, rounds in seen.items()}


def _of(rounds: list[list[float]]) -> Alone:
    closing, gathering, peak = zip(*rounds, strict=True)
    return Alone(closing_s=median(closing), gathering_s=median(gathering), peak_gib=max(peak))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
