"""Aggregate in a separate process that does nothing else: one round for each input line.

    python -m benchmarks.aggregation_process FOLDER METERS

Prints the core seconds of closing, of aggregation, and the peak memory of this process so far [GiB].
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

from benchmarks.aggregation_data import SampleLanding, make_sample_landing
from murmurate.service.aggregation.job import aggregate_landing, close_intervals, demand_table
from murmurate.service.landing.meter_table import MeterTable

ROUNDS = 3


def close_and_aggregate(sample: SampleLanding, table: MeterTable, starts_s: Sequence[int]) -> pa.Table:
    """Compute the demand from the files: close the intervals, check each file, aggregate."""
    return demand_table(aggregate_landing(sample.landing, table, close_intervals(sample.landing, starts_s, table)))


def serve(folder: Path, meters: int) -> None:
    """Run one round for each input line."""
    sample = make_sample_landing(folder, meters)
    table = sample.table()
    for _ in sys.stdin:
        sample.reopen()
        begin = time.process_time()
        manifests = close_intervals(sample.landing, sample.starts_s, table)
        closed = time.process_time()
        demand_table(aggregate_landing(sample.landing, table, manifests))
        end = time.process_time()
        print(closed - begin, end - closed, _peak_gib(), flush=True)


def _peak_gib() -> float:
    """Return the peak memory of this program. getrusage would include the parent process if it was larger."""
    match = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return int(match[1]) / 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessCost:
    """The cost of a process that only aggregates: medians of its warm rounds."""

    closing_s: float
    aggregation_s: float
    peak_gib: float


def measure_separate_processes(folders: Mapping[int, Path]) -> dict[int, ProcessCost]:
    """Measure each number of meters in turn, after a warm-up round."""
    seen: dict[int, list[list[float]]] = {meters: [] for meters in folders}
    with ExitStack() as stack:
        children = {
            meters: stack.enter_context(
                subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "benchmarks.aggregation_process", str(folder), str(meters)],
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
    return {meters: _median_cost(rounds[1:]) for meters, rounds in seen.items()}


def _median_cost(rounds: list[list[float]]) -> ProcessCost:
    closing, aggregation, peak = zip(*rounds, strict=True)
    return ProcessCost(closing_s=median(closing), aggregation_s=median(aggregation), peak_gib=max(peak))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
