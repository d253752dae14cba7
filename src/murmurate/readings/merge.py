"""Readings of an import between the files and the output: kept on disk by meter, merged, brought to one interval.

The spool keeps memory bounded. The merge resolves hours that occur twice and finds contradictions. A change of the
interval keeps sums: a reading is split in whole Wh, or complete intervals are added up.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murmurate.readings.cell_values import INCOMPLETE, OCCURS_TWICE, OFF_GRID, ONE_DIRECTION, TWO_VALUES
from murmurate.units import BoolArray, IntArray

PART_COUNT = 64  # a part is read as a whole: 10^9 readings need about 1 GB
MAX_BUFFERED = 500_000  # readings in memory before they are written
READING_TYPE = np.dtype(
    [
        ("meter", np.int64),
        ("start_s", np.int64),  # first meaning of its time [s of UTC]
        ("later_s", np.int64),  # by how much later the second meaning is; 0 where there is one
        ("length_s", np.int64),
        ("energy_wh", np.int64),
        ("occupied", np.int64),  # 0 or 1; -1: the file does not say
        ("file", np.int64),
        ("line", np.int64),
        ("column", np.int64),
        ("is_export", np.int64),  # 1: energy fed in, which is subtracted
    ]
)
_FIELDS = len(READING_TYPE.names or ())
SpooledReadings = NDArray[Any]  # of READING_TYPE
Refuse = Callable[[str, SpooledReadings], None]  # a reason, and the readings that are refused for it


class ReadingSpool:
    """Takes readings one by one and gives them back meter by meter."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._buffer = array("q")

    def add_reading(self, *values: int) -> None:
        """Add a reading: the values of `READING_TYPE`, in its order."""
        self._buffer.extend(values)
        if len(self._buffer) >= MAX_BUFFERED * _FIELDS:
            self._write()

    def _write(self) -> None:
        rows = np.array(self._buffer, np.int64).view(READING_TYPE)
        self._buffer = array("q")
        part = rows["meter"] % PART_COUNT
        order = np.argsort(part, kind="stable")
        edges = np.searchsorted(part[order], np.arange(PART_COUNT + 1))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            with (self._folder / f"{number}.part").open("ab") as file:
                rows[order[edges[number] : edges[number + 1]]].tofile(file)

    def read_parts(self) -> Iterator[SpooledReadings]:
        """Yield the readings of some meters after the other, in the order in which they were added."""
        if self._buffer:
            self._write()
        for number in range(PART_COUNT):
            path = self._folder / f"{number}.part"
            if path.exists():
                yield np.fromfile(path, READING_TYPE)
                path.unlink()


class MeterReadings(NamedTuple):
    """Readings in columns."""

    meter: IntArray
    start_s: IntArray
    energy_wh: IntArray
    occupied: IntArray  # -1: not known

    def choose(self, chosen: IntArray | BoolArray) -> MeterReadings:
        return MeterReadings(*(column[chosen] for column in self))


def split_readings(readings: MeterReadings, parts: int, interval_s: int) -> MeterReadings:
    """Return each reading as `parts` intervals of `interval_s`: equal to 1 Wh, and with the same sum.

    Part i of x Wh is floor((i + 1) x / parts) - floor(i x / parts).

    >>> hour = MeterReadings(np.array([7]), np.array([1800]), np.array([251]), np.array([1]))
    >>> split_readings(hour, 2, 900).energy_wh.tolist()
    [125, 126]
    """
    edges = readings.energy_wh[:, None] * np.arange(parts + 1) // parts
    starts = readings.start_s[:, None] + np.arange(parts) * interval_s
    meter, occupied = np.repeat(readings.meter, parts), np.repeat(readings.occupied, parts)
    return MeterReadings(meter, starts.ravel(), np.diff(edges, axis=1).ravel(), occupied)


def sum_readings(readings: MeterReadings, parts: int, interval_s: int) -> tuple[MeterReadings, BoolArray]:
    """Return the sums of intervals of which all `parts` are there, and which readings are in no such interval.

    Readings are in the order of meter and start, each once. A sum is occupied if one of its parts is.
    """
    if not len(readings.meter):
        return readings, np.zeros(0, np.bool_)
    interval = readings.start_s // interval_s
    group, place = _group_rows(readings.meter, interval)
    first = np.flatnonzero(place == 0)
    complete = np.bincount(group) == parts
    sums = np.add.reduceat(readings.energy_wh, first)
    occupied = np.maximum.reduceat(readings.occupied, first)
    found = MeterReadings(readings.meter[first], interval[first] * interval_s, sums, occupied)
    return found.choose(complete), ~complete[group]


def merge_readings(spooled: SpooledReadings, interval_s: int, refuse: Refuse) -> tuple[MeterReadings, int]:
    """Return readings at intervals of one length in the order of meter and time, and how many were there twice.

    Different readings of one interval are all refused. Of an interval that files have in several lengths, the finest
    counts. Export is subtracted.
    """
    directions, repeated = [], 0
    for is_export in (0, 1):
        rows = _resolve_repeated_hours(spooled[spooled["is_export"] == is_export], refuse)
        rows = rows[np.lexsort((rows["length_s"], rows["start_s"], rows["meter"]))]
        group, place = _group_rows(*(rows[name] for name in ("meter", "start_s", "length_s")))
        first = rows[place == 0][group]
        differs = (rows["energy_wh"] != first["energy_wh"]) | (rows["occupied"] != first["occupied"])
        contradicted = (np.bincount(group, weights=differs) > 0)[group]
        if contradicted.any():
            refuse(TWO_VALUES, rows[contradicted])
        repeated += int(((place > 0) & ~contradicted).sum())
        directions.append(rows[(place == 0) & ~contradicted])
    unique = _subtract_export(directions[0], directions[1], refuse)
    parts: list[MeterReadings] = [MeterReadings(*(np.empty(0, np.int64),) * 4)]
    for length_s in np.unique(unique["length_s"]).tolist():
        rows = unique[unique["length_s"] == length_s]
        is_off = rows["start_s"] % min(length_s, interval_s) != 0
        if is_off.any():
            refuse(OFF_GRID, rows[is_off])
            rows = rows[~is_off]
        readings = MeterReadings(*(rows[name] for name in MeterReadings._fields))
        if length_s >= interval_s:
            parts.append(split_readings(readings, length_s // interval_s, interval_s))
            continue
        sums, is_left = sum_readings(readings, interval_s // length_s, interval_s)
        parts.append(sums)
        if is_left.any():
            refuse(INCOMPLETE, rows[is_left])
    joined = MeterReadings(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    joined = joined.choose(np.lexsort((joined.start_s, joined.meter)))  # stable: the finest length comes first
    return joined.choose(_group_rows(joined.meter, joined.start_s)[1] == 0), repeated


def _subtract_export(imported: SpooledReadings, exported: SpooledReadings, refuse: Refuse) -> SpooledReadings:
    """Return net readings in the order of meter, start and length, each once: import minus export of the same interval.

    Of a meter that has both, an interval with one of the two is refused. A meter with one of the two has that one.
    """
    if not len(exported):
        return imported
    rows = np.concatenate([imported, exported])
    rows["energy_wh"] *= 1 - 2 * rows["is_export"]
    rows = rows[np.lexsort([rows[name] for name in ("is_export", "length_s", "start_s", "meter")])]
    group, place = _group_rows(*(rows[name] for name in ("meter", "start_s", "length_s")))
    has_both = np.isin(rows["meter"], np.intersect1d(imported["meter"], exported["meter"]))
    is_alone = has_both & (np.bincount(group) == 1)[group]
    if is_alone.any():
        refuse(ONE_DIRECTION, rows[is_alone])
    first = np.flatnonzero(place == 0)
    net = rows[first]  # the place of a reading is that of its import
    net["energy_wh"] = np.add.reduceat(rows["energy_wh"], first)
    return np.asarray(net[~is_alone[first]])


def _resolve_repeated_hours(spooled: SpooledReadings, refuse: Refuse) -> SpooledReadings:
    """Give a local time that occurs twice its meaning. It must be twice in a file: the first is the earlier one.

    In a file that begins with the newest reading of a meter, the first is the later one.
    """
    is_open = spooled["later_s"] > 0
    if not is_open.any():
        return spooled
    order = np.lexsort((spooled["line"], spooled["file"], spooled["meter"]))
    group, place = _group_rows(spooled["meter"][order], spooled["file"][order])
    first = np.flatnonzero(place == 0)
    last = np.append(first[1:], len(order)) - 1
    start = spooled["start_s"][order]
    newest_first = np.zeros(len(spooled), np.bool_)
    newest_first[order] = (start[last] < start[first])[group]
    at = np.flatnonzero(is_open)
    at = at[np.lexsort([spooled[name][at] for name in ("line", "start_s", "file", "meter")])]
    group, place = _group_rows(*(spooled[name][at] for name in ("meter", "file", "start_s")))
    is_pair = np.bincount(group)[group] == 2
    is_later = place.astype(np.bool_) ^ newest_first[at]
    result = spooled.copy()
    result["start_s"][at] += np.where(is_later, result["later_s"][at], 0)
    refused = np.zeros(len(spooled), np.bool_)
    refused[at[~is_pair]] = True
    if refused.any():
        refuse(OCCURS_TWICE, spooled[refused])
    return np.asarray(result[~refused])


def _group_rows(*keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return the number of the group of equal neighbours of each row, and its place in the group."""
    count = len(keys[0])
    is_first = np.ones(count, np.bool_)
    is_first[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    group = np.cumsum(is_first) - 1
    return group, np.arange(count) - np.flatnonzero(is_first)[group]
