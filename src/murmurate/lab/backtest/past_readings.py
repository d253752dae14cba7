"""The readings of a zone in the past: a number for each interval and household, with few gaps, by UTC interval."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.lab.evaluate.readings_file import find_intervals, join_meters, read_rows
from murmurate.units import SECONDS_PER_DAY

MAX_MISSING_SHARE = 0.1  # of a household's readings; with more of them missing it is left out


@dataclass(frozen=True, slots=True, eq=False)
class PastReadings:
    """What some households used in a row of intervals."""

    energy_wh: NDArray[np.int32]  # [interval, household]
    first_interval: int  # counted from 1970 in UTC
    interval_s: int
    names: tuple[str, ...]  # of the households
    kinds: tuple[str, ...]  # of the households; empty: not known
    left_out: int  # households with too many readings missing
    filled: int  # readings that were missing, replaced by the meter's mean at that time of day
    is_by_meter: bool = False  # the file names no household: each meter is taken for one

    @property
    def households(self) -> int:
        return len(self.names)

    @property
    def intervals(self) -> int:
        return len(self.energy_wh)


def read_past_readings(path: Path, interval_s: int, zone: str) -> PastReadings:
    """Read the readings of a zone, in intervals of the plan. Raises ReadingError if they cannot be used.

    Where the file has a column `zone`, only its meters of this zone count.
    """
    rows = read_rows(path)
    interval = find_intervals(path, rows.times, interval_s)[0][rows.time]
    in_zone = np.array([name == zone for name in rows.about.get("zone", [zone] * len(rows.meters))])
    if not in_zone.any():
        allowed = (
            f"must have readings of the zone of the plan; its zones are {', '.join(sorted(set(rows.about['zone'])))}"
        )
        raise ReadingError(str(path), f"without a reading of zone {zone!r}", allowed)
    used = interval[in_zone[rows.meter]]
    first, slots = int(used.min()), SECONDS_PER_DAY // interval_s
    if (length := int(used.max()) + 1 - first) < slots:
        raise ReadingError(str(path), f"{length} intervals long", f"must cover a day, {slots} intervals of the plan")
    meters = np.flatnonzero(in_zone)
    household = [rows.about.get("household", rows.meters)[meter] for meter in meters.tolist()]
    table = rows.make_table(path, interval, first, length)[:, meters]
    found = join_meters(table, household, MAX_MISSING_SHARE, slots)
    if not found.meters:
        said = f"without a household that has 90 % of its {length:,} intervals of {interval_s // 60} min"
        allowed = (
            "must have readings at the interval of the plan; murmurate readings import --interval-minutes makes them"
        )
        raise ReadingError(str(path), said, allowed)
    kinds = rows.about.get("kind")
    return PastReadings(
        energy_wh=np.rint(found.energy_wh).astype(np.int32),
        first_interval=first,
        interval_s=interval_s,
        names=tuple(household[at] for at in found.meters),
        kinds=() if kinds is None else tuple(kinds[int(meters[at])] for at in found.meters),
        left_out=found.left_out,
        filled=found.filled,
        is_by_meter="household" not in rows.about,
    )
