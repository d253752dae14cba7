"""Run two services under a steady load without faults: memory, descriptors and threads do not grow, demand is right.

The slope of memory is judged from ten minutes on: before that, caches are still being filled.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np

from tests.chaos.chaos_service import PARTS, ChaosService
from tests.chaos.run import World, new_world

MAX_SLOPE_MB_PER_HOUR = 5.0
MIN_MINUTES_FOR_SLOPE = 10.0
MAX_GROWTH = 8  # descriptors or threads: pools open a few more when requests happen to come together
_WARM_UP_SHARE = 1 / 3
_SAMPLE_S = 2.0
_READS_PER_S = 20.0
_ADR = "/openadr3/3.1.0"
_PATHS = ("/zones", "/zones/harbour/now", "/zones/quay/evcc", "/zones/quay/history.csv", f"{_ADR}/events", "/shards")


class Sample(NamedTuple):
    """What one process takes."""

    at_s: float
    resident_mb: float
    descriptors: int
    threads: int


def take_sample(pid: int) -> Sample:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    open_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Sample(time.monotonic(), int(fields["VmRSS"].split()[0]) / 1024, open_files, int(fields["Threads"]))


class Readers:
    """A steady stream of requests to both public APIs."""

    def __init__(self, services: list[ChaosService]) -> None:
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
                    status = web.get(f"http://127.0.0.1:{service.public}{path}").status_code
                except httpx.HTTPError as error:
                    self.counts[f"reads: {type(error).__name__}"] += 1
                else:
                    self.counts[f"reads: {status}"] += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)


def judge_samples(samples: dict[str, list[Sample]], *, judge_slope: bool) -> list[str]:
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
        if judge_slope and (slope := slope_mb_per_hour(steady)) > MAX_SLOPE_MB_PER_HOUR:
            violations.append(f"growth: the memory of {name} grows by {slope:.1f} MB an hour")
    return violations


def slope_mb_per_hour(samples: list[Sample]) -> float:
    """The slope of a straight line through the resident set."""
    if len(samples) < 3:
        return 0.0
    hours = np.array([sample.at_s for sample in samples]) / 3600
    return float(np.polyfit(hours - hours[0], [sample.resident_mb for sample in samples], 1)[0])


def _collect(world: World, minutes: float) -> tuple[dict[str, list[Sample]], list[str]]:
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
                    with suppress(OSError):
                        samples[name].append(take_sample(pid))
        time.sleep(_SAMPLE_S)
    return samples, sorted(ended)


def _print(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 this program prints figures


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--keep", type=Path, help="copy the logs of the services to this folder")
    options = parser.parse_args()
    judge_slope = options.minutes >= MIN_MINUTES_FOR_SLOPE
    with new_world(options.seed, options.keep) as world:
        player = threading.Thread(target=world.play, name="player", daemon=True)
        player.start()
        readers = Readers(world.services)
        samples, violations = _collect(world, options.minutes)
        violations += judge_samples(samples, judge_slope=judge_slope)
        readers.stop()
        violations += [f"reads: {count} ended with {name}" for name, count in readers.counts.items() if ": 5" in name]
        world.repeat_and_fence(60.0)
        violations += world.finish(player)
        verdict = world.judge()
    violations += verdict.violations
    _print(f"soak, {options.minutes:g} minutes")
    _print(f"  {'process':20} {'MB':>8} {'MB/h':>8} {'at last':>8} {'files':>8} {'threads':>8}")
    for name, taken in sorted(samples.items()):
        steady, last = taken[int(len(taken) * _WARM_UP_SHARE) :], taken[-1]
        stretches = (steady, taken[2 * len(taken) // 3 :])  # all that is judged, and its second half
        slope = " ".join(f"{slope_mb_per_hour(part):8.1f}" if judge_slope else f"{'':8}" for part in stretches)
        _print(f"  {name:20} {last.resident_mb:8.0f} {slope} {last.descriptors:8} {last.threads:8}")
    for name, count in sorted((readers.counts + verdict.counts + world.acknowledged.outcomes).items()):
        _print(f"  {name:64} {count:>8,}")
    for text in violations:
        _print(f"  VIOLATION {text}")
    return 1 if violations or not verdict.counts["measured"] else 0


if __name__ == "__main__":
    sys.exit(main())
