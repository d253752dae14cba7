"""The judgement of a soak: what grows is found, what only varies is not."""

from __future__ import annotations

import os
import random

import pytest

from tests.chaos.soak import MAX_GROWTH, Sample, judge_samples, slope_mb_per_hour, take_sample


def samples(*, mb_per_hour: float = 0.0, descriptors: float = 0.0, threads: float = 0.0) -> list[Sample]:
    """An hour, with noise and a warm-up; the growth of each figure in that hour."""
    rng = random.Random(4)  # noqa: S311
    taken = []
    for at_s in range(0, 3600, 10):
        share = at_s / 3600
        warm_up = 40 * min(1.0, 4 * share)
        resident = 150 + warm_up + mb_per_hour * share + rng.uniform(-3, 3)
        taken.append(Sample(at_s, resident, int(30 + descriptors * share), int(12 + threads * share)))
    return taken


def test_a_warm_up_and_noise_are_no_growth():
    assert judge_samples({"part": samples()}, judge_slope=True) == []
    assert slope_mb_per_hour(samples()[120:]) == pytest.approx(0, abs=2)


@pytest.mark.parametrize(
    "growth", [{"mb_per_hour": 10}, {"descriptors": 40}, {"threads": 40}], ids=lambda one: next(iter(one))
)
def test_a_leak_is_found(growth):
    assert len(judge_samples({"part": samples(**growth)}, judge_slope=True)) == 1


def test_memory_is_not_judged_in_a_short_run():
    assert judge_samples({"part": samples(mb_per_hour=100)}, judge_slope=False) == []


def test_a_sample_is_that_of_a_process():
    before = take_sample(os.getpid())
    files = [open(os.devnull) for _ in range(MAX_GROWTH)]  # noqa: PTH123, SIM115
    after = take_sample(os.getpid())
    for file in files:
        file.close()
    assert after.descriptors - before.descriptors == MAX_GROWTH
    assert after.resident_mb > 10
    assert after.threads >= 1
