"""Publish the counts of a sample with exact noise, so that each household is protected by a pure epsilon.

A household has one vote: its counts, each divided by its unit, sum to 1 at most. Replacing a household changes the
counts by 2 units in total at most, so discrete Laplace noise of scale 2 unit / epsilon in each count keeps epsilon.
Proof: `learned_habits.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.habits.transition_counts import HabitCells, StepCount
from murmurate.privacy.noise import MAX_SCALE_WH, MIN_SCALE_WH, NoiseDistribution, NoiseSampler
from murmurate.units import FloatArray, IntArray, round_up_to_double

REPLACEMENT_DISTANCE = 2  # two votes of weight 1 differ by at most this
CHANGES_SHARE = Fraction(3, 5)  # share of a vote for arrivals and departures; the rest is for the steps between them


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
