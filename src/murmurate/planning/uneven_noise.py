"""Noise that differs by the time of day. It keeps the same moment promise with a smaller mean square.

The zone file enables it with `budget = "uneven"`. The noise of nearby intervals also protects a moment, and this effect
differs between hours. A numerical search finds the scales. No proof relies on it: a plan is proven from its scales.
"""

from __future__ import annotations

import numpy as np

from murmurate.extras import require_extra
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.leakage import ReleaseLoss, periodic_leakage
from murmurate.privacy.leakage_over_time import shift_calendar
from murmurate.units import FloatArray

_MAX_GROUPS = 24  # parts of the day with a separate scale
_MAX_ITERATIONS = 60


def uneven_noise_factors(zone: Zone, kind: HouseholdKind, target: float, epsilon: float) -> FloatArray:
    """Return factors on even noise [interval of the day] under which no moment leaks much more than `target`.

    The function minimises the mean square of the noise, subject to a limit on the leakage of every moment of the day.
    It starts from the even noise at which an interval costs `epsilon`.
    """
    require_extra("plan", "scipy")
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import, and few plans are uneven

    day = zone.intervals_per_day
    groups = min(_MAX_GROUPS, day)
    group = np.arange(day) * groups // day
    shifted_models = [shift_calendar(model, shift) for model in kind.models for shift in zone.slot_shifts]

    def leakage(change: FloatArray) -> FloatArray:
        loss = ReleaseLoss.symmetric(epsilon * np.exp(change[group]))
        return np.asarray(np.max([periodic_leakage(model, loss)[:, 0] for model in shifted_models], axis=0))

    result = minimize(
        lambda change: float(np.mean(np.exp(-2 * change))),
        np.zeros(groups),
        constraints=[{"type": "ineq", "fun": lambda change: target - leakage(change)}],
        method="SLSQP",
        options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-6},
    )
    shape: FloatArray = np.exp(-np.asarray(result.x, np.float64)[group])
    return shape if np.isfinite(shape).all() and float(np.mean(shape**2)) < 1 else np.ones(day)
