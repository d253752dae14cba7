"""Count how often households of a sample arrive and leave, and publish the counts with a pure epsilon for each.

A step leads from one interval to the next. It belongs to the day and the period of the interval that it leads to. On
each day a household is counted until it has changed its state `max_changes` times; later steps of that day are not
counted. So one household has a bounded influence, and the counts stay unbiased: whether a step is counted is decided
before the step is made.

A household has one vote: its counts, each divided by its unit, sum to 1 at most. Replacing a household changes the
counts by 2 units in total at most, so discrete Laplace noise of scale 2 unit / epsilon in each count keeps epsilon.
Proof: `learned_habits.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.errors import ModelError, PrivacyError
from murmurate.privacy.noise import MAX_SCALE_WH, MIN_SCALE_WH, NoiseDistribution, NoiseSampler
from murmurate.units import BoolArray, FloatArray, IntArray, as_int64_array, round_up_to_double

REPLACEMENT_DISTANCE = 2  # two votes of weight 1 differ by at most this
CHANGES_SHARE = Fraction(3, 5)  # share of a vote for arrivals and departures; the rest is for the steps between them
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateCounts:
    """Counts with noise. Everything in it may be published."""

    counts: IntArray  # [count, type of day, period] with noise, may be negative
    scale: FloatArray  # [count, type of day, period] of the noise
    households: int
    epsilon: Fraction
    cells: HabitCells


def vote_units(cells: HabitCells, max_changes: int) -> Any:
    """Return the unit of each count as a fraction [count, type of day, period].

    With K types of day, P periods of n intervals, D days of a type, and at most M changes a day: K M D/share for
    arrivals and departures, K P D n/(1 - share) for steps.

    >>> units = vote_units(HabitCells(period=[0, 0, 0, 1], day_type=[0, 0]), max_changes=6)
    >>> [[str(unit) for unit in units[count, 0]] for count in (StepCount.HOME, StepCount.LEFT)]
    [['30', '10'], ['20', '20']]
    """
    kinds, periods = cells.day_types, cells.periods
    units = np.empty((len(StepCount), kinds, periods), object)
    for kind, days in enumerate(cells.days.tolist()):
        for period, intervals in enumerate(cells.intervals.tolist()):
            units[:2, kind, period] = kinds * periods * days * intervals / (1 - CHANGES_SHARE)
            units[2:, kind, period] = kinds * max_changes * days / CHANGES_SHARE
    return units


def noise_scales(cells: HabitCells, max_changes: int, epsilon: Fraction) -> FloatArray:
    """Return the scale of the noise of each count [count, type of day, period], rounded up.

    Raises PrivacyError if epsilon is not positive or would need noise beyond 2**40.
    """
    if epsilon <= 0:
        raise PrivacyError("epsilon", epsilon, "must be positive, for example 1")
    units = vote_units(cells, max_changes)
    exact = [max(Fraction(MIN_SCALE_WH), REPLACEMENT_DISTANCE * unit / epsilon) for unit in units.ravel()]
    if max(exact) > MAX_SCALE_WH:
        raise PrivacyError("epsilon", epsilon, "must be larger: the noise would exceed 2**40")
    return np.array([round_up_to_double(scale) for scale in exact]).reshape(units.shape)


def release_counts(
    counts: IntArray, cells: HabitCells, *, max_changes: int, epsilon: Fraction, noise: NoiseSampler
) -> PrivateCounts:
    """Return the sum over households of `counts` [household, count, type of day, period], with noise.

    `counts` come from `count_steps` with the same cells and the same `max_changes`. Each call spends epsilon.
    """
    scale = noise_scales(cells, max_changes, epsilon)
    drawn = noise.draw(NoiseDistribution.LAPLACE, scale)
    return PrivateCounts(
        counts=counts.sum(axis=0) + drawn, scale=scale, households=len(counts), epsilon=epsilon, cells=cells
    )


def noise_margin(scale: float, error: float) -> int:
    """Return the smallest m with Pr[|K| > m] <= `error` for discrete Laplace noise K.

    Pr[|K| > m] = 2 r^(m+1)/(1 + r) with r = e^(-1/b).

    >>> noise_margin(100.0, 0.01), noise_margin(100.0, 0.5)
    (461, 69)
    """
    tail = math.log(2 / ((1 + math.exp(-1 / scale)) * error))
    return max(0, math.ceil(scale * tail) - 1)
