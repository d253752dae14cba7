"""The scaling of the protection schedule, as ratios measured in one run.

    python -m benchmarks.schedule_scaling

Prints three figures. The exit status is 1 if one misses its target:
- the schedule step for 10^7 households against NumPy's own ``minimum(x, u).sum()`` on arrays of that size: at most 3;
- the time of that step for 10^7 households over that for 10^6: between 7 and 14;
- the peak memory of a day's schedule for 10^6 households, each with chains of its own, under 10 models: at most 2 GiB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from murmurate.household.occupancy import ModelClass, OccupancyChains, OccupancyModel
from murmurate.privacy.policy import Policy, ProtectionRule, interval_sensitivity, kappa, sensitivity_schedule
from murmurate.units import IntArray

ROUNDS = 15


def chains(households: int, seed: int, periods: int) -> OccupancyChains:
    """Return separate chains for each household. A tenth of the probabilities is zero."""
    rng = np.random.default_rng(seed)
    arrive, leave = (np.maximum(rng.random((periods, households)) - 0.1, 0) for _ in range(2))
    start = np.maximum(rng.random(households) - 0.1, 0)
    return OccupancyChains.independent(initial=start, arrive=arrive, leave=leave, period=np.arange(96) * periods // 96)


def schedule_step(households: int) -> tuple[Callable[[], int], Callable[[], int]]:
    """Return the schedule step and the baseline.

    The step advances the possible states, marks the protected households and takes the largest bound.
    """
    rng = np.random.default_rng(1)
    bound_wh: IntArray = rng.integers(1, 3000, households)
    energy_wh: IntArray = rng.integers(0, 3000, households)
    model = OccupancyModel(groups=(chains(households, seed=2, periods=1),))
    schedule = kappa(ModelClass(models=(model,)))
    return lambda: interval_sensitivity(next(schedule), bound_wh, floor_wh=1), lambda: int(
        np.minimum(energy_wh, bound_wh).sum()
    )


def measure_in_turn(*jobs: Callable[[], int]) -> list[float]:
    """Return the median seconds of each job. The jobs run in turn, so that other load affects all alike."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(ROUNDS + 1):
        for job, seen in zip(jobs, times, strict=True):
            begin = time.perf_counter()
            job()
            seen.append(time.perf_counter() - begin)
    return [median(seen[1:]) for seen in times]


def ten_models() -> ModelClass:
    """10^6 households, each with chains of its own in every model."""
    return ModelClass(models=tuple(OccupancyModel(groups=(chains(10**6, seed, periods=4),)) for seed in range(10)))


def hundred_models() -> ModelClass:
    """10^7 households of 50 kinds, under 100 models."""
    kind = np.random.default_rng(4).integers(0, 50, 10**7)
    tables = (chains(50, seed, periods=4) for seed in range(100))
    models = [
        OccupancyChains.independent(
            initial=t.initial[1], arrive=t.transition[:, 0, 1], leave=t.transition[:, 1, 0], period=t.period, kind=kind
        )
        for t in tables
    ]
    return ModelClass(models=tuple(OccupancyModel(groups=(model,)) for model in models))


def schedule_day(theta: ModelClass) -> None:
    """Compute a day's schedule, and print its seconds and the peak memory of this process."""
    bound_wh = np.random.default_rng(3).integers(1, 3000, theta.households)
    begin = time.perf_counter()
    sensitivity_schedule(Policy(rule=ProtectionRule.PAPER), bound_wh, 96, theta)
    print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def measure_in_process(models: str) -> tuple[float, float]:
    """Return the seconds and the peak GiB of a day's schedule in a separate process."""
    command = [sys.executable, "-c", f"from benchmarks import schedule_scaling as b; b.schedule_day(b.{models}())"]
    seconds, peak = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
    return float(seconds), float(peak)


def report(what: str, value: float, low: float, high: float, unit: str = "") -> bool:
    held = low <= value <= high
    print(f"{what:<72} {value:6.2f}{unit}  (allowed {low:g} to {high:g}{unit}) {'ok' if held else 'MISSED'}")
    return held


def main() -> int:
    step_1e7, baseline = schedule_step(10**7)
    step_1e6, _ = schedule_step(10**6)
    large, plain, small = measure_in_turn(step_1e7, baseline, step_1e6)
    print(f"schedule step: {1e3 * large:.1f} ms for 10^7 households, {1e3 * small:.2f} ms for 10^6;", end=" ")
    print(f"minimum(x, u).sum(): {1e3 * plain:.1f} ms for 10^7")
    held = [
        report("schedule step / minimum(x, u).sum(), 10^7 households", large / plain, 0, 3),
        report("schedule step, 10^7 households / 10^6 households", large / small, 7, 14),
    ]
    seconds, peak = measure_in_process("ten_models")
    held.append(report("a day's schedule, 10^6 households, 10 models of 4 periods: peak memory", peak, 0, 2, " GiB"))
    print(f"(that day took {seconds:.1f} s; most of the memory is its 160 million probabilities)")
    seconds, peak = measure_in_process("hundred_models")
    print(f"a day's schedule, 10^7 households of 50 kinds, 100 models: {seconds:.1f} s, {peak:.2f} GiB")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
