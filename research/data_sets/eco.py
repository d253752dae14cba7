"""ECO (ETH Zurich, CC BY 4.0): 6 Swiss homes, every second of 8 months, with true occupancy in two seasons.

    01_sm_csv/01/2012-06-01.csv     86,400 rows of a local day; the first column is the power of all phases [W]
    01_summer.csv, 01_winter.csv    a row a day: its date, then 86,400 times 0 or 1 (1: a person is at home)

-1 is missing. An interval with at least 90 % of its seconds counts as if it had all of them; with fewer it is missing.
A home is occupied in an interval if it was for at least half of it. Files have 86,400 rows on days of a clock change
too, and do not say which hour is doubled or left out: such a day is missing.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from murmurate.errors import ReadingError
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, BoolArray, FloatArray
from research.data_sets.homes_data import HomesData
from research.data_sets.reading_grid import GridReadings, ReadingGrid

_TIME_ZONE = "Europe/Zurich"
_SECONDS_PER_HOUR = 3600
_MIN_SHARE = 0.9  # of the seconds of an interval
_MISSING = -1.0
_DATE_FORMATS = ("%Y-%m-%d", "%d-%b-%Y", "%d.%m.%Y")


def read_eco(folder: Path, interval_s: int = 900) -> HomesData:
    """Return all homes in the folder at intervals of this length. Raises ReadingError with the file and row."""
    if interval_s < 1 or _SECONDS_PER_HOUR % interval_s:
        raise ReadingError("interval", f"{interval_s} s", "must divide an hour")
    homes = sorted(path.name for path in folder.glob("*_sm_csv/*") if path.is_dir())
    if not homes:
        raise ReadingError(str(folder), "without homes", "must have folders such as 01_sm_csv/01")
    grid, labels = ReadingGrid(interval_s), ReadingGrid(interval_s)
    for home in homes:
        for file in sorted((folder / f"{home}_sm_csv" / home).glob("*.csv")):
            midnight_s = _local_midnight(file.stem, str(file))
            if midnight_s is not None:
                _add_readings(grid, home, midnight_s, file, interval_s)
        for file in sorted(folder.glob(f"{home}_*.csv")):
            _add_labels(labels, home, file, interval_s)
    found = grid.to_readings(str(folder))
    occupied, known = _place_labels(labels, found, interval_s)
    return HomesData(
        name="ECO",
        licence="CC BY 4.0 (ETH Zurich)",
        measured=True,
        interval_s=interval_s,
        time_zone=_TIME_ZONE,
        occupied=occupied,
        occupancy_known=known,
        **found._asdict(),
    )


def _add_readings(grid: ReadingGrid, home: str, midnight_s: int, file: Path, interval_s: int) -> None:
    watts = _read_watts(file)
    present = watts != _MISSING
    seconds = present.reshape(-1, interval_s).sum(axis=1)
    total = np.where(present, watts, 0.0).reshape(-1, interval_s).sum(axis=1)
    wh = np.floor(total / np.maximum(seconds, 1) * interval_s / _SECONDS_PER_HOUR + 0.5).astype(np.int64)
    for number, is_enough in enumerate(seconds >= _MIN_SHARE * interval_s):
        grid.add_reading(home, midnight_s + number * interval_s, int(wh[number]) if is_enough else None, str(file))


def _read_watts(file: Path) -> FloatArray:
    """Return the power of each second of a day [W], -1 where it is missing."""
    watts = np.full(SECONDS_PER_DAY, _MISSING)
    rows = 0
    with file.open(encoding="ascii", errors="replace") as lines:
        for row, line in enumerate(lines):
            rows = row + 1
            try:
                watts[row] = float(line.partition(",")[0])
            except (ValueError, IndexError):
                allowed = f"must begin with a power in W, or -1, in one of {SECONDS_PER_DAY:,} rows"
                raise ReadingError(f"{file}:{rows}", "not readable", allowed) from None
    wrong = ~np.isfinite(watts) | ((watts < 0) & (watts != _MISSING))
    if wrong.any():
        raise ReadingError(f"{file}:{int(wrong.argmax()) + 1}", "a wrong power", "must be 0 W or more, or -1")
    if rows != SECONDS_PER_DAY:
        raise ReadingError(str(file), f"{rows:,} rows long", f"must have {SECONDS_PER_DAY:,}")
    return watts


def _add_labels(labels: ReadingGrid, home: str, file: Path, interval_s: int) -> None:
    """Add 1 or 0 for each interval of the labelled days of a home. A first row without a date is a header."""
    with file.open(encoding="ascii", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            date, _, rest = line.strip().partition(",")
            if number == 1 and not date[:1].isdigit():
                continue
            place = f"{file}:{number}"
            midnight_s = _local_midnight(date, place)
            states = rest.replace(" ", "").split(",")
            if len(states) != SECONDS_PER_DAY or not set(states) <= {"0", "1", "-1"}:
                raise ReadingError(place, f"{len(states):,} states", f"must have {SECONDS_PER_DAY:,} times 0, 1 or -1")
            if midnight_s is None:
                continue
            state = np.array(states, np.int64).reshape(-1, interval_s)
            known = (state >= 0).mean(axis=1) >= _MIN_SHARE
            home_most = 2 * (state == 1).sum(axis=1) >= (state >= 0).sum(axis=1)
            for slot, is_known in enumerate(known):
                start_s = midnight_s + slot * interval_s
                labels.add_reading(home, start_s, int(home_most[slot]) if is_known else None, place)


def _place_labels(labels: ReadingGrid, found: GridReadings, interval_s: int) -> tuple[BoolArray, BoolArray]:
    """Return the occupancy of the intervals with readings, and where it is known [interval, household]."""
    occupied, known = (np.zeros(found.energy_wh.shape, np.bool_) for _ in range(2))
    if labels.is_empty:
        return occupied, known
    seen = labels.to_readings("occupancy")
    first = (seen.start_s - found.start_s) // interval_s
    at = np.arange(len(seen.energy_wh)) + first
    inside = (at >= 0) & (at < len(occupied))
    for column, home in enumerate(seen.households):
        place = found.households.index(home)
        occupied[at[inside], place] = seen.energy_wh[inside, column] == 1
        known[at[inside], place] = ~seen.missing[inside, column]
    return occupied & known, known


def _local_midnight(date: str, place: str) -> int | None:
    """Return when a local day begins [s of UTC], or None if its clocks change."""
    for form in _DATE_FORMATS:
        with suppress(ValueError):
            naive_s = int(datetime.strptime(date.strip(), form).replace(tzinfo=UTC).timestamp())
            break
    else:
        raise ReadingError(place, "a wrong date", "must be such as 2012-06-01")
    offset_min = utc_offset_min(_TIME_ZONE, naive_s - _SECONDS_PER_HOUR)
    later_min = utc_offset_min(_TIME_ZONE, naive_s + SECONDS_PER_DAY - _SECONDS_PER_HOUR)
    return naive_s - 60 * offset_min if later_min == offset_min else None
