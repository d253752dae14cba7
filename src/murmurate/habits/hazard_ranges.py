"""Ranges for the chance to arrive or to leave at a step, from counts with noise. Proof: `learned_habits.md`.

Two errors are allowed for. The noise of each count lies within a margin. Given the counts, the chance lies in a range
that is valid for any number of steps, because that number depends on the changes themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from murmurate.errors import PrivacyError
from murmurate.habits.private_counts import PrivateCounts, StepCount, noise_margin
from murmurate.units import FloatArray

_BISECTIONS = 80
_DIRECTIONS = ((StepCount.ARRIVED, StepCount.AWAY), (StepCount.LEFT, StepCount.HOME))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HazardRanges:
    """The chance of a change at a single step, as ranges that all hold together with probability `confidence`."""

    low: FloatArray  # [arrive and leave, type of day, period]
    estimate: FloatArray  # likewise
    high: FloatArray  # likewise
    confidence: float


def estimate_hazards(released: PrivateCounts, confidence: float) -> HazardRanges:
    """Return the range of each chance. Half of the allowed error is for the noise, half for the sample.

    Raises PrivacyError for a confidence outside 0 to 1.
    """
    if not 0 < confidence < 1:
        raise PrivacyError("confidence", confidence, "must lie between 0 and 1, for example 0.99")
    error = (1 - confidence) / 2
    margin = count_margins(released.scale, confidence)
    cells = released.cells
    most = released.households * cells.days[:, None] * cells.intervals  # [type of day, period] steps of all households
    shape = (len(_DIRECTIONS), cells.day_types, cells.periods)
    low, estimate, high = np.empty(shape), np.empty(shape), np.empty(shape)
    for at, (changed, begun) in enumerate(_DIRECTIONS):
        other = StepCount.HOME if begun is StepCount.AWAY else StepCount.AWAY
        fewest_other = np.clip(released.counts[other] - margin[other], 0, most)
        trials = _clipped_range(released, margin, begun, most - fewest_other)
        changes = _clipped_range(released, margin, changed, trials[1])
        each = error / low.size
        low[at] = bernoulli_range(changes[0], trials[1], each)[0]
        high[at] = bernoulli_range(changes[1], np.maximum(trials[0], changes[1]), each)[1]
        rate = released.counts[changed] / np.maximum(released.counts[begun], 1)
        estimate[at] = np.clip(rate, low[at], high[at])
    return HazardRanges(low=low, estimate=estimate, high=high, confidence=confidence)


def count_margins(scale: FloatArray, confidence: float) -> FloatArray:
    """Return the margin of each count; with all but half of the allowed error, no noise exceeds its margin."""
    each = (1 - confidence) / 2 / scale.size
    return np.array([noise_margin(float(b), each) for b in scale.ravel()], np.float64).reshape(scale.shape)


def _clipped_range(
    released: PrivateCounts, margin: FloatArray, count: StepCount, most: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value that a count may have had without its noise."""
    noisy = released.counts[count]
    least, largest = (np.clip(noisy + sign * margin[count], 0, most) for sign in (-1, 1))
    return least, largest


def bernoulli_range(successes: FloatArray, trials: FloatArray, error: float) -> tuple[FloatArray, FloatArray]:
    """Return a range for the chance of success that holds with probability 1 - `error`, wherever the trials stopped.

    A chance h is left out if the mixture of all chances, weighed by Jeffreys' prior, explains the data 1/error times
    better than h (Robbins 1970; Ville's inequality). Ends are rounded outward.

    >>> low, high = bernoulli_range(np.array([20.0]), np.array([100.0]), 0.01)
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.08], [0.374])
    """
    n, failures = np.asarray(successes, np.float64), np.asarray(trials - successes, np.float64)
    mixture = betaln(n + 0.5, failures + 0.5) - betaln(0.5, 0.5) + np.log(error)
    centre = n / np.maximum(n + failures, 1)

    def left_out(chance: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore", invalid="ignore"):
            explained = np.where(n > 0, n * np.log(chance), 0) + np.where(failures > 0, failures * np.log1p(-chance), 0)
        return np.asarray(mixture >= explained)

    ends = []
    for extreme in (0.0, 1.0):
        outer, inner = np.full_like(centre, extreme), centre
        for _ in range(_BISECTIONS):
            middle = (outer + inner) / 2
            out = left_out(middle)
            outer, inner = np.where(out, middle, outer), np.where(out, inner, middle)
        ends.append(outer)
    return ends[0], ends[1]
