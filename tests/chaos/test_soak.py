"""The judgement of a soak: what grows is found, what only varies or warms up is not."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys

import pytest

from tests.chaos.soak import MAX_GROWTH, Sample, judge_samples, slopes_per_day, take_sample
from tests.support.operator_cli import with_shifted_time
from tests.support.waiting import wait_until


def samples(*, mb: float = 0.0, objects: float = 0.0, descriptors: float = 0.0, threads: float = 0.0) -> list[Sample]:
    """Two days of intervals, with a warm-up, requests in flight, and the growth of each figure in a day."""
    rng = random.Random(4)  # noqa: S311
    taken = []
    for number in range(240):
        days = number / 120
        warm_up = min(1.0, 2 * days)
        used_mb = 40 + 5 * warm_up + mb * days + rng.choice((0, 0, 3)) + rng.uniform(0, 0.05)
        tracked = int(100_000 + 5_000 * warm_up + objects * days + rng.choice((0, 0, 900)))
        files, count = int(30 + descriptors * days), int(12 + threads * days)
        taken.append(Sample(days, used_mb, tracked, 150 + 40 * warm_up + 20 * days, files, count))
    return taken


def test_a_warm_up_requests_in_flight_and_a_growing_resident_set_are_no_growth():
    assert judge_samples({"part": samples()}) == []
    assert slopes_per_day(samples())[0] == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(
    "growth",
    [{"mb": 0.6}, {"objects": 2_500}, {"descriptors": 40}, {"threads": 40}],
    ids=lambda one: next(iter(one)),
)
def test_a_leak_is_found(growth):
    assert len(judge_samples({"part": samples(**growth)})) == 1


@pytest.mark.slow
def test_a_sample_is_that_of_a_process(tmp_path):
    """A process reports what it has in use: 30 MB and 100,000 objects more are seen."""
    take = "a = bytearray(30_000_000); b = [[] for _ in range(100_000)]"
    code = f"import sys, time; sys.stdin.readline(); {take}; time.sleep(600)"
    environment = os.environ | with_shifted_time({"MURMURATE_TEST_MEMORY": str(tmp_path)})
    command = [sys.executable, "-c", code, "worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        try:
            before = wait_for_sample(process.pid, tmp_path, lambda one: one.objects > 0)
            process.stdin.write(b"go\n")
            process.stdin.flush()
            after = wait_for_sample(process.pid, tmp_path, lambda one: one.objects > before.objects + 90_000)
            assert after.objects - before.objects == pytest.approx(100_000, abs=100)
            assert after.used_mb - before.used_mb >= 30
            assert after.descriptors == before.descriptors
            assert after.threads == 2
            assert after.resident_mb > 30
        finally:
            process.kill()


def wait_for_sample(pid, folder, condition):
    def fitting_sample():
        sample = take_sample(pid, folder, 0.0) if (folder / str(pid)).exists() else None
        return sample if sample and condition(sample) else None

    sample = wait_until(fitting_sample)
    assert sample
    return sample


def test_descriptors_are_counted(tmp_path):
    (tmp_path / str(os.getpid())).write_text(f"1000000 {len(gc.get_objects())}")
    before = take_sample(os.getpid(), tmp_path, 0.0)
    files = [open(os.devnull) for _ in range(MAX_GROWTH)]  # noqa: PTH123, SIM115
    after = take_sample(os.getpid(), tmp_path, 0.0)
    for file in files:
        file.close()
    assert after.descriptors - before.descriptors == MAX_GROWTH
