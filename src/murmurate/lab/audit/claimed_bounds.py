"""The bounds that a plan claims for the target of an audit. No attack may exceed them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from murmurate.audit.adversary import auc_bound
from murmurate.audit.event_search import log_ratio_bound
from murmurate.lab.audit.noise_model import noise_log_pmf
from murmurate.lab.audit.simulated_zone import AuditScenario
from murmurate.planning.privacy_cost import kind_leakage, kind_losses
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent
from murmurate.privacy.divergence import GaussianCurve
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.units import FloatArray

_MAX_SAMPLES = 10**12


class IntervalBound(NamedTuple):
    """The largest allowed leakage of one release about the target."""

    t: int  # the interval of the day with the least noise
    epsilon: float
    delta: float


def max_auc(epsilon: float, delta: float) -> float:
    """Return the largest AUC against (epsilon, delta): the area under y = e^eps x + delta, its mirror image and 1."""
    if not delta:
        return auc_bound(epsilon)
    x = (1 - delta) * (1 - auc_bound(epsilon))  # where the two lines meet, at y = 1 - x
    return x * (delta + 1 - x) / 2 + (1 - delta - x) * (2 - x) / 2 + delta


def interval_loss_bounds(scene: AuditScenario) -> FloatArray:
    """Return the largest loss of each release under pure noise: the loss at its scale, or the promise if smaller."""
    plan = scene.plan
    losses = kind_losses(plan.zone, plan.noise, scene.kind)
    promised = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise)]
    return np.where(scene.kind.public, 0.0, np.minimum(losses, min(promised, default=np.inf)))


def interval_bound(scene: AuditScenario) -> IntervalBound:
    """Return the interval of the day with the least noise, and the (epsilon, delta) that the plan allows it."""
    plan = scene.plan
    t = int(np.where(scene.hidden, plan.scale_wh, np.inf).argmin())
    pure = [cost.spent for cost in plan.costs if isinstance(cost.promise, IntervalPromise | MomentPromise)]
    if plan.noise.is_pure:
        pure.append(float(interval_loss_bounds(scene)[t]))
    if pure:
        return IntervalBound(t, min(pure), 0.0)
    delta = max(float(cost.promise.delta) for cost in plan.costs if isinstance(cost.promise, WindowPromise))
    sigma = float(plan.scale_wh[t])
    curve = GaussianCurve(scene.kind.bound_wh, sigma)
    return IntervalBound(t, PldAccountant().epsilon([(PrivacyEvent((curve,)), 1)], delta), delta)


def stream_bounds(scene: AuditScenario) -> tuple[float | None, float | None]:
    """Return bounds on the leakage and the AUC of a day of prices about one moment; None if there is no bound.

    Both hold against an attacker who knows the habits of the target. A window of a day or more bounds the AUC too,
    because it protects all occupancies of the day together.
    """
    plan, leakage = scene.plan, np.inf
    moments = [cost.spent for cost in plan.costs if isinstance(cost.promise, MomentPromise)]
    if moments:
        leakage = min(moments)
    elif plan.noise.is_pure:
        leakage = kind_leakage(plan.zone, scene.kind, interval_loss_bounds(scene))
    windows = [
        max_auc(cost.spent, float(cost.promise.delta))
        for cost in plan.costs
        if isinstance(cost.promise, WindowPromise) and cost.promise.intervals >= plan.zone.intervals_per_day
    ]
    auc_limit = min(auc_bound(leakage), *windows, 1.0)
    return leakage if np.isfinite(leakage) else None, auc_limit if auc_limit < 1 else None


def samples_to_detect_skipped_noise(scene: AuditScenario, chance: float, failure: float) -> int | None:
    """Return the samples per distribution that usually detect noise that is skipped with this probability.

    The event is that the noisy reading equals the reading. The function uses expected counts. The result is None if
    10**12 samples do not detect it, because the skipped noise stays within the bound.
    """
    t, epsilon, delta = interval_bound(scene)
    noise_wh = np.array([0, scene.kind.bound_wh])
    reach = int(40 * scene.plan.scale_wh[t] + scene.plan.core_wh[t]) + 1
    log_pmf = noise_log_pmf(scene.plan, t)
    at_zero, at_bound = np.exp(log_pmf(noise_wh)) / np.exp(log_pmf(np.arange(-reach, reach + 1))).sum()
    chances = np.array([chance + (1 - chance) * at_zero, (1 - chance) * at_bound])
    samples = 1000
    while samples < _MAX_SAMPLES:
        if log_ratio_bound((chances * samples).astype(np.int64), np.full(2, samples), failure, delta) > epsilon:
            return samples
        samples += samples // 10
    return None
