"""Run two services under a steady load without faults: memory, descriptors and threads do not grow, demand is right.

Memory is what malloc has in use, and how many objects the garbage collector tracks, both after a collection, against
days of intervals: an interval takes seconds here. The resident set is printed and not judged: it follows the allocator,
and a line through it measures the warm-up. The services take all memory from malloc, without caches of threads, so the
figure is exact to the byte.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from murmurate.units import SECONDS_PER_DAY
from tests.chaos.run import World, new_world
from tests.support.running_service import PARTS, RunningService

MAX_MB_PER_DAY = 0.5  # of a day of intervals
MAX_OBJECTS_PER_DAY = 2_000
MAX_GROWTH = 8  # descriptors or threads: pools open a few more when requests happen to come together
LEAK_BYTES = 20_000  # of `--break leak`, every two seconds in each process
STEP_WALL_S = 2.0  # how long an interval takes on two cores that do nothing else
_WARM_UP_SHARE = 1 / 3
_BLOCKS = 8  # of what follows the warm-up; the least of each counts, when no request was being answered
_SAMPLE_S = 2.0
_READS_PER_S = 10.0
_ADR = "/openadr3/3.1.0"
_PATHS = ("/zones", "/zones/harbour/now", "/zones/quay/evcc", "/zones/quay/history.csv", f"{_ADR}/events", "/shards")
_ALL_BY_MALLOC = {
    "PYTHONMALLOC": "malloc",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}


class Sample(NamedTuple):
    """What one process takes."""

    at_days: float  # of intervals
    used_mb: float  # by malloc
    objects: int
    resident_mb: float
    descriptors: int
    threads: int


def take_sample(pid: int, memory: Path, at_days: float) -> Sample:
    """A sample of a process that reports its memory to a file of its own in the folder `memory`."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    open_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    used_bytes, objects = map(int, (memory / str(pid)).read_text().split())
    resident_mb = int(fields["VmRSS"].split()[0]) / 1024
    return Sample(at_days, used_bytes / 1e6, objects, resident_mb, open_files, int(fields["Threads"]))


class Readers:
    """A steady stream of requests to both public APIs."""

    def __init__(self, services: list[RunningService]) -> None:
        self.counts: Counter[str] = Counter()
        self._services = services
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readers", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        targets = cycle([(service, path) for path in _PATHS for service in self._services])
        with httpx.Client(timeout=30) as web:
            while not self._stopped.wait(1 / _READS_PER_S):
                service, path = next(targets)
                try:
                    status = web.get(service.url(path)).status_code
                except httpx.HTTPError as error:
                    self.counts[f"reads: {type(error).__name__}"] += 1
                else:
                    self.counts[f"reads: {status}"] += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)


def judge_samples(samples: dict[str, list[Sample]]) -> list[str]:
    """What has grown, after the warm-up."""
    violations = []
    for name, taken in samples.items():
        steady = taken[int(len(taken) * _WARM_UP_SHARE) :]
        quarter = max(1, len(steady) // 4)
        for what in ("descriptors", "threads"):
            numbers = [getattr(sample, what) for sample in steady]
            growth = np.median(numbers[-quarter:]) - np.median(numbers[:quarter])
            if growth > MAX_GROWTH:
                violations.append(f"growth: {name} has {growth:.0f} more {what} than after its warm-up")
        used_mb, objects = slopes_per_day(taken)
        if used_mb > MAX_MB_PER_DAY:
            violations.append(f"growth: {name} has {used_mb:.2f} MB more in use with each day of intervals")
        if objects > MAX_OBJECTS_PER_DAY:
            violations.append(f"growth: {name} has {objects:,.0f} more objects with each day of intervals")
    return violations


def slopes_per_day(samples: list[Sample]) -> tuple[float, float]:
    """The slopes of straight lines through memory in use [MB a day] and objects, after the warm-up."""
    steady = samples[int(len(samples) * _WARM_UP_SHARE) :]
    blocks = np.array_split(np.arange(len(steady)), _BLOCKS)
    days = [np.mean([steady[at].at_days for at in block]) for block in blocks]
    used_mb = [min(steady[at].used_mb for at in block) for block in blocks]
    objects = [min(steady[at].objects for at in block) for block in blocks]
    return float(np.polyfit(days, used_mb, 1)[0]), float(np.polyfit(days, objects, 1)[0])


def _collect(world: World, minutes: float, memory: Path) -> tuple[dict[str, list[Sample]], list[str]]:
    """Sample every part until time is up. A part that was replaced by another process has ended by itself."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    pids = {(service.name, part): service.part_pid(part) for service in world.services for part in PARTS}
    ended: set[str] = set()
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for service in world.services:
            for part in PARTS:
                name, pid = f"{part} of {service.name}", service.part_pid(part)
                if pid != pids[service.name, part]:
                    ended.add(f"growth: {name} has ended by itself")
                elif pid is not None:
                    with suppress(OSError):  # it has not reported yet
                        samples[name].append(take_sample(pid, memory, world.operator.clock.now() / SECONDS_PER_DAY))
        time.sleep(_SAMPLE_S)
    return samples, sorted(ended)


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--break", dest="damage", choices=("leak",), help="leak memory; ends with 0 if that was found")
    parser.add_argument("--keep", type=Path, help="copy the logs of the services to this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="murmurate-soak-") as folder:
        environment = {**_ALL_BY_MALLOC, "MURMURATE_TEST_MEMORY": folder}
        environment |= {"MURMURATE_TEST_LEAK": str(LEAK_BYTES)} if options.damage else {}
        with new_world(options.seed, options.keep, step_wall_s=STEP_WALL_S, environment=environment) as world:
            readers = Readers(world.services)
            samples, violations = _collect(world, options.minutes, Path(folder))
            violations += judge_samples(samples)
            readers.stop()
            violations += [f"reads: {n} ended with {name}" for name, n in readers.counts.items() if ": 5" in name]
            world.repeat_and_fence(60.0)
            violations += world.finish()
            verdict = world.judge()
    violations += verdict.violations
    days = max((taken[-1].at_days - taken[0].at_days for taken in samples.values()), default=0.0)
    _print(f"soak, {options.minutes:g} minutes, {days:.1f} days of intervals")
    _print(f"  {'process':20} {'MB in use':>10} {'MB/day':>8} {'objects':>10} {'a day':>8} {'RSS':>6} {'files':>6}")
    for name, taken in sorted(samples.items()):
        last, (used_mb, objects) = taken[-1], slopes_per_day(taken)
        _print(
            f"  {name:20} {last.used_mb:10.2f} {used_mb:8.3f} {last.objects:10,} {objects:8.0f} "
            f"{last.resident_mb:6.0f} {last.descriptors:6}"
        )
    for name, count in sorted((readers.counts + verdict.counts + world.acknowledged.outcomes).items()):
        _print(f"  {name:64} {count:>8,}")
    for text in violations:
        _print(f"  VIOLATION {text}")
    if options.damage:
        return 0 if any("in use with each day" in text for text in violations) else 1
    return 1 if violations or not verdict.counts["measured"] else 0


if __name__ == "__main__":
    sys.exit(main())
