"""Run many seeds and print the counts, or run one seed and print its trace.

python -m tests.simulation --seeds 100000 --jobs 2
python -m tests.simulation --seed 4711
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeRemainingColumn

from tests.simulation.fault_schedule import STEP_RATES
from tests.simulation.run import SimulationFailure, simulate

EVENT_FAULTS = (
    "clock jump",
    "demand corrected",
    "demand early or late",
    "demand missing",
    "failover",
    "key rotation reaches some publishers",
    "late delivery",
    "plan change reaches some publishers",
    "plan with other intervals",
    "public inputs late",
    "sent again with other inputs",
    "split brain",
    "split brain ends",
    "state restored",
    "faulty writer",
    "forged tile checked",
    "opening of a zone reaches some publishers",
    "closing of a zone reaches some publishers",
    "plan unknown",
    "zone opened in two shards",
    "test-only noise",
    "transaction lost with its database",
    "shard corrupted",
    "tile appended without the key",
    "invalid tail set aside",
    "signed tail kept",
)
MIN_SEEDS_FOR_ALL_FAULTS = 300
BATCH_SIZE = 250  # seeds in one task of a worker process


@dataclass(slots=True)
class Tally:
    """Sums over several seeds."""

    seeds: int = 0
    steps: int = 0
    published: int = 0
    contested: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.published += other.published
        self.contested += other.contested
        self.faults += other.faults
        self.failures += other.failures


def run_seeds(seeds: range) -> Tally:
    """Run every seed of a range. A failed seed is recorded, and the next seed runs."""
    tally = Tally()
    for seed in seeds:
        tally.seeds += 1
        try:
            counts = simulate(seed)
        except SimulationFailure as failure:
            tally.failures.append((seed, str(failure)))
            continue
        tally.steps += counts.steps
        tally.published += counts.published
        tally.contested += counts.contested
        tally.faults.update(counts.faults)
    return tally


def print_trace(console: Console, seed: int) -> int:
    """Print the trace of one seed. It ends with the violation, if there is one."""
    trace: list[str] = []
    try:
        counts = simulate(seed, trace)
    except SimulationFailure as failure:
        console.print("\n".join(trace), markup=False, highlight=False)
        console.print(str(failure), style="bold red", markup=False)
        return 1
    console.print("\n".join(trace), markup=False, highlight=False)
    console.print(f"seed {seed}: {counts.published} tiles, {counts.faults.total()} fault events, no violation")
    return 0


def _batches(first: int, seeds: int) -> list[range]:
    end = first + seeds
    return [range(start, min(start + BATCH_SIZE, end)) for start in range(first, end, BATCH_SIZE)]


def _run_batches(batches: list[range], jobs: int) -> Iterator[Tally]:
    if jobs == 1:
        yield from map(run_seeds, batches)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seeds, batches)


def run_all(console: Console, first: int, seeds: int, jobs: int) -> Tally:
    total = Tally()
    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn(), TextColumn("{task.fields[status]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=seeds, status="")
        for tally in _run_batches(_batches(first, seeds), jobs):
            total.add(tally)
            progress_text = f"{total.faults.total():,} faults, {len(total.failures)} violations"
            progress.update(task, completed=total.seeds, status=progress_text)
            if not console.is_terminal and total.seeds % max(BATCH_SIZE, seeds // 10) < BATCH_SIZE:
                console.print(f"{total.seeds:,} of {seeds:,} seeds: {progress_text}", highlight=False)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, help="print the trace of this seed only")
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    if options.seed is not None:
        return print_trace(console, options.seed)
    started = time.monotonic()
    total = run_all(console, options.first, options.seeds, options.jobs)
    for fault, count in total.faults.most_common():
        console.print(f"{count:>12,}  {fault}", markup=False, highlight=False)
    for seed, text in sorted(total.failures)[:20]:
        console.print(
            f"VIOLATION {text}\n  print its trace: python -m tests.simulation --seed {seed}", style="bold red"
        )
    console.print(
        f"seeds {total.seeds:,}, steps {total.steps:,}, fault events {total.faults.total():,}, "
        f"tiles published {total.published:,}, "
        f"numbers with competing tiles {total.contested:,}, violations {len(total.failures)}, "
        f"{time.monotonic() - started:.0f} s",
        highlight=False,
    )
    missing = {*STEP_RATES, *EVENT_FAULTS} - total.faults.keys()
    is_tame = total.faults.total() < 50 * total.seeds or total.published < 10 * total.seeds
    if total.seeds >= MIN_SEEDS_FOR_ALL_FAULTS and (missing or is_tame):
        console.print(f"too few faults or tiles, or none of these: {', '.join(sorted(missing))}", style="bold red")
        return 1
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
