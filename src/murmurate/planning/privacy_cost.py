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
from murmurate.privacy.divergence import GaussianCurve, PrivacyCurve
from murmurate.privacy.huber import HuberCurve
from murmurate.privacy.leakage_over_time import MAX_EVIDENCE, local_time_leakage
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import IntervalPromise, Promise, WindowPromise
from murmurate.units import FloatArray

MICRO_PER_UNIT = 1_000_000
_TAIL_GRID_POINTS = 100  # a coarse grid errs upwards, here by less than a percent
ZERO_COST_EVENT = PrivacyEvent(())  # a release that leaks nothing about a household


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one promise under a plan. `spent` never exceeds `promised`."""

    promise: Promise
    promised: float
    spent: float
    above_epsilon: float | None = None  # probability of a loss above the promised epsilon; None: there is no delta
    right_guesses: float | None = None  # largest probability of a right guess between two equal chances, for a window


def promise_cost(zone: Zone, noise: NoiseSchedule, promise: Promise) -> Cost:
    """Return the cost of a promise under this noise."""
    if isinstance(promise, WindowPromise):
        spent = max(_window_epsilon(zone, noise, kind, promise) for kind in zone.kinds)
        above, right = _probability_above_epsilon(zone, noise, promise), _right_guesses(zone, noise, promise)
        return Cost(promise, float(promise.epsilon), spent, above, right)
    promised = float(promise.epsilon if isinstance(promise, IntervalPromise) else promise.leakage)
    if not noise.is_pure:
        return Cost(promise, promised, math.inf)
    loss = max(float(kind_losses(zone, noise, kind).max()) for kind in zone.kinds)
    if isinstance(promise, IntervalPromise):
        return Cost(promise, promised, loss)
    moments = [kind_leakage(zone, kind, kind_losses(zone, noise, kind)) for kind in zone.private_kinds]
    return Cost(promise, promised, max([*moments, 0.0 if moments else loss]))


def _window_epsilon(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind, promise: WindowPromise) -> float:
    accountant = PldAccountant() if promise.delta else PureDpAccountant()
    return window_cost(kind_events(zone, noise, kind), promise.intervals, float(promise.delta), accountant)


def _probability_above_epsilon(zone: Zone, noise: NoiseSchedule, promise: WindowPromise) -> float | None:
    """Return how likely a window costs more than its epsilon, for a household that differs in all its intervals."""
    if not promise.delta:
        return None
    accountant = PldAccountant(grid_points=_TAIL_GRID_POINTS)
    days = (kind_events(zone, noise, kind) for kind in zone.kinds)
    windows = (events for day in days for events in window_events(day, promise.intervals))
    return max(accountant.tail(events, float(promise.epsilon)) for events in windows)


def _right_guesses(zone: Zone, noise: NoiseSchedule, promise: WindowPromise) -> float:
    """Return how often a guess from the prices of a window is right at most, where both answers are equally likely.

    It is (1 + delta)/2, with delta the privacy curve of the window at epsilon 0. Epsilon alone allows more.
    """
    accountant = PldAccountant(grid_points=_TAIL_GRID_POINTS)
    days = (kind_events(zone, noise, kind) for kind in zone.kinds)
    windows = (events for day in days for events in window_events(day, promise.intervals))
    return min(1.0, (1 + max(accountant.delta(events, 0.0) for events in windows)) / 2)


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
        release_event(noise.distribution, kind.bound_wh, *slot) if secret else ZERO_COST_EVENT for secret, slot in slots
    ]


@lru_cache(maxsize=64)
def release_event(distribution: NoiseDistribution, bound_wh: int, scale: float, core: int) -> PrivacyEvent:
    """Return the privacy event of one interval in which the occupancy of a household with this bound is secret."""
    is_gaussian = distribution is NoiseDistribution.GAUSSIAN
    curve: PrivacyCurve = GaussianCurve(bound_wh, scale) if is_gaussian else HuberCurve(bound_wh, scale, core)
    return PrivacyEvent((curve,))  # Laplace noise is Huber noise without a core


def kind_losses(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> FloatArray:
    """Return the largest log likelihood ratio of each interval for one household: its bound u over the scale b.

    It is 0 for public intervals. It has no bound under Gaussian noise; `MAX_EVIDENCE` stands for that.
    """
    loss = kind.bound_wh / noise.scale_wh if noise.is_pure else np.full(zone.intervals_per_day, MAX_EVIDENCE)
    return np.where(zone.protected_intervals(kind), loss, 0.0)


def kind_leakage(zone: Zone, kind: HouseholdKind, loss: FloatArray) -> float:
    """Return the largest leakage of an infinite stream about one moment of this kind, over all its models."""
    return max(local_time_leakage(model, loss, zone.slot_shifts, zone.slot_changes) for model in kind.models)


def release_costs(zone: Zone, noise: NoiseSchedule) -> Mapping[str, list[int]]:
    """Return the cost of the release of each interval of the day in millionths, rounded up.

    Laplace and Huber noise cost epsilon: the largest log likelihood ratio of any household whose occupancy is secret in
    the interval. Gaussian noise costs rho = u^2/(2 sigma^2) (zCDP), for the largest bound u (Bun and Steinke 2016).
    """
    zeros = [0] * zone.intervals_per_day
    if noise.is_pure:
        worst = np.max([kind_losses(zone, noise, kind) for kind in zone.kinds], axis=0)
        return {
            "epsilon_micro": [math.ceil(MICRO_PER_UNIT * Fraction(float(loss))) for loss in worst],
            "rho_micro": zeros,
        }
    rho = [
        Fraction(max(kind.bound_wh for kind in kinds)) ** 2 / (2 * Fraction(scale) ** 2)
        for kinds, scale in zip(zone.protected_kinds, noise.scale_wh.tolist(), strict=True)
    ]
    return {"epsilon_micro": zeros, "rho_micro": [math.ceil(MICRO_PER_UNIT * spent) for spent in rho]}


def mean_variance(noise: NoiseSchedule) -> float:
    """Return the mean variance over the day [Wh^2]."""
    variance: FloatArray = noise.variance
    return float(variance.mean())
