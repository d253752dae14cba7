"""The seeded random choices of a run: faults, their order and their times. The noise of a release never uses them."""

from __future__ import annotations

import random


def seeded_random(seed: int) -> random.Random:
    """Return a random generator that is the same in every run with this seed."""
    return random.Random(seed)  # noqa: S311 nothing secret is chosen
