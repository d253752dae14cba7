"""Play many seeds and print what they came to, or one seed and print its story.

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

from tests.simulation.run import Failure, simulate

PORTION = 250  # seeds handed to a process at once


@dataclass(slots=True)
class Tally:
    """What some seeds came to together."""

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


def play(seeds: range) -> Tally:
    """Every seed of a range; those that fail are named, and the others go on."""
    tally = Tally()
    for seed in seeds:
        tally.seeds += 1
        try:
            figures = simulate(seed)
        except Failure as failure:
            tally.failures.append((seed, str(failure)))
            continue
        tally.steps += figures.steps
        tally.published += figures.published
        tally.contested += figures.contested
        tally.faults.update(figures.faults)
    return tally


def told_again(console: Console, seed: int) -> int:
    """The story of one seed; it ends with the violation, if there is one."""
    story: list[str] = []
    try:
        figures = simulate(seed, story)
    except Failure as failure:
        console.print("\n".join(story), markup=False, highlight=False)
        console.print(str(failure), style="bold red", markup=False)
        return 1
    console.print("\n".join(story), markup=False, highlight=False)
    console.print(f"seed {seed}: {figures.published} entries, {figures.faults.total()} fault events, no violation")
    return 0


def _portions(first: int, seeds: int) -> list[range]:
    end = first + seeds
    return [range(start, min(start + PORTION, end)) for start in range(first, end, PORTION)]


def _played(portions: list[range], jobs: int) -> Iterator[Tally]:
    if jobs == 1:
        yield from map(play, portions)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(play, portions)


def play_all(console: Console, first: int, seeds: int, jobs: int) -> Tally:
    total = Tally()
    columns = (*Progress.get_default_columns()[:3], TimeRemainingColumn(), TextColumn("{task.fields[told]}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("seeds", total=seeds, told="")
        for tally in _played(_portions(first, seeds), jobs):
            total.add(tally)
            told = f"{total.faults.total():,} faults, {len(total.failures)} violations"
            progress.update(task, completed=total.seeds, told=told)
            if not console.is_terminal and total.seeds % max(PORTION, seeds // 10) < PORTION:
                console.print(f"{total.seeds:,} of {seeds:,} seeds: {told}", highlight=False)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, help="tell the story of this one")
    asked = parser.parse_args()
    console = Console(soft_wrap=True)
    if asked.seed is not None:
        return told_again(console, asked.seed)
    began = time.monotonic()
    total = play_all(console, asked.first, asked.seeds, asked.jobs)
    for fault, count in total.faults.most_common():
        console.print(f"{count:>12,}  {fault}", markup=False, highlight=False)
    for seed, text in sorted(total.failures)[:20]:
        console.print(f"VIOLATION {text}\n  tell it again: python -m tests.simulation --seed {seed}", style="bold red")
    console.print(
        f"seeds {total.seeds:,}, steps {total.steps:,}, fault events {total.faults.total():,}, "
        f"entries published {total.published:,}, numbers with several lines sent {total.contested:,}, "
        f"violations {len(total.failures)}, "
        f"{time.monotonic() - began:.0f} s",
        highlight=False,
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
