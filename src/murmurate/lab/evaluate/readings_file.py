"""Read a file of readings for an evaluation: CSV or Parquet, one row for each home and quarter hour."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.text_files import open_text
from murmurate.units import QUARTER_HOURS_PER_DAY, SECONDS_PER_DAY, FloatArray, IntArray

MIN_HOUSEHOLDS, MIN_DAYS = 200, 35
_SLOTS = QUARTER_HOURS_PER_DAY
_INTERVAL_S = SECONDS_PER_DAY // _SLOTS
_TIME_COLUMNS = ("interval", "timestamp", "interval_start")
_HOME_COLUMNS = ("household", "meter", "meter_id")
TimeValue = str | int | datetime
_MAX_MISSING = 0.01  # of a household's readings
_COLUMNS = (
    "must have the columns interval (quarter hours since 1970 in UTC) or timestamp, household or meter, and energy_wh"
)


@dataclass(frozen=True, slots=True, eq=False)
class HouseholdReadings:
    """Readings of whole days, from a midnight on."""

    energy_wh: NDArray[np.float32]  # [interval, household]
    first_day: int  # counted from 1970-01-01, in local time
    left_out: int  # households with too many readings missing

    @property
    def days(self) -> int:
        return len(self.energy_wh) // _SLOTS

    @property
    def households(self) -> int:
        return int(self.energy_wh.shape[1])


class ReadingRows(NamedTuple):
    """Rows of a file. Times and households are numbered in the order in which they appear."""

    times: list[TimeValue]
    households: list[str]
    time: IntArray  # [row] number of its time
    household: IntArray  # [row] number of its household
    energy_wh: FloatArray


def read_households(path: Path) -> HouseholdReadings:
    """Read a file of readings. Raises ReadingError if it cannot be used, with what it must have."""
    rows = read_rows(path)
    energy_wh, interval = rows.energy_wh, _to_intervals(path, rows.times)[rows.time]
    first_day = -(-int(interval.min()) // _SLOTS)
    days = (int(interval.max()) + 1) // _SLOTS - first_day
    if days < MIN_DAYS:
        raise ReadingError(
            str(path), f"{_count_days(days)} long", f"must cover {MIN_DAYS} days: add the weeks before it"
        )
    row = interval - first_day * _SLOTS
    used = (row >= 0) & (row < days * _SLOTS)
    table = np.full((days * _SLOTS, int(rows.household.max()) + 1), np.nan, np.float32)
    table[row[used], rows.household[used]] = energy_wh[used]
    kept = np.isnan(table).mean(axis=0) <= _MAX_MISSING
    if kept.sum() < MIN_HOUSEHOLDS:
        found = f"{int(kept.sum())} households with 99 % of their quarter hours"
        raise ReadingError(str(path), f"with {found}", f"must have {MIN_HOUSEHOLDS} of them; hourly readings do not do")
    return HouseholdReadings(fill_gaps(table[:, kept]), first_day, int((~kept).sum()))


def read_rows(path: Path) -> ReadingRows:
    """Read the rows of a file. Raises ReadingError if it has none, or one that cannot be read or is below 0."""
    rows = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    if len(rows.time) == 0:
        raise ReadingError(str(path), "without readings", _COLUMNS)
    if not np.isfinite(rows.energy_wh).all() or (rows.energy_wh < 0).any():
        raise ReadingError("energy_wh", "negative or no number in some rows", "must be 0 or more: use, without feed-in")
    return rows


def fill_gaps(table: NDArray[np.float32], slots: int = _SLOTS) -> NDArray[np.float32]:
    """Put the household's mean at that time of day where a reading is missing [interval, household].

    >>> fill_gaps(np.array([[1], [5], [3], [np.nan], [np.nan]], np.float32), slots=2).ravel().tolist()
    [1.0, 5.0, 3.0, 5.0, 2.0]
    """
    filled = table.copy()
    for slot in range(min(slots, len(table))):
        of_slot = filled[slot::slots]
        seen = ~np.isnan(of_slot)
        mean = np.where(seen, of_slot, 0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
        filled[slot::slots] = np.where(seen, of_slot, mean)
    return filled


def _count_days(days: int) -> str:
    return "1 whole day" if days == 1 else f"{max(days, 0)} whole days"


def _choose_columns(path: Path, names: Iterable[str]) -> tuple[str, str]:
    there = list(names)
    time, home = (next((name for name in known if name in there), None) for known in (_TIME_COLUMNS, _HOME_COLUMNS))
    if time is None or home is None or "energy_wh" not in there:
        raise ReadingError(str(path), f"with the columns {', '.join(there) or 'of no CSV'}", _COLUMNS)
    return time, home


def _read_csv(path: Path) -> ReadingRows:
    times: dict[TimeValue, int] = {}
    homes: dict[str, int] = {}
    time, household, energy = array("q"), array("q"), array("d")
    with open_text(path) as file:
        rows = csv.reader(file)
        header = next(rows, [])
        time_name, home_name = _choose_columns(path, header)
        time_at, home_at, energy_at = (header.index(name) for name in (time_name, home_name, "energy_wh"))
        try:
            for row in rows:
                time.append(times.setdefault(row[time_at], len(times)))
                household.append(homes.setdefault(row[home_at], len(homes)))
                energy.append(float(row[energy_at]))
        except (ValueError, IndexError):
            raise ReadingError(f"{path}:{rows.line_num}", "not readable", _COLUMNS) from None
    numbers = np.array(time, np.int64), np.array(household, np.int64)
    return ReadingRows(list(times), list(homes), *numbers, np.array(energy))


def _read_parquet(path: Path) -> ReadingRows:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - the laboratory does without, except for Parquet

    try:
        time_name, home_name = _choose_columns(path, parquet.read_schema(path).names)
        table = parquet.read_table(path, columns=[time_name, home_name, "energy_wh"]).combine_chunks()
    except ArrowException:
        raise ReadingError(
            str(path), "no Parquet file", "must be a whole Parquet file; a CSV must end in .csv"
        ) from None
    time, home = (table.column(name).combine_chunks().dictionary_encode() for name in (time_name, home_name))
    energy = table.column("energy_wh").to_numpy().astype(np.float64)
    missing = "must name a time and a household in every row"
    if time.null_count or home.null_count:
        raise ReadingError(str(path), "with empty cells", missing)
    time_number, home_number = (
        column.indices.to_numpy(zero_copy_only=False).astype(np.int64) for column in (time, home)
    )
    homes = [str(name) for name in home.dictionary.to_pylist()]
    return ReadingRows(time.dictionary.to_pylist(), homes, time_number, home_number, energy)


def _to_intervals(path: Path, times: Sequence[TimeValue]) -> IntArray:
    """Return quarter hours since 1970, in the local time that the first timestamp is written in."""
    interval, offset = find_intervals(path, times, _INTERVAL_S)
    return interval + offset


def find_intervals(path: Path, times: Sequence[TimeValue], interval_s: int) -> tuple[IntArray, int]:
    """Return intervals since 1970 in UTC, and how far the clock of the first time is ahead of UTC, in intervals."""
    try:
        whole = [_to_interval(text, interval_s) for text in times]
    except (ValueError, TypeError, OverflowError):
        start = "a quarter hour" if interval_s == _INTERVAL_S else f"the start of an interval of {interval_s // 60} min"
        allowed = f"must be a whole number, or a time such as 2026-01-31T18:15:00+01:00 on {start}"
        raise ReadingError(str(path), "with times that cannot be read", allowed) from None
    return np.array([utc for utc, _ in whole], np.int64), whole[0][1] if whole else 0


def _to_interval(text: TimeValue, interval_s: int) -> tuple[int, int]:
    """An interval in UTC, and the offset of the clock that it was read from, in intervals."""
    if isinstance(text, int) or (isinstance(text, str) and text.strip().isdigit()):
        return int(text), 0
    when = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    clock = when.utcoffset()
    offset_s = int(clock.total_seconds()) if clock is not None else 0
    local_s = (when.replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - both local
    if (local_s - offset_s) % interval_s or offset_s % _INTERVAL_S:
        raise ValueError(text)
    return int(local_s - offset_s) // interval_s, offset_s // interval_s
