"""What a plan claims of an audit's target: the bounds that no attack may pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.audit.bound import auc_bound
from murmurate.audit.events import log_ratio
from murmurate.curator.spending import kind_leakage, losses
from murmurate.lab.audit_law import log_pmf
from murmurate.lab.audit_scene import Scene
from murmurate.privacy.accountant import CurveAccountant, Event
from murmurate.privacy.divergence import GaussianCurve, gaussian_curve
from murmurate.privacy.leakage import Loss
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.quantities import FloatArray

_MOST_SAMPLES = 10**12


class IntervalBound(NamedTuple):
    """The most that one release may tell of the target."""

    t: int  # the interval of the day with the least noise
    epsilon: float
    delta: float


def most_auc(epsilon: float, delta: float) -> float:
    """The largest AUC against (epsilon, delta): the area under y = e^eps x + delta, its mirror image and 1."""
    if not delta:
        return auc_bound(epsilon)
    x = (1 - delta) * (1 - auc_bound(epsilon))  # where the two lines meet, at y = 1 - x
    return x * (delta + 1 - x) / 2 + (1 - delta - x) * (2 - x) / 2 + delta


def interval_losses(scene: Scene) -> FloatArray:
    """The most that each release may tell under pure noise: what its scale keeps, or less if less was promised."""
    plan = scene.plan
    kept = np.maximum(*losses(plan.zone, plan.noise, scene.kind))
    promised = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise)]
    return np.where(scene.kind.public, 0.0, np.minimum(kept, min(promised, default=np.inf)))


def interval_bound(scene: Scene) -> IntervalBound:
    """The most telling interval of the day, and the epsilon that the plan allows one interval, at its delta."""
    plan = scene.plan
    t = int(np.where(scene.hidden, plan.scale_wh, np.inf).argmin())
    pure = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise | MomentPromise)]
    if plan.noise.is_pure:
        pure.append(float(interval_losses(scene)[t]))
    if pure:
        return IntervalBound(t, min(pure), 0.0)
    delta = max(float(cost.promise.delta) for cost in plan.costs if isinstance(cost.promise, WindowPromise))
    sigma = float(plan.scale_wh[t])
    curve = GaussianCurve(scene.worst.bound_wh, sigma) if scene.any_reading else gaussian_curve(scene.worst, sigma)
    return IntervalBound(t, CurveAccountant().epsilon([(Event((curve,)), 1)], delta), delta)


def stream_bounds(scene: Scene) -> tuple[float | None, float | None]:
    """The most that a day of prices tells of one moment: leakage, and AUC; None where nothing bounds it.

    Both hold for an attacker who is told the habits of the target. A window of a day or more bounds the AUC too: all
    its occupancies are hidden together, so each of them is.
    """
    plan, leakage = scene.plan, np.inf
    moments = [cost.spent for cost in plan.costs if isinstance(cost.promise, MomentPromise)]
    if moments:
        leakage = min(moments)
    elif plan.noise.is_pure:
        leakage = kind_leakage(plan.zone, scene.kind, Loss.symmetric(interval_losses(scene)))
    windows = [
        most_auc(cost.spent, float(cost.promise.delta))
        for cost in plan.costs
        if isinstance(cost.promise, WindowPromise) and cost.promise.intervals >= plan.zone.intervals_per_day
    ]
    most = min(auc_bound(leakage), *windows, 1.0)
    return leakage if np.isfinite(leakage) else None, most if most < 1 else None


def samples_to_find_forgotten(scene: Scene, chance: float, failure: float) -> int | None:
    """Samples of each world from which noise that is forgotten with this chance would be found, as a rule.

    Found by the event that the noised reading is the reading itself: expected counts in place of counts. None where no
    number of samples up to 10**12 finds it, because it does not pass the bound.
    """
    t, epsilon, delta = interval_bound(scene)
    noise_wh = np.array([0, scene.worst.bound_wh])
    reach = int(40 * scene.plan.scale_wh[t] + scene.plan.core_wh[t]) + 1
    law = log_pmf(scene.plan, t)
    same, other = np.exp(law(noise_wh)) / np.exp(law(np.arange(-reach, reach + 1))).sum()
    chances = np.array([chance + (1 - chance) * same, (1 - chance) * other])
    samples = 1000
    while samples < _MOST_SAMPLES:
        if log_ratio((chances * samples).astype(np.int64), np.full(2, samples), failure, delta) > epsilon:
            return samples
        samples += samples // 10
    return None
