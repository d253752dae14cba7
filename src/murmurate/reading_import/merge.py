"""Merge the readings of some meters: resolve hours that occur twice, find contradictions, change the interval."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from murmurate.reading_import.reading_spool import SpooledReadings
from murmurate.reading_import.refused_cells import INCOMPLETE, OCCURS_TWICE, OFF_GRID, TWO_VALUES
from murmurate.reading_import.resample import MeterReadings, split_readings, sum_readings
from murmurate.units import BoolArray, IntArray

Refuse = Callable[[str, SpooledReadings], None]  # a reason, and the readings that are refused for it


def merge_readings(spooled: SpooledReadings, interval_s: int, refuse: Refuse) -> tuple[MeterReadings, int]:
    """Return readings at intervals of one length in the order of meter and time, and how many were there twice."""
    spooled = _resolve_repeated_hours(spooled, refuse)
    spooled = spooled[np.lexsort((spooled["length_s"], spooled["start_s"], spooled["meter"]))]
    unique, repeated = _drop_contradictions(spooled, refuse)
    parts = [_change_length(unique[unique["length_s"] == length], int(length), interval_s, refuse)
             for length in np.unique(unique["length_s"])]  # fmt: skip
    return _join_lengths(parts), repeated


def _resolve_repeated_hours(spooled: SpooledReadings, refuse: Refuse) -> SpooledReadings:
    """A local time that occurs twice must be there twice in a file: the first is the earlier one.

    In a file that begins with the newest reading of a meter, the first is the later one.
    """
    is_open = spooled["later_s"] > 0
    if not is_open.any():
        return spooled
    newest_first = _runs_backwards(spooled)
    at = np.flatnonzero(is_open)
    keys = [spooled[name][at] for name in ("line", "start_s", "file", "meter")]
    at = at[np.lexsort(keys)]
    group, place = _group_rows(np.stack([spooled[name][at] for name in ("meter", "file", "start_s")], axis=1))
    is_pair = np.bincount(group)[group] == 2
    is_later = place.astype(np.bool_) ^ newest_first[at]
    result = spooled.copy()
    result["start_s"][at] += np.where(is_later, result["later_s"][at], 0)
    refused = np.zeros(len(spooled), np.bool_)
    refused[at[~is_pair]] = True
    if refused.any():
        refuse(OCCURS_TWICE, spooled[refused])
    return np.asarray(result[~refused])


def _runs_backwards(spooled: SpooledReadings) -> BoolArray:
    """Whether the readings of a reading's meter and file stand in the file from new to old."""
    order = np.lexsort((spooled["line"], spooled["file"], spooled["meter"]))
    group, place = _group_rows(np.stack([spooled[name][order] for name in ("meter", "file")], axis=1))
    first = np.flatnonzero(place == 0)
    last = np.append(first[1:], len(order)) - 1
    start = spooled["start_s"][order]
    backwards = np.zeros(len(spooled), np.bool_)
    backwards[order] = (start[last] < start[first])[group]
    return backwards


def _group_rows(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The number of the group of equal neighbours of each row, and its place in the group."""
    is_first = np.append(True, (np.diff(keys, axis=0) != 0).any(axis=1))[: len(keys)]
    group = np.cumsum(is_first) - 1
    return group, np.arange(len(keys)) - np.flatnonzero(is_first)[group]


def _drop_contradictions(ordered: SpooledReadings, refuse: Refuse) -> tuple[SpooledReadings, int]:
    """Keep the same reading once, and count how many are left out. Refuse all of an interval with different ones."""
    if not len(ordered):
        return ordered, 0
    group, place = _group_rows(np.stack([ordered[name] for name in ("meter", "start_s", "length_s")], axis=1))
    first = np.flatnonzero(place == 0)
    differs = ordered["energy_wh"] != ordered["energy_wh"][first][group]
    contradicted = (np.bincount(group, weights=differs) > 0)[group]
    if contradicted.any():
        refuse(TWO_VALUES, ordered[contradicted])
    return np.asarray(ordered[(place == 0) & ~contradicted]), int(((place > 0) & ~contradicted).sum())


def _change_length(rows: SpooledReadings, length_s: int, interval_s: int, refuse: Refuse) -> MeterReadings:
    off = rows["start_s"] % min(length_s, interval_s) != 0
    if off.any():
        refuse(OFF_GRID, rows[off])
        rows = rows[~off]
    readings = MeterReadings(rows["meter"], rows["start_s"], rows["energy_wh"])
    if length_s >= interval_s:
        return split_readings(readings, length_s // interval_s, interval_s)
    found, is_left = sum_readings(readings, interval_s // length_s, interval_s)
    if is_left.any():
        refuse(INCOMPLETE, rows[is_left])
    return found


def _join_lengths(parts: list[MeterReadings]) -> MeterReadings:
    """Readings of all lengths in one order. Of an interval that several files have, the finest counts."""
    if not parts:
        empty = np.empty(0, np.int64)
        return MeterReadings(empty, empty, empty)
    joined = MeterReadings(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    if len(parts) == 1:
        return joined
    joined = joined.choose(np.lexsort((joined.start_s, joined.meter)))  # stable: the finest length comes first
    _, place = _group_rows(np.stack([joined.meter, joined.start_s], axis=1))
    return joined.choose(place == 0)
