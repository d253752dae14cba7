"""Calibrate noise: the scale that hides every reading of a household within its range. Proofs: `calibration.md`."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.noise import MIN_SCALE_WH
from murmurate.units import (
    FloatArray,
    IntArray,
    as_int64_array,
    parse_fraction,
    round_down_to_double,
    round_up_to_double,
)

MIN_EPSILON, MAX_EPSILON = Fraction(1, 10**6), 100


def laplace_scale(sensitivity_wh: int, epsilon: Fraction) -> float:
    """Return the smallest double b [Wh] with sensitivity/b <= epsilon, exactly and in OpenDP's check.

    The check compares with epsilon as a double. Rounding it down keeps the exact promise as well. A sensitivity of zero
    (the paper's empty kappa) gives scale zero, which only `SeededNoise` accepts.

    >>> laplace_scale(1000, Fraction(1, 2))
    2000.0
    """
    budget = parse_fraction(epsilon, "epsilon", PrivacyError)
    if not MIN_EPSILON <= budget <= MAX_EPSILON:
        raise PrivacyError("epsilon", epsilon, f"must lie between {float(MIN_EPSILON):g} and {MAX_EPSILON}")
    whole = int(as_int64_array(sensitivity_wh, "sensitivity_wh", PrivacyError))
    if whole < 0:
        raise PrivacyError("sensitivity_wh", sensitivity_wh, "must be at least 0 Wh")
    return round_up_to_double(whole / Fraction(round_down_to_double(budget)))


def laplace_scales(sensitivity_wh: Any, epsilon: Fraction) -> FloatArray:
    """Return the least scale of Laplace noise for each sensitivity.

    It is the smallest double b with sensitivity/b <= epsilon, exactly and in OpenDP's own check. A sensitivity of zero
    (the paper's empty kappa) gives scale zero, which only `SeededNoise` accepts.

    Args:
        sensitivity_wh: How much one household may change the demand, whole numbers of 0 or more, any shape [Wh].
        epsilon: Privacy budget of one interval, from 1e-6 to 100; a fraction or a text such as "0.5".

    Returns:
        Scales, in the shape of `sensitivity_wh` [Wh].

    Raises:
        PrivacyError: `epsilon` is out of range or not a number, or a sensitivity is negative or not whole.

    Example:
        >>> import murmurate as mm
        >>> from fractions import Fraction
        >>> mm.laplace_scales([3000, 50_000], Fraction(1, 2)).tolist()
        [6000.0, 100000.0]
    """
    whole = as_int64_array(sensitivity_wh, "sensitivity_wh", PrivacyError)
    distinct, position = np.unique(whole, return_inverse=True)
    scales = np.array([laplace_scale(int(wh), epsilon) for wh in distinct])
    return scales[position.reshape(whole.shape)]


def min_scale(is_sufficient: Callable[[float], bool], max_scale: float, tolerance: float = 1e-9) -> float:
    """Return the least sufficient scale [Wh], rounded up by a relative `tolerance`. More noise never hurts.

    `max_scale` must be sufficient. The result is at most `max_scale`.
    """
    high = max(max_scale, MIN_SCALE_WH)
    low = max(high / 2, MIN_SCALE_WH)
    while low < high and is_sufficient(low):
        low, high = max(low / 2, MIN_SCALE_WH), low
    return bisect_range(is_sufficient, low, high, tolerance)[1]


def bisect_range(is_high: Callable[[float], bool], low: float, high: float, tolerance: float) -> tuple[float, float]:
    """Return a range within [low, high] at whose lower end `is_high` is false and at whose upper end it is true.

    It is narrower than the relative `tolerance`. `is_high` must be monotone, false at `low` and true at `high`.
    """
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_high(middle) else (middle, high)
    return low, high


def gaussian_rho(epsilon: Fraction, delta: float) -> float:
    """Return a rho such that discrete Gaussian noise with distance^2/(2 sigma^2) <= rho keeps (epsilon, delta).

    The distance is that of two vectors of whole numbers, each entry of which gets noise of the same sigma. It is the
    largest rho, but for rounding, that Corollary 13 of Canonne, Kamath and Steinke (2020) allows: `calibration.md`.

    >>> round(gaussian_rho(Fraction(1), 1e-6), 5)
    0.02436
    """
    if not 0 < epsilon < 10**9 or not 1e-12 <= delta < 1:
        raise PrivacyError("epsilon", epsilon, "must be positive, for example 1, with a delta such as 1e-6")
    return bisect_range(lambda rho: _log_delta(rho, float(epsilon)) > math.log(delta), 0.0, float(epsilon), 1e-9)[0]


def _log_delta(rho: float, epsilon: float) -> float:
    """Return a bound of log(delta) for noise of this rho, rounded upwards. Any order alpha > 1 gives one."""
    low, high = 1.0, (epsilon + 1) / (2 * rho) + 2
    for _ in range(60):  # to the best order; it is where the slope of the bound is zero
        alpha = (low + high) / 2
        low, high = (alpha, high) if (2 * alpha - 1) * rho - epsilon + math.log1p(-1 / alpha) < 0 else (low, alpha)
    loss = (high - 1) * (high * rho - epsilon)
    return loss + high * math.log1p(-1 / high) - math.log(high - 1) + 1e-9 * (1 + abs(loss))


def naive_sensitivity(max_range_wh: int, horizon: int) -> IntArray:
    """Return the sensitivity of the paper's naive rule: the largest range in every interval (section IV-B)."""
    return np.full(horizon, max_range_wh, np.int64)


def group_sensitivity(max_range_wh: int, horizon: int) -> IntArray:
    """Return the sensitivity T u_max of group privacy: one epsilon for the whole trajectory of T intervals.

    The paper describes its naive rule like this, but the naive rule lacks the factor T.
    """
    return np.full(horizon, horizon * max_range_wh, np.int64)
