"""The readings of a zone in the past: a number for each interval and household, with few gaps, by UTC interval."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.readings_file import fill_gaps, find_intervals, read_rows
from murmurate.units import SECONDS_PER_DAY

MAX_MISSING_SHARE = 0.1  # of a household's readings; with more of them missing it is left out


@dataclass(frozen=True, slots=True, eq=False)
class PastReadings:
    """What some households used in a row of intervals."""

    energy_wh: NDArray[np.int32]  # [interval, household]
    first_interval: int  # counted from 1970 in UTC
    interval_s: int
    names: tuple[str, ...]  # of the households
    left_out: int  # households with too many readings missing
    filled: int  # readings that were missing, replaced by the household's mean at that time of day

    @property
    def households(self) -> int:
        return len(self.names)

    @property
    def intervals(self) -> int:
        return len(self.energy_wh)


def read_past_readings(path: Path, interval_s: int) -> PastReadings:
    """Read the readings of a zone, in intervals of the plan. Raises ReadingError if they cannot be used."""
    rows = read_rows(path)
    interval = find_intervals(path, rows.times, interval_s)[0][rows.time]
    first, slots = int(interval.min()), SECONDS_PER_DAY // interval_s
    if (length := int(interval.max()) + 1 - first) < slots:
        raise ReadingError(str(path), f"{length} intervals long", f"must cover a day, {slots} intervals of the plan")
    table = np.full((length, len(rows.households)), np.nan, np.float32)
    table[interval - first, rows.household] = rows.energy_wh
    missing = np.isnan(table)
    kept = missing.mean(axis=0) <= MAX_MISSING_SHARE
    if not kept.any():
        found = f"without a household that has 90 % of its {len(table):,} intervals of {interval_s // 60} min"
        allowed = "must have readings at the interval of the plan; murmurate import --interval-minutes makes them"
        raise ReadingError(str(path), found, allowed)
    filled = fill_gaps(table[:, kept], slots)
    return PastReadings(
        energy_wh=np.rint(filled).astype(np.int32),
        first_interval=first,
        interval_s=interval_s,
        names=tuple(name for name, keep in zip(rows.households, kept.tolist(), strict=True) if keep),
        left_out=int((~kept).sum()),
        filled=int(missing[:, kept].sum()),
    )
