"""Habits that are learned from a sample: one household changes the noised counts by no more than epsilon allows."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stdout
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from murmurate.commands.habits import HabitOptions, learn_habits
from murmurate.habits.private_counts import HabitCells, count_steps, release_counts
from tests.support.reading_dialects import write_imported

LEARNED_MODELS = ["learned", "learned_bound"]


class RecordedScales:
    """Returns zeros instead of noise and keeps the scales."""

    test_only = False

    def draw(self, _, scale_wh, core_wh=None):
        assert core_wh is None
        self.scale = np.array(scale_wh, np.float64)
        return np.zeros(scale_wh.shape, np.int64)


class Votes(NamedTuple):
    """What decides the noise of a sample: its cells, the changes of a day that count, and epsilon."""

    cells: HabitCells
    max_changes: int
    epsilon: Fraction


def random_votes(rng: Random) -> Votes:
    """Draw cells with few intervals in all."""
    day, days = rng.choice([(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 2)])
    periods, day_types = rng.randint(1, day), rng.randint(1, days)
    cells = HabitCells(period=np.arange(day) * periods // day, day_type=np.arange(days) % day_types)
    return Votes(cells, rng.randint(1, 3), Fraction(rng.choice(["1/2", "1", "3"])))


def worst_vote(sample: Votes) -> float:
    """Return the largest loss that replacing one household causes, over all pairs of what two households may do."""
    cells, max_changes, epsilon = sample
    steps = len(cells.period) * len(cells.day_type)
    everything = np.array(list(product((False, True), repeat=steps))).T  # [interval, household]
    counts = count_steps(everything, cells, max_changes)
    noise = RecordedScales()
    release_counts(counts[:1], cells, max_changes=max_changes, epsilon=epsilon, noise=noise)
    votes = (counts / noise.scale).reshape(len(counts), -1)
    return float(max(np.abs(votes - vote).sum(axis=1).max() for vote in votes))


@cache
def learned_text(day: int) -> str:
    """Return what `murmurate habits` writes for a zone file, from a made sample of days of so many intervals."""
    changes = np.random.default_rng(day).random((day * 20, 400)) < 0.15
    occupied = np.cumsum(changes, axis=0) % 2
    place = {"start_s": 0, "interval_s": 86_400 // day, "occupied": occupied}
    options = HabitOptions(epsilon="3", periods="00:00", interval_minutes=1440 // day, max_changes=day)
    with tempfile.TemporaryDirectory(prefix="murmurate-") as name, redirect_stdout(io.StringIO()):
        out = Path(name) / "habits.toml"
        sample = write_imported(Path(name) / "sample.parquet", np.zeros(occupied.shape), **place)
        learn_habits(sample, out, options, RecordedScales())
        return out.read_text(encoding="utf-8")
