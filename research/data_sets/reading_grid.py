"""Put readings of a file on a grid of intervals, and round kWh to whole Wh.

- kWh are rounded to the nearest Wh, half a Wh upwards, each reading by itself: a sum is off by half a Wh a reading.
- The same reading twice counts once. Two different readings of one interval are an error: neither is preferred.
- An interval without a reading, or with one that the file calls missing, is missing; it is not filled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.errors import ReadingError
from murmurate.readings.cell_values import parse_energy
from murmurate.units import WH_PER_KWH, BoolArray, FloatArray, IntArray

_FLOAT_DIGITS = 6  # of a Wh, beyond which a binary fraction differs from the decimal one that was written


class GridReadings(NamedTuple):
    """Readings of all households between the first and the last interval of any."""

    households: tuple[str, ...]
    start_s: int
    energy_wh: IntArray  # [interval, household]
    missing: BoolArray  # [interval, household]


class ReadingGrid:
    """Collects readings, one by one, in any order."""

    def __init__(self, interval_s: int) -> None:
        self._interval_s = interval_s
        self._readings: dict[str, dict[int, int]] = {}

    def add_reading(self, household: str, start_s: int, energy_wh: int | None, place: str) -> None:
        """Add the reading of the interval that begins at `start_s` [s of UTC]. None: the file says it is missing.

        `place` is the file and row, for errors. Raises ReadingError for a second, different reading.
        """
        of_household = self._readings.setdefault(household, {})
        if energy_wh is None:
            return
        number = start_s // self._interval_s
        if of_household.setdefault(number, energy_wh) != energy_wh:
            allowed = "must equal the first reading of the same interval; delete one of the two rows"
            raise ReadingError(place, "a second, different reading", allowed)

    @property
    def is_empty(self) -> bool:
        return not any(self._readings.values())

    def to_readings(self, source: str) -> GridReadings:
        """Return what was added. Raises ReadingError if there is no reading."""
        households = tuple(sorted(self._readings))
        numbers = [number for readings in self._readings.values() for number in readings]
        if not numbers:
            raise ReadingError(source, "without a reading", "must have one of the chosen households")
        first, last = min(numbers), max(numbers)
        energy_wh = np.zeros((last - first + 1, len(households)), np.int64)
        missing = np.ones(energy_wh.shape, np.bool_)
        for column, household in enumerate(households):
            at = np.fromiter(self._readings[household], np.int64) - first
            energy_wh[at, column] = list(self._readings[household].values())
            missing[at, column] = False
        return GridReadings(households, first * self._interval_s, energy_wh, missing)


def parse_kwh(text: str, place: str) -> int:
    """Return a reading in kWh as whole Wh. Raises ReadingError for anything but a number of 0 or more.

    >>> parse_kwh(" 0.1405 ", "row 2"), parse_kwh("0", "row 3")
    (141, 0)
    """
    return parse_energy(text, WH_PER_KWH, place)


def round_kwh(kwh: FloatArray) -> IntArray:
    """Return many readings in kWh as whole Wh, by the rule of `parse_kwh`.

    >>> round_kwh(np.array([0.1405, 0.0004999, 2.0])).tolist()
    [141, 0, 2000]
    """
    return np.floor(np.round(kwh * WH_PER_KWH, _FLOAT_DIGITS) + 0.5).astype(np.int64)
