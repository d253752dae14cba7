"""How much noise a promise takes: from what a household may do to the scale of the noise that hides it.

Four calibrations, from the one that assumes nothing to the one that assumes most (THEORY, section 3). Proofs:
`calibration.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.privacy.divergence import Secret, laplace_smooth
from murmurate.privacy.noise import LEAST_SCALE_WH
from murmurate.quantities import FloatArray, IntArray, double_at_least, double_at_most, fraction, integers

LEAST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**6), 100
_SAFETY = 1e-9  # relative; the loss is computed to about 1e-12


class Calibration(Enum):
    """What the noise is measured by. Only RANGE covers households that answer to prices."""

    RANGE = "range"  # u_i: any law, any memory, even against someone who knows the reading (the paper's)
    SHIFT = "shift"  # the distance of the two laws at equal rank; ranks may remember, but not occupancy
    ROBUST = "robust"  # the likelihood ratio over all laws near the two; no memory, no answer to prices
    EXACT = "exact"  # the likelihood ratio of the two laws; no memory, no answer to prices

    @property
    def needs_independence(self) -> bool:
        """Whether it stands on declared laws of consumption and on readings that are independent given occupancy."""
        return self in {Calibration.ROBUST, Calibration.EXACT}


class LossRange(NamedTuple):
    """log Pr[output | home] / Pr[output | away] lies between -minus and plus."""

    minus: float
    plus: float

    @property
    def worst(self) -> float:
        return max(self)


def laplace_loss(secret: Secret, scale_wh: float, eta: float = 0.0) -> LossRange:
    """The exact range of the log likelihood ratio under discrete Laplace noise, over eta-contaminated laws.

    sup over y in 0..u of log [((1-eta)(f_s*k)(y) + eta) / ((1-eta)(f_r*k)(y) + eta e^(-max(y, u-y)/b))]; outside 0..u
    the ratio is that of the nearer end. eta = 0 is `exact`; eta = 1 gives u/b, which is `range`.

    >>> round(laplace_loss(Secret.anything_up_to(1000), 2000.0).worst, 9)
    0.5
    """
    wh = np.arange(secret.bound_wh + 1)
    least = np.exp(-np.maximum(wh, secret.bound_wh - wh) / scale_wh)
    away, home = ((1 - eta) * laplace_smooth(law, scale_wh) for law in (secret.away, secret.home))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        plus = np.log((home + eta) / (away + eta * least))
        minus = np.log((away + eta) / (home + eta * least))
    worst = [np.where(np.isnan(loss), np.inf, loss).max() for loss in (minus, plus)]  # 0/0: too little noise to compute
    return LossRange(minus=max(float(worst[0]), 0.0), plus=max(float(worst[1]), 0.0))


def laplace_scale(sensitivity_wh: int, epsilon: Fraction) -> float:
    """The smallest double b [Wh] with sensitivity/b <= epsilon, exactly and in OpenDP's own check.

    The check compares against epsilon as a double; taking that double from below keeps the exact promise as well. A
    sensitivity of zero (the paper's empty kappa) gives scale zero, which only a rehearsal accepts.

    >>> laplace_scale(1000, Fraction(1, 2))
    2000.0
    """
    budget = fraction(epsilon, "epsilon", PrivacyError)
    if not LEAST_EPSILON <= budget <= LARGEST_EPSILON:
        raise PrivacyError("epsilon", epsilon, f"must lie between {float(LEAST_EPSILON):g} and {LARGEST_EPSILON}")
    whole = int(integers(sensitivity_wh, "sensitivity_wh", PrivacyError))
    if whole < 0:
        raise PrivacyError("sensitivity_wh", sensitivity_wh, "must be at least 0 Wh")
    return double_at_least(whole / Fraction(double_at_most(budget)))


def laplace_scales(sensitivity_wh: IntArray, epsilon: Fraction) -> FloatArray:
    """`laplace_scale` for each interval."""
    whole = integers(sensitivity_wh, "sensitivity_wh", PrivacyError)
    distinct, where = np.unique(whole, return_inverse=True)
    scales = np.array([laplace_scale(int(wh), epsilon) for wh in distinct])
    return scales[where.reshape(whole.shape)]


def calibrate(secret: Secret, epsilon: Fraction, calibration: Calibration, eta: float = 0.0) -> float:
    """The least scale b [Wh] of discrete Laplace noise that hides `secret` within e^epsilon, rounded up; 1 Wh or more.

    >>> laws = Secret.of([1 / 501] * 501 + [0] * 500, [1 / 1001] * 1001)  # U(0, u/2) and U(0, u) for u = 1000
    >>> kinds = (Calibration.RANGE, Calibration.SHIFT, Calibration.EXACT)
    >>> [round(calibrate(laws, Fraction(1, 2), kind)) for kind in kinds]
    [2000, 1000, 601]
    """
    if calibration is Calibration.RANGE:
        return max(laplace_scale(secret.bound_wh, epsilon), LEAST_SCALE_WH)
    if calibration is Calibration.SHIFT:
        return max(laplace_scale(secret.shift_wh(), epsilon), LEAST_SCALE_WH)
    if calibration is Calibration.ROBUST and not 0 < eta < 1:
        raise PrivacyError("eta", eta, "must lie between 0 (exact) and 1 (range), for example 0.05")
    share = eta if calibration is Calibration.ROBUST else 0.0
    ceiling = laplace_scale(secret.bound_wh, epsilon)
    target = double_at_most(epsilon) * (1 - _SAFETY)
    return least_scale(lambda scale: laplace_loss(secret, scale, share).worst <= target, ceiling)


def least_scale(keeps: Callable[[float], bool], ceiling: float, digits: float = 1e-9) -> float:
    """The least scale [Wh] that keeps a promise which more noise only helps: to `digits`, from above.

    `ceiling` must keep it; the result is then at most that.
    """
    high = max(ceiling, LEAST_SCALE_WH)
    low = max(high / 2, LEAST_SCALE_WH)
    while low < high and keeps(low):
        low, high = max(low / 2, LEAST_SCALE_WH), low
    while high - low > digits * high:
        middle = (low + high) / 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def naive_sensitivity(largest_bound_wh: int, horizon: int) -> IntArray:
    """The paper's naive rule: every house, the global u_max, each interval on its own (section IV-B)."""
    return np.full(horizon, largest_bound_wh, np.int64)


def group_sensitivity(largest_bound_wh: int, horizon: int) -> IntArray:
    """Group privacy over the horizon: one epsilon for the whole trajectory, so each interval bears T u_max.

    This is what the paper says its naive rule is; the naive rule lacks the factor T.
    """
    return np.full(horizon, horizon * largest_bound_wh, np.int64)
