"""Change the length of intervals without changing a sum: split in whole Wh, or add up complete intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.units import BoolArray, IntArray


class MeterReadings(NamedTuple):
    """Readings in columns."""

    meter: IntArray
    start_s: IntArray
    energy_wh: IntArray

    def choose(self, chosen: IntArray | BoolArray) -> MeterReadings:
        return MeterReadings(self.meter[chosen], self.start_s[chosen], self.energy_wh[chosen])


def split_readings(readings: MeterReadings, parts: int, interval_s: int) -> MeterReadings:
    """Return each reading as `parts` intervals of `interval_s`: equal to 1 Wh, and with the same sum.

    Part i of x Wh is floor((i + 1) x / parts) - floor(i x / parts).

    >>> split_readings(MeterReadings(np.array([7]), np.array([1800]), np.array([251])), 2, 900).energy_wh.tolist()
    [125, 126]
    """
    edges = readings.energy_wh[:, None] * np.arange(parts + 1) // parts
    starts = readings.start_s[:, None] + np.arange(parts) * interval_s
    return MeterReadings(np.repeat(readings.meter, parts), starts.ravel(), np.diff(edges, axis=1).ravel())


def sum_readings(readings: MeterReadings, parts: int, interval_s: int) -> tuple[MeterReadings, BoolArray]:
    """Return the sums of intervals of which all `parts` are there, and which readings are in no such interval.

    Readings are in the order of meter and start, and each is there once.
    """
    if not len(readings.meter):
        return readings, np.zeros(0, np.bool_)
    interval = readings.start_s // interval_s
    is_first = np.append(True, (np.diff(readings.meter) != 0) | (np.diff(interval) != 0))
    first = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    complete = np.bincount(group) == parts
    sums = np.add.reduceat(readings.energy_wh, first)
    found = MeterReadings(readings.meter[first], interval[first] * interval_s, sums).choose(complete)
    return found, ~complete[group]
