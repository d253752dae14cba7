"""What a zone's noise spends: of each promise, and with each release.

A neighbour is one household. So what the releases of several intervals cost is composed for each kind of household by
itself, and the largest of the results counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from murmurate.curator.noise_schedule import NoiseSchedule
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.privacy.accountant import CurveAccountant, Event, PureAccountant, window_cost, windows_of
from murmurate.privacy.calibration import Calibration, LossRange, laplace_loss
from murmurate.privacy.divergence import Curve, GaussianCurve, PureCurve, Secret, gaussian_curve, laplace_curve
from murmurate.privacy.huber import HuberCurve
from murmurate.privacy.leakage import Loss
from murmurate.privacy.leakage_over_time import ANYTHING, clock_leakage
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import IntervalPromise, Promise, WindowPromise
from murmurate.quantities import FloatArray

MICRO = 1_000_000
FREE = Event(())  # a release that tells nothing about a household


@dataclass(frozen=True, slots=True)
class Cost:
    """What one promise costs under a plan: never more than was promised."""

    promise: Promise
    promised: float
    spent: float


def cost_of(zone: Zone, noise: NoiseSchedule, promise: Promise) -> Cost:
    """What a promise costs under this noise."""
    if isinstance(promise, WindowPromise):
        spent = max(_window(zone, noise, kind, promise) for kind in zone.kinds)
        return Cost(promise, float(promise.epsilon), spent)
    promised = float(promise.epsilon if isinstance(promise, IntervalPromise) else promise.leakage)
    if not noise.is_pure:
        return Cost(promise, promised, math.inf)
    alone = max(float(losses(zone, noise, kind).plus.max()) for kind in zone.kinds)
    if isinstance(promise, IntervalPromise):
        alone = max(alone, *(float(losses(zone, noise, kind).minus.max()) for kind in zone.kinds))
        return Cost(promise, promised, alone)
    moments = [kind_leakage(zone, kind, losses(zone, noise, kind)) for kind in zone.private_kinds]
    return Cost(promise, promised, max([*moments, 0.0 if moments else alone]))


def _window(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind, promise: WindowPromise) -> float:
    accountant = CurveAccountant() if promise.delta else PureAccountant()
    return window_cost(kind_events(zone, noise, kind), promise.intervals, float(promise.delta), accountant)


def keeps(zone: Zone, noise: NoiseSchedule, promise: WindowPromise, room: float) -> bool:
    """Whether a window is kept with some room to spare (a share of epsilon): quicker than to find out its cost."""
    accountant = CurveAccountant() if promise.delta else PureAccountant()
    epsilon, delta = float(promise.epsilon) * (1 - room), float(promise.delta)
    days = (kind_events(zone, noise, kind) for kind in zone.kinds)
    return all(
        accountant.keeps(events, epsilon, delta) for day in days for events in windows_of(day, promise.intervals)
    )


def kind_events(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> list[Event]:
    """The release of each interval of the day as one household sees it: free while its occupancy is public.

    Equal ones are the same object, so that they are counted together.
    """
    shown = zip(zone.is_protected(kind), noise.slots(), strict=True)
    return [event_of(zone, noise.law, kind, *slot) if secret else FREE for secret, slot in shown]


def event_of(zone: Zone, law: NoiseLaw, kind: HouseholdKind, scale: float, core: int) -> Event:
    """The release of one interval in which the occupancy of `kind` is secret."""
    return _event(zone.calibration, zone.eta, kind.secret, law, scale, core)


@lru_cache(maxsize=64)
def _event(calibration: Calibration, eta: float, secret: Secret, law: NoiseLaw, scale: float, core: int) -> Event:
    return Event((_curve(calibration, eta, secret, law, scale, core),))


def _curve(calibration: Calibration, eta: float, secret: Secret, law: NoiseLaw, scale: float, core: int) -> Curve:
    if calibration is Calibration.ROBUST:
        return PureCurve(_loss(calibration, eta, secret, scale).worst)
    if calibration is Calibration.EXACT:
        return gaussian_curve(secret, scale) if law is NoiseLaw.GAUSSIAN else laplace_curve(secret, scale)
    shift = width(calibration, secret)
    if law is NoiseLaw.GAUSSIAN:
        return GaussianCurve(shift, scale)
    if law is NoiseLaw.HUBER:
        return HuberCurve(shift, scale, core)
    return laplace_curve(Secret.anything_up_to(shift), scale)


def width(calibration: Calibration, secret: Secret) -> int:
    """The most by which one household's occupancy may move the demand [Wh]; for exact, a size to search from."""
    return max(1, secret.shift_wh()) if calibration is Calibration.SHIFT else secret.bound_wh


def losses(zone: Zone, noise: NoiseSchedule, kind: HouseholdKind) -> Loss:
    """The range of the log likelihood ratio of each interval for one household; 0 while its occupancy is public.

    Gaussian noise has no bound: an output of it may tell anything.
    """
    if not noise.is_pure:
        anything = np.where(zone.is_protected(kind), ANYTHING, 0.0)
        return Loss(anything, anything)
    found = {scale: _loss(zone.calibration, zone.eta, kind.secret, scale) for scale in set(noise.scale_wh.tolist())}
    secret = np.array(zone.is_protected(kind))
    minus, plus = np.array([found[scale] for scale in noise.scale_wh.tolist()]).T
    return Loss(np.where(secret, minus, 0.0), np.where(secret, plus, 0.0))


@lru_cache(maxsize=4096)
def _loss(calibration: Calibration, eta: float, secret: Secret, scale: float) -> LossRange:
    """Under Laplace noise, and under Huber noise with tails of this scale; Huber noise is for range and shift alone."""
    if calibration in {Calibration.RANGE, Calibration.SHIFT}:
        most = width(calibration, secret) / scale
        return LossRange(most, most)
    return laplace_loss(secret, scale, eta if calibration is Calibration.ROBUST else 0.0)


def kind_leakage(zone: Zone, kind: HouseholdKind, loss: Loss) -> float:
    """The most that an endless stream tells about one moment of a household of this kind, whichever its habits."""
    return max(clock_leakage(model, loss, zone.slot_shifts, zone.slot_changes) for model in kind.models)


def per_release(zone: Zone, noise: NoiseSchedule) -> Mapping[str, list[int]]:
    """What the release of each interval of the day costs, in millionths, rounded up.

    Laplace and Huber noise cost epsilon, the worst log likelihood ratio for any household whose occupancy is secret
    then; Gaussian noise costs rho = u^2/(2 sigma^2), zero-concentrated privacy for the widest of them: divergences are
    quasi-convex, so no mixture over consumption costs more than the largest shift (Bun and Steinke 2016).
    """
    nothing = [0] * zone.intervals_per_day
    if noise.is_pure:
        worst = np.max([np.maximum(*losses(zone, noise, kind)) for kind in zone.kinds], axis=0)
        return {"epsilon_micro": [math.ceil(MICRO * Fraction(float(loss))) for loss in worst], "rho_micro": nothing}
    rho = [
        max(Fraction(width(zone.calibration, kind.secret)) for kind in kinds) ** 2 / (2 * Fraction(scale) ** 2)
        for kinds, scale in zip(zone.protected, noise.scale_wh.tolist(), strict=True)
    ]
    return {"epsilon_micro": nothing, "rho_micro": [math.ceil(MICRO * spent) for spent in rho]}


def mean_variance(noise: NoiseSchedule) -> float:
    """[Wh^2]"""
    found: FloatArray = noise.variance
    return float(found.mean())
