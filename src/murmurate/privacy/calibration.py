"""How much noise a promise takes: from the sensitivity of an interval to the scale of its noise.

`range` calibration, the paper's: b = sensitivity / epsilon, valid for every consumption law on [0, u_i] and any
correlation in time, even against someone who knows everything but one household. Proof: `calibration.md`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.quantities import FloatArray, IntArray, double_at_least, double_at_most


def laplace_scale(sensitivity_wh: int, epsilon: Fraction) -> float:
    """The smallest double b [Wh] with sensitivity/b <= epsilon, exactly and in OpenDP's own check.

    The check compares against epsilon as a double; taking that double from below keeps the exact promise as well. A
    sensitivity of zero (the paper's empty kappa) gives scale zero, which only a rehearsal accepts.

    >>> laplace_scale(1000, Fraction(1, 2))
    2000.0
    """
    if epsilon <= 0:
        raise PrivacyError("epsilon", epsilon, "must be positive")
    if sensitivity_wh < 0:
        raise PrivacyError("sensitivity_wh", sensitivity_wh, "must be at least 0 Wh")
    return double_at_least(int(sensitivity_wh) / Fraction(double_at_most(epsilon)))


def laplace_scales(sensitivity_wh: IntArray, epsilon: Fraction) -> FloatArray:
    """`laplace_scale` for each interval."""
    distinct, where = np.unique(sensitivity_wh, return_inverse=True)
    scales = np.array([laplace_scale(int(wh), epsilon) for wh in distinct])
    return scales[where.reshape(sensitivity_wh.shape)]


def naive_sensitivity(largest_bound_wh: int, horizon: int) -> IntArray:
    """The paper's naive rule: every house, the global u_max, each interval on its own (section IV-B)."""
    return np.full(horizon, largest_bound_wh, np.int64)


def group_sensitivity(largest_bound_wh: int, horizon: int) -> IntArray:
    """Group privacy over the horizon: one epsilon for the whole trajectory, so each interval bears T u_max.

    This is what the paper says its naive rule is; the naive rule lacks the factor T.
    """
    return np.full(horizon, horizon * largest_bound_wh, np.int64)
