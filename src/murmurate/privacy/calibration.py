"""Calibrate noise: compute the scale that hides a household from its bound or its distributions of consumption.

There are four calibrations. `range` makes no assumption and `exact` makes the strongest one
(docs/explanation/theory.md, section 3). Proofs: `calibration.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import SecretPair, convolve_laplace_kernel
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
_SAFETY_MARGIN = 1e-9  # relative; the loss is computed to about 1e-12


class Calibration(Enum):
    """The quantity that determines the noise. Only RANGE covers households that respond to prices."""

    RANGE = "range"  # the bound u_i: any distribution, any memory, even if the attacker knows the reading (the paper's)
    SHIFT = (
        "shift"  # the distance of the two distributions at equal rank; ranks may depend on the past, not on occupancy
    )
    ROBUST = "robust"  # the likelihood ratio over all distributions near the two; no memory, no response to prices
    EXACT = "exact"  # the likelihood ratio of the two distributions; no memory, no response to prices

    @property
    def needs_independence(self) -> bool:
        """Whether it assumes the declared distributions, and readings that are independent given occupancy."""
        return self in {Calibration.ROBUST, Calibration.EXACT}


class LossRange(NamedTuple):
    """log Pr[output | home] / Pr[output | away] lies between -minus and plus."""

    minus: float
    plus: float

    @property
    def max_loss(self) -> float:
        return max(self)


def laplace_loss_range(secret_pair: SecretPair, scale_wh: float, eta: float = 0.0) -> LossRange:
    """Return the range of the log likelihood ratio under discrete Laplace noise and eta-contaminated distributions.

    sup over y in 0..u of log [((1-eta)(f_s*k)(y) + eta) / ((1-eta)(f_r*k)(y) + eta e^(-max(y, u-y)/b))]; outside 0..u
    the ratio is that of the nearer end. eta = 0 is `exact`; eta = 1 gives u/b, which is `range`.

    >>> round(laplace_loss_range(SecretPair.worst_case(1000), 2000.0).max_loss, 9)
    0.5
    """
    wh = np.arange(secret_pair.bound_wh + 1)
    min_kernel = np.exp(-np.maximum(wh, secret_pair.bound_wh - wh) / scale_wh)
    away, home = ((1 - eta) * convolve_laplace_kernel(pmf, scale_wh) for pmf in (secret_pair.away, secret_pair.home))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plus = np.log((home + eta) / (away + eta * min_kernel))
        minus = np.log((away + eta) / (home + eta * min_kernel))
    worst = [np.where(np.isnan(loss), np.inf, loss).max() for loss in (minus, plus)]  # 0/0: too little noise to compute
    return LossRange(minus=max(float(worst[0]), 0.0), plus=max(float(worst[1]), 0.0))


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


def calibrate_scale(secret_pair: SecretPair, epsilon: Fraction, calibration: Calibration, eta: float = 0.0) -> float:
    """Return the least scale b [Wh] of discrete Laplace noise that hides the pair within e^epsilon, at least 1 Wh.

    The result is rounded up.

    >>> pair = SecretPair.from_pmfs([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) and U(0, u), u = 1000
    >>> kinds = (Calibration.RANGE, Calibration.SHIFT, Calibration.EXACT)
    >>> [round(calibrate_scale(pair, Fraction(1, 2), kind)) for kind in kinds]
    [2000, 1000, 601]
    """
    if calibration is Calibration.RANGE:
        return max(laplace_scale(secret_pair.bound_wh, epsilon), MIN_SCALE_WH)
    if calibration is Calibration.SHIFT:
        return max(laplace_scale(secret_pair.shift_wh(), epsilon), MIN_SCALE_WH)
    if calibration is Calibration.ROBUST and not 0 < eta < 1:
        raise PrivacyError("eta", eta, "must lie between 0 (exact) and 1 (range), for example 0.05")
    share = eta if calibration is Calibration.ROBUST else 0.0
    ceiling = laplace_scale(secret_pair.bound_wh, epsilon)
    target = round_down_to_double(epsilon) * (1 - _SAFETY_MARGIN)
    return min_scale(lambda scale: laplace_loss_range(secret_pair, scale, share).max_loss <= target, ceiling)


def min_scale(is_sufficient: Callable[[float], bool], max_scale: float, tolerance: float = 1e-9) -> float:
    """Return the least sufficient scale [Wh], rounded up by a relative `tolerance`. More noise never hurts.

    `max_scale` must be sufficient. The result is at most `max_scale`.
    """
    high = max(max_scale, MIN_SCALE_WH)
    low = max(high / 2, MIN_SCALE_WH)
    while low < high and is_sufficient(low):
        low, high = max(low / 2, MIN_SCALE_WH), low
    while high - low > tolerance * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_sufficient(middle) else (middle, high)
    return high


def naive_sensitivity(max_bound_wh: int, horizon: int) -> IntArray:
    """Return the sensitivity of the paper's naive rule: the largest bound in every interval (section IV-B)."""
    return np.full(horizon, max_bound_wh, np.int64)


def group_sensitivity(max_bound_wh: int, horizon: int) -> IntArray:
    """Return the sensitivity T u_max of group privacy: one epsilon for the whole trajectory of T intervals.

    The paper describes its naive rule like this, but the naive rule lacks the factor T.
    """
    return np.full(horizon, horizon * max_bound_wh, np.int64)
