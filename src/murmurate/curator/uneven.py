"""Noise that differs by the time of day: the same moment promise with a smaller mean square, where asked for by name.

A moment at noon is hidden partly by the noise of the morning, more at some hours than at others. The shape of the day
is searched; nothing rests on the search, since every plan is proven from its scales alone.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.privacy.leakage import Loss, periodic_leakage
from murmurate.privacy.leakage_over_time import shifted
from murmurate.quantities import FloatArray

_GROUPS = 24  # stretches of the day with noise of their own, at most
_ROUNDS = 60


def uneven_shape(zone: Zone, kind: HouseholdKind, target: float, epsilon: float) -> FloatArray:
    """Factors on even noise [interval of the day] under which no moment leaks more than `target`, about.

    Minimises the mean square over stretches of the day, subject to the leakage of every moment of the day, from the
    even noise at which an interval costs `epsilon`.
    """
    day = zone.intervals_per_day
    groups = min(_GROUPS, day)
    group = np.arange(day) * groups // day
    clocks = [shifted(model, shift) for model in kind.models for shift in zone.slot_shifts]

    def leakage(change: FloatArray) -> FloatArray:
        loss = Loss.symmetric(epsilon * np.exp(change[group]))
        return np.asarray(np.max([periodic_leakage(habits, loss)[:, 0] for habits in clocks], axis=0))

    found = minimize(
        lambda change: float(np.mean(np.exp(-2 * change))),
        np.zeros(groups),
        constraints=[{"type": "ineq", "fun": lambda change: target - leakage(change)}],
        method="SLSQP",
        options={"maxiter": _ROUNDS, "ftol": 1e-6},
    )
    shape: FloatArray = np.exp(-np.asarray(found.x, np.float64)[group])
    return shape if np.isfinite(shape).all() and float(np.mean(shape**2)) < 1 else np.ones(day)
