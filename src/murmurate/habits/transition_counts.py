"""Count how often households of a sample arrive and leave, by type of day and period of the day.

A step leads from one interval to the next. It belongs to the day and the period of the interval that it leads to. On
each day a household is counted until it has changed its state `max_changes` times; later steps of that day are not
counted. So one household has a bounded influence, and the counts stay unbiased: whether a step is counted is decided
before the step is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from murmurate.errors import ModelError
from murmurate.units import BoolArray, IntArray, as_int64_array

DAY_TYPE_NAMES = ("workday", "saturday", "sunday")


def name_estimates(name: str, day_types: int = len(DAY_TYPE_NAMES)) -> list[str]:
    """Return the names of the estimates that are learned under a name, one for each type of day.

    >>> name_estimates("home")
    ['home', 'home_saturday', 'home_sunday']
    """
    return [name, *(f"{name}_{day_type}" for day_type in DAY_TYPE_NAMES[1:day_types])]


class StepCount(IntEnum):
    """What is counted: steps that begin away or at home, and steps that change the state."""

    AWAY = 0
    HOME = 1
    ARRIVED = 2
    LEFT = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HabitCells:
    """The cells of the counts: types of day times periods of the day. Both count from 0, and each is used.

    >>> cells = HabitCells(period=[0, 0, 0, 1], day_type=[0, 0, 1])
    >>> cells.periods, cells.day_types, cells.intervals.tolist(), cells.days.tolist()
    (2, 2, [3, 1], [2, 1])
    """

    period: IntArray  # [interval of the day]
    day_type: IntArray  # [day of the sample]

    def __post_init__(self) -> None:
        for name in ("period", "day_type"):
            values = as_int64_array(getattr(self, name), name, ModelError)
            if sorted(set(values.tolist())) != list(range(len(set(values.tolist())))) or not len(values):
                raise ModelError(name, sorted(set(values.tolist())), "must use each number from 0 on")
            object.__setattr__(self, name, values)

    @property
    def periods(self) -> int:
        """Number of periods of the day."""
        return int(self.period.max()) + 1

    @property
    def day_types(self) -> int:
        """Number of types of day."""
        return int(self.day_type.max()) + 1

    @property
    def intervals(self) -> IntArray:
        """Number of intervals of each period [period]."""
        return np.bincount(self.period)

    @property
    def starts(self) -> IntArray:
        """First interval of each period, which may last past midnight [period]."""
        begins = self.period != np.roll(self.period, 1)
        return np.array([int(np.argmax(begins & (self.period == p))) for p in range(self.periods)], np.int64)

    @property
    def days(self) -> IntArray:
        """Number of days of each type [type of day]."""
        return np.bincount(self.day_type)


def count_steps(occupied: BoolArray, cells: HabitCells, max_changes: int) -> IntArray:
    """Return the counts of each household [household, count, type of day, period].

    `occupied` is [interval, household]. The sample begins at midnight and has whole days; otherwise ModelError.

    >>> cells = HabitCells(period=[0, 0, 0, 1], day_type=[0])
    >>> count_steps(np.array([[True], [False], [False], [True]]), cells, max_changes=9)[0, :, 0].tolist()
    [[1, 1], [1, 0], [0, 1], [1, 0]]
    """
    day = len(cells.period)
    if occupied.shape[0] != day * len(cells.day_type):
        raise ModelError("sample", f"{occupied.shape[0]} intervals", f"must be {len(cells.day_type)} days of {day}")
    home_before = np.roll(occupied, 1, axis=0)
    changed = occupied != home_before
    changed[0] = False  # the first interval has no step that leads to it
    by_day = changed.reshape(len(cells.day_type), day, -1)
    counted = (np.cumsum(by_day, axis=1) - by_day < max_changes).reshape(occupied.shape)
    counted[0] = False
    cell = (cells.day_type[:, None] * cells.periods + cells.period).ravel()
    counts = np.zeros((len(StepCount), cells.day_types * cells.periods, occupied.shape[1]), np.int64)
    for kind, steps in (
        (StepCount.AWAY, ~home_before),
        (StepCount.HOME, home_before),
        (StepCount.ARRIVED, changed & occupied),
        (StepCount.LEFT, changed & home_before),
    ):
        np.add.at(counts[kind], cell, steps & counted)
    return np.moveaxis(counts.reshape(len(StepCount), cells.day_types, cells.periods, -1), -1, 0)
