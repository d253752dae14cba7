"""Read a file of readings for an evaluation or a back-test: CSV or Parquet, one row for each meter and interval.

Where the file names the household of each meter, the readings of its meters are added up.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.errors import ReadingError
from murmurate.files import open_text
from murmurate.units import QUARTER_HOURS_PER_DAY, SECONDS_PER_DAY, FloatArray, IntArray

MIN_HOUSEHOLDS, MIN_DAYS = 200, 35
_SLOTS = QUARTER_HOURS_PER_DAY
_INTERVAL_S = SECONDS_PER_DAY // _SLOTS
_TIME_COLUMNS = ("interval", "timestamp", "interval_start")
_METER_COLUMNS = ("meter", "meter_id", "household")  # the household stands for its meter where no meter is named
_ABOUT_METERS = ("household", "zone", "kind")
TimeValue = str | int | datetime
_MAX_MISSING = 0.01  # of a household's readings
_COLUMNS = (
    "must have the columns interval (quarter hours since 1970 in UTC) or timestamp, household or meter or both, and "
    "energy_wh"
)


@dataclass(frozen=True, slots=True, eq=False)
class HouseholdReadings:
    """Readings of whole days, from a midnight on."""

    energy_wh: NDArray[np.float32]  # [interval, household]
    first_day: int  # counted from 1970-01-01, in local time
    left_out: int  # households with too many readings missing
    is_by_meter: bool = False  # the file names no household: each meter is taken for one

    @property
    def days(self) -> int:
        return len(self.energy_wh) // _SLOTS

    @property
    def households(self) -> int:
        return int(self.energy_wh.shape[1])


class ReadingRows(NamedTuple):
    """Rows of a file. Times and meters are numbered in the order in which they appear."""

    times: list[TimeValue]
    meters: list[str]
    time: IntArray  # [row] number of its time
    meter: IntArray  # [row] number of its meter
    energy_wh: FloatArray
    about: dict[str, list[str]]  # household, zone and kind of each meter, as far as the file says

    def make_table(self, path: Path, interval: IntArray, first: int, length: int) -> NDArray[np.float32]:
        """Return the readings of some intervals, NaN where there is none [interval, meter]. `interval` is of rows."""
        used = (interval >= first) & (interval < first + length)
        table = np.full((length, len(self.meters)), np.nan, np.float32)
        table[interval[used] - first, self.meter[used]] = self.energy_wh[used]
        if int((~np.isnan(table)).sum()) < int(used.sum()):
            unit = "household" if self.about.get("household") is self.meters else "meter"
            allowed = "must have one; name each meter in a column meter, and write times with their offset from UTC"
            raise ReadingError(str(path), f"with several readings of one {unit} in an interval", allowed)
        return table


class JoinedMeters(NamedTuple):
    """Readings of households, without gaps."""

    energy_wh: NDArray[np.float32]  # [interval, household]
    meters: list[int]  # [household] its first meter
    left_out: int  # households with a meter of which too many readings are missing
    filled: int  # readings that were missing


def join_meters(table: NDArray[np.float32], household: Sequence[str], max_missing: float, slots: int) -> JoinedMeters:
    """Fill the gaps of each meter and add up the meters of each household. `table` is [interval, meter]."""
    names = {name: number for number, name in enumerate(dict.fromkeys(household))}
    number = np.array([names[name] for name in household])
    missing = np.isnan(table)
    kept = np.bincount(number, weights=missing.mean(axis=0) > max_missing) == 0
    is_used = kept[number]
    position = (np.cumsum(kept) - 1)[number[is_used]]  # [meter] of its household among those that are kept
    energy_wh = np.zeros((len(table), int(kept.sum())), np.float32)
    for column, filled in zip(position.tolist(), fill_gaps(table[:, is_used], slots).T, strict=True):
        energy_wh[:, column] += filled
    _, first = np.unique(number, return_index=True)
    return JoinedMeters(energy_wh, first[kept].tolist(), int((~kept).sum()), int(missing[:, is_used].sum()))


def read_households(path: Path) -> HouseholdReadings:
    """Read a file of readings. Raises ReadingError if it cannot be used, with what it must have."""
    rows = read_rows(path)
    interval = _to_intervals(path, rows.times)[rows.time]
    first_day = -(-int(interval.min()) // _SLOTS)
    days = (int(interval.max()) + 1) // _SLOTS - first_day
    if days < MIN_DAYS:
        raise ReadingError(
            str(path), f"{_count_days(days)} long", f"must cover {MIN_DAYS} days: add the weeks before it"
        )
    table = rows.make_table(path, interval, first_day * _SLOTS, days * _SLOTS)
    found = join_meters(table, rows.about.get("household", rows.meters), _MAX_MISSING, _SLOTS)
    if len(found.meters) < MIN_HOUSEHOLDS:
        said = f"{len(found.meters)} households with 99 % of their quarter hours"
        raise ReadingError(str(path), f"with {said}", f"must have {MIN_HOUSEHOLDS} of them; hourly readings do not do")
    return HouseholdReadings(found.energy_wh, first_day, found.left_out, "household" not in rows.about)


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


def _choose_columns(path: Path, names: Iterable[str]) -> tuple[str, str, list[str]]:
    """The columns of time and meter, and those that say more about the meter."""
    there = list(names)
    time, meter = (next((name for name in known if name in there), None) for known in (_TIME_COLUMNS, _METER_COLUMNS))
    if time is None or meter is None or "energy_wh" not in there:
        raise ReadingError(str(path), f"with the columns {', '.join(there) or 'of no CSV'}", _COLUMNS)
    return time, meter, [name for name in _ABOUT_METERS if name in there and name != meter]


def _describe_meters(
    path: Path, meter_name: str, meters: list[str], meter: IntArray, columns: Mapping[str, tuple[list[str], IntArray]]
) -> dict[str, list[str]]:
    """What columns say of each meter, from their values and the number of the value of each row."""
    first = np.zeros(len(meters), np.int64)
    first[meter[::-1]] = np.arange(len(meter))[::-1]
    about = {"household": meters} if meter_name == "household" else {}
    for name, (values, number) in columns.items():
        of_meter = number[first]
        if (of_meter[meter] != number).any():
            allowed = "must have one in all its rows"
            raise ReadingError(str(path), f"with several values of {name} for one meter", allowed)
        about[name] = [values[at] for at in of_meter.tolist()]
    return about


def _read_csv(path: Path) -> ReadingRows:
    with open_text(path) as file:
        rows = csv.reader(file)
        header = next(rows, [])
        time_name, meter_name, more = _choose_columns(path, header)
        names = [time_name, meter_name, *more]
        places = [header.index(name) for name in names]
        energy_at, energy = header.index("energy_wh"), array("d")
        values: list[dict[str, int]] = [{} for _ in names]
        numbers = [array("q") for _ in names]
        try:
            for row in rows:
                for at, known, number in zip(places, values, numbers, strict=True):
                    number.append(known.setdefault(row[at], len(known)))
                energy.append(float(row[energy_at]))
        except (ValueError, IndexError):
            raise ReadingError(f"{path}:{rows.line_num}", "not readable", _COLUMNS) from None
    columns = {
        name: (list(known), np.array(number, np.int64))
        for name, known, number in zip(names, values, numbers, strict=True)
    }
    (times, time), (meters, meter) = columns.pop(time_name), columns.pop(meter_name)
    about = _describe_meters(path, meter_name, meters, meter, columns)
    return ReadingRows(list(times), meters, time, meter, np.array(energy), about)


def _read_parquet(path: Path) -> ReadingRows:
    from pyarrow import ArrowException, parquet, types  # noqa: PLC0415 - the laboratory does without, except for Parquet

    try:
        time_name, meter_name, more = _choose_columns(path, parquet.read_schema(path).names)
        table = parquet.read_table(path, columns=[time_name, meter_name, *more, "energy_wh"]).combine_chunks()
    except ArrowException:
        raise ReadingError(
            str(path), "no Parquet file", "must be a whole Parquet file; a CSV must end in .csv"
        ) from None
    columns = {}
    for name in (time_name, meter_name, *more):
        texts = table.column(name)
        if texts.null_count:
            raise ReadingError(str(path), "with empty cells", f"must name {name} in every row")
        if types.is_dictionary(texts.type):
            texts = texts.cast(texts.type.value_type)
        encoded = texts.combine_chunks().dictionary_encode()
        number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        columns[name] = encoded.dictionary.to_pylist(), number
    (times, time), (meters, meter) = columns.pop(time_name), columns.pop(meter_name)
    energy = table.column("energy_wh").to_numpy().astype(np.float64)
    meters = [str(name) for name in meters]
    texts_of = {name: ([str(value) for value in values], number) for name, (values, number) in columns.items()}
    return ReadingRows(times, meters, time, meter, energy, _describe_meters(path, meter_name, meters, meter, texts_of))


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
