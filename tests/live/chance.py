"""What a run chooses by its seed: faults, their order, their moments. The noise of a release never comes from here."""

from __future__ import annotations

import random


def chance(seed: int) -> random.Random:
    """Choices that are the same in every run of the same seed."""
    return random.Random(seed)  # noqa: S311 nothing secret is chosen
