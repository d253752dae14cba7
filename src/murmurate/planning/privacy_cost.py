"""The privacy cost of a zone's noise: for each promise, and for each release.

Neighbouring datasets differ in one household. So the cost of several releases is composed for each kind of household
separately. The cost is the largest of the results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from murmurate.planning.noise_schedule import NoiseSchedule
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.privacy.accountant import PldAccountant, PrivacyEvent, PureDpAccountant, window_cost, window_events
from murmurate.privacy.calibration import Calibration, LossRange, laplace_loss_range
from murmurate.privacy.divergence import (
    GaussianCurve,
    PrivacyCurve,
    PureDpCurve,
    SecretPair,
    gaussian_curve,
    laplace_curve,
)
from murmurate.privacy.huber import HuberCurve
from murmurate.privacy.leakage import ReleaseLoss
from murmurate.privacy.leakage_over_time import MAX_EVIDENCE, local_time_leakage
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import IntervalPromise, Promise, WindowPromise
from murmurate.units import FloatArray

MICRO_PER_UNIT = 1_000_000
ZERO_COST_EVENT = PrivacyEvent(())  # a release that leaks nothing about a household


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one promise under a plan. `spent` never exceeds `promised`."""

    promise: Promise
    promised: float
    spent: float


def promise_cost(zone: Zone, noise: NoiseSchedule, promise: Promise) -> Cost:
    """Return the cost of a promise under this noise."""
    if isinstance(promise, WindowPromise):
        spent = max(_window_epsilon(zone, noise, kind, promise) for kind in zone.kinds)
        return Cost(promise, float(promise.epsilon), spent)
    promised = float(promise.epsilon if isinstance(promise, IntervalPromise) else promise.leakage)
    if not noise.is_pure:
        return Cost(promise, promised, math.inf)
    loss = max(float(kind_losses(zone, noise, kind).plus.max()) for kind in zone.kinds)
    if isinstance(promise, IntervalPromise):
        loss = max(loss, *(float(kind_losses(zone, noise, kind).minus.max()) for kind in zone.kinds))
        return Cost(promise, promised, loss)
    moments = [kind_leakage(zone, kind, kind_losses(zone, noise, kind)) for kind in zone.private_kinds]
    return Cost(promise, promised, max([*moments, 0.0 if moments else loss]))


def _window_epsilon(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind, promise: WindowPromise) -> float:
    accountant = PldAccountant() if promise.delta else PureDpAccountant()
    return window_cost(kind_events(zone, noise, kind), promise.intervals, float(promise.delta), accountant)


def keeps_window(zone: Zone, noise: NoiseSchedule, promise: WindowPromise, margin: float) -> bool:
    """Whether a window costs at most (1 - margin) epsilon. This is faster than computing its cost."""
    accountant = PldAccountant() if promise.delta else PureDpAccountant()
    epsilon, delta = float(promise.epsilon) * (1 - margin), float(promise.delta)
    days = (kind_events(zone, noise, kind) for kind in zone.kinds)
    return all(
        accountant.within_budget(events, epsilon, delta)
        for day in days
        for events in window_events(day, promise.intervals)
    )


def kind_events(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> list[PrivacyEvent]:
    """Return the privacy event of each interval of the day for one household. It costs 0 while occupancy is public.

    Equal events are the same object, so that the accountant counts them together.
    """
    slots = zip(zone.protected_intervals(kind), noise.scales_and_cores(), strict=True)
    return [
        release_event(zone, noise.distribution, kind, *slot) if secret else ZERO_COST_EVENT for secret, slot in slots
    ]


def release_event(
    zone: Zone, distribution: NoiseDistribution, kind: HouseholdKind, scale: float, core: int
) -> PrivacyEvent:
    """Return the privacy event of one interval in which the occupancy of `kind` is secret."""
    return _cached_event(zone.calibration, zone.eta, kind.secret_pair, distribution, scale, core)


@lru_cache(maxsize=64)
def _cached_event(
    calibration: Calibration,
    eta: float,
    secret_pair: SecretPair,
    distribution: NoiseDistribution,
    scale: float,
    core: int,
) -> PrivacyEvent:
    curve: PrivacyCurve
    gaussian = distribution is NoiseDistribution.GAUSSIAN
    if calibration is Calibration.ROBUST:
        curve = PureDpCurve(_loss_range(calibration, eta, secret_pair, scale).max_loss)
    elif calibration is Calibration.EXACT:
        curve = gaussian_curve(secret_pair, scale) if gaussian else laplace_curve(secret_pair, scale)
    else:
        shift = household_sensitivity(calibration, secret_pair)
        if gaussian:
            curve = GaussianCurve(shift, scale)
        elif distribution is NoiseDistribution.HUBER:
            curve = HuberCurve(shift, scale, core)
        else:
            curve = laplace_curve(SecretPair.worst_case(shift), scale)
    return PrivacyEvent((curve,))


def household_sensitivity(calibration: Calibration, secret_pair: SecretPair) -> int:
    """Return the sensitivity of the demand to one household's occupancy [Wh]. For exact, the search starts there."""
    return max(1, secret_pair.shift_wh()) if calibration is Calibration.SHIFT else secret_pair.bound_wh


def kind_losses(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> ReleaseLoss:
    """Return the range of the log likelihood ratio of each interval for one household. It is 0 for public intervals.

    The ratio has no bound under Gaussian noise. The range is then `MAX_EVIDENCE`.
    """
    if not noise.is_pure:
        unbounded = np.where(zone.protected_intervals(kind), MAX_EVIDENCE, 0.0)
        return ReleaseLoss(unbounded, unbounded)
    loss_ranges = {
        scale: _loss_range(zone.calibration, zone.eta, kind.secret_pair, scale)
        for scale in set(noise.scale_wh.tolist())
    }
    secret = np.array(zone.protected_intervals(kind))
    minus, plus = np.array([loss_ranges[scale] for scale in noise.scale_wh.tolist()]).T
    return ReleaseLoss(np.where(secret, minus, 0.0), np.where(secret, plus, 0.0))


@lru_cache(maxsize=4096)
def _loss_range(calibration: Calibration, eta: float, secret_pair: SecretPair, scale: float) -> LossRange:
    """Return the range of the loss under Laplace noise of this scale, or Huber noise with such tails (range, shift)."""
    if calibration in {Calibration.RANGE, Calibration.SHIFT}:
        max_loss = household_sensitivity(calibration, secret_pair) / scale
        return LossRange(max_loss, max_loss)
    return laplace_loss_range(secret_pair, scale, eta if calibration is Calibration.ROBUST else 0.0)


def kind_leakage(zone: Zone, kind: HouseholdKind, loss: ReleaseLoss) -> float:
    """Return the largest leakage of an infinite stream about one moment of this kind, over all its models."""
    return max(local_time_leakage(model, loss, zone.slot_shifts, zone.slot_changes) for model in kind.models)


def release_costs(zone: Zone, noise: NoiseSchedule) -> Mapping[str, list[int]]:
    """Return the cost of the release of each interval of the day in millionths, rounded up.

    Laplace and Huber noise cost epsilon: the largest log likelihood ratio of any household whose occupancy is secret in
    the interval. Gaussian noise costs rho = u^2/(2 sigma^2) (zCDP), for the largest sensitivity u. Divergences are
    quasi-convex, so no mixture over consumption costs more than the largest shift (Bun and Steinke 2016).
    """
    zeros = [0] * zone.intervals_per_day
    if noise.is_pure:
        worst = np.max([np.maximum(*kind_losses(zone, noise, kind)) for kind in zone.kinds], axis=0)
        return {
            "epsilon_micro": [math.ceil(MICRO_PER_UNIT * Fraction(float(loss))) for loss in worst],
            "rho_micro": zeros,
        }
    rho = [
        max(Fraction(household_sensitivity(zone.calibration, kind.secret_pair)) for kind in kinds) ** 2
        / (2 * Fraction(scale) ** 2)
        for kinds, scale in zip(zone.protected_kinds, noise.scale_wh.tolist(), strict=True)
    ]
    return {"epsilon_micro": zeros, "rho_micro": [math.ceil(MICRO_PER_UNIT * spent) for spent in rho]}


def mean_variance(noise: NoiseSchedule) -> float:
    """Return the mean variance over the day [Wh^2]."""
    variance: FloatArray = noise.variance
    return float(variance.mean())
