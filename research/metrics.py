"""The error of published prices against optimal prices, with confidence intervals."""

from __future__ import annotations

import numpy as np

from murmurate.lab.audit.attack import Estimate
from murmurate.units import BoolArray, FloatArray, IntArray

_TWO_SIDED_95 = 1.959964


def rms_relative_error(published: IntArray, optimal: IntArray) -> float:
    """Return sqrt(mean(((r-hat - r)/r)^2)): the usual RMS of relative errors, which does not depend on the horizon.

    >>> rms_relative_error(np.array([101, 198]), np.array([100, 200]))
    0.01
    """
    return float(np.sqrt(np.mean(((published - optimal) / optimal) ** 2)))


def paper_rmsre(published: IntArray, optimal: IntArray) -> float:
    """Return (1/T) sqrt(sum(((r-hat - r)/r)^2)): the paper's RMSRE, the usual one divided by sqrt(T).

    >>> paper_rmsre(np.array([101, 198, 101, 198]), np.array([100, 200, 100, 200]))
    0.005
    """
    return rms_relative_error(published, optimal) / float(np.sqrt(len(optimal)))


def estimate_mean(values: FloatArray) -> Estimate:
    """Return the mean and its normal 95 % interval. The interval of a single value is infinite.

    >>> estimate_mean(np.array([1.0, 1.0]))
    Estimate(mean=1.0, low=1.0, high=1.0)
    """
    mean = float(values.mean())
    spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
    return Estimate(mean, mean - _TWO_SIDED_95 * spread, mean + _TWO_SIDED_95 * spread)


def estimate_gain(ours: FloatArray, theirs: FloatArray) -> Estimate:
    """Return the fraction by which `ours` lies below `theirs`, from paired runs (common random numbers) [fraction]."""
    return estimate_mean((theirs - ours) / theirs.mean())


def estimate_proportion(successes: BoolArray) -> Estimate:
    """Return a proportion and its 95 % Wilson interval.

    >>> [round(x, 3) for x in estimate_proportion(np.array([True] * 5 + [False] * 5))]
    [0.5, 0.237, 0.763]
    """
    n, p = len(successes), float(successes.mean())
    z2 = _TWO_SIDED_95**2 / n
    centre, half = p + z2 / 2, float(np.sqrt(z2 * (p * (1 - p) + z2 / 4)))
    return Estimate(p, (centre - half) / (1 + z2), (centre + half) / (1 + z2))
