"""Samples of households with known occupancy, drawn from known habits and written as an import does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from murmurate.household.occupancy import OccupancyChains, OccupancyModel, per_interval_probability, sample_occupancy
from tests.support.reading_dialects import write_imported

MONDAY_S = 1_767_571_200  # 2026-01-05T00:00Z
STARTS = (7, 8, 16, 23)  # hours at which the periods of the day begin
ARRIVE, LEAVE = (0.98, 0.05, 0.99, 0.01), (0.05, 0.95, 0.05, 0.995)  # during each period


def resident_chains(households: int, per_hour: int = 1) -> OccupancyChains:
    """The habits of the example zone file, for a number of households."""
    day = 24 * per_hour
    starts = np.array(STARTS) * per_hour
    period = (np.searchsorted(starts, np.arange(day), side="right") - 1) % len(starts)
    arrive, leave = (per_interval_probability(np.array(p), np.bincount(period))[:, None] for p in (ARRIVE, LEAVE))
    return OccupancyChains.independent(initial=[0.3], arrive=arrive, leave=leave, period=period, kind=[0] * households)


def write_labeled_sample(
    path: Path, *, households: int, days: int, seed: int, per_hour: int = 1, kinds: list[str] | None = None
) -> Path:
    """Write readings and occupancy of independent households that live by these habits, from a Monday on."""
    model = OccupancyModel(groups=(resident_chains(households, per_hour),))
    occupied = sample_occupancy(model, days * 24 * per_hour, np.random.default_rng(seed))
    step_s, energy_wh = 3600 // per_hour, 100.0 + 200 * occupied
    texts: dict[str, Any] = {"kind": kinds} if kinds else {}
    return write_imported(path, energy_wh, start_s=MONDAY_S, interval_s=step_s, occupied=occupied, **texts)
