"""What a zone's noise spends: of each promise, and with each release."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.privacy.accountant import CurveAccountant, Event, PureAccountant, window_cost
from murmurate.privacy.calibration import Calibration, laplace_loss
from murmurate.privacy.divergence import (
    Curve,
    GaussianCurve,
    PureCurve,
    Secret,
    gaussian_curve,
    laplace_curve,
)
from murmurate.privacy.leakage import Loss, worst_leakage
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import MomentPromise, Promise, WindowPromise
from murmurate.quantities import FloatArray

MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one promise costs under a plan: never more than was promised."""

    promise: Promise
    promised: float
    spent: float


def cost_of(zone: Zone, law: NoiseLaw, scale_wh: FloatArray, promise: Promise) -> Cost:
    if isinstance(promise, WindowPromise):
        accountant = CurveAccountant() if promise.delta else PureAccountant()
        day = _events(zone, law, scale_wh)
        spent = window_cost(day, promise.intervals, float(promise.delta), accountant)
        return Cost(promise, float(promise.epsilon), spent)
    if law is NoiseLaw.GAUSSIAN:
        return Cost(promise, 0.0, np.inf)
    if isinstance(promise, MomentPromise):
        spent = max(
            (
                worst_leakage(
                    models, Loss.symmetric(np.stack([losses(zone, kind, scale_wh) for kind in kinds], axis=-1))
                )
                for kinds, models in zone.secrets_in_time
            ),
            default=0.0,
        )
        return Cost(promise, float(promise.leakage), spent)
    return Cost(promise, float(promise.epsilon), max(float(losses(zone, kind, scale_wh).max()) for kind in zone.kinds))


def losses(zone: Zone, kind: HouseholdKind, scale_wh: FloatArray) -> FloatArray:
    """The worst log likelihood ratio of each interval for one household; 0 while its occupancy is public."""
    found = {scale: _loss(zone.calibration, zone.eta, kind.secret, float(scale)) for scale in np.unique(scale_wh)}
    return np.array([0.0 if kind.public[t] else found[scale] for t, scale in enumerate(scale_wh)])


@lru_cache(maxsize=4096)
def _loss(calibration: Calibration, eta: float, secret: Secret, scale: float) -> float:
    if calibration is Calibration.RANGE:
        return secret.bound_wh / scale
    if calibration is Calibration.SHIFT:
        return secret.shift_wh() / scale
    return laplace_loss(secret, scale, eta if calibration is Calibration.ROBUST else 0.0).worst


def _events(zone: Zone, law: NoiseLaw, scale_wh: FloatArray) -> list[Event]:
    """The release of each interval of the day; equal ones are the same object, so that they are counted together."""
    known: dict[tuple[Any, ...], Event] = {}
    day = []
    for kinds, scale in zip(zone.protected, scale_wh, strict=True):
        key = (kinds, float(scale))
        if key not in known:
            known[key] = Event(tuple(_curves(zone, law, kinds, float(scale))))
        day.append(known[key])
    return day


def _curves(zone: Zone, law: NoiseLaw, kinds: Iterable[HouseholdKind], scale: float) -> Iterable[Curve]:
    """The privacy curves that dominate those of all these households; of several shifts the largest."""
    secrets = [kind.secret for kind in kinds]
    if zone.calibration is Calibration.ROBUST:
        return [PureCurve(max(_loss(zone.calibration, zone.eta, secret, scale) for secret in secrets))]
    if zone.calibration is Calibration.EXACT:
        make = gaussian_curve if law is NoiseLaw.GAUSSIAN else laplace_curve
        return [make(secret, scale) for secret in secrets]
    shift = width(zone.calibration, kinds)
    if law is NoiseLaw.GAUSSIAN:
        return [GaussianCurve(shift, scale)]
    return [laplace_curve(Secret.anything_up_to(shift), scale)]


def width(calibration: Calibration, kinds: Iterable[HouseholdKind]) -> int:
    """The most by which one household's occupancy may move the demand [Wh]; for exact, a size to search from."""
    if calibration is Calibration.SHIFT:
        return max(1, *(kind.secret.shift_wh() for kind in kinds))
    return max(kind.bound_wh for kind in kinds)


def per_release(zone: Zone, law: NoiseLaw, scale_wh: FloatArray) -> dict[str, list[int]]:
    """What the release of each interval of the day costs, in millionths, rounded up.

    Laplace noise costs epsilon, the worst log likelihood ratio for any household whose occupancy is secret then;
    Gaussian noise costs rho = u^2/(2 sigma^2), zero-concentrated privacy for the widest of them: divergences are
    quasi-convex, so no mixture over consumption costs more than the largest shift (Bun and Steinke 2016).
    """
    nothing = [0] * zone.intervals_per_day
    if law is NoiseLaw.LAPLACE:
        worst = np.max([losses(zone, kind, scale_wh) for kind in zone.kinds], axis=0)
        return {"epsilon_micro": [math.ceil(MICRO * Fraction(float(loss))) for loss in worst], "rho_micro": nothing}
    secret = [[kind for kind in zone.kinds if not kind.public[t]] for t in range(zone.intervals_per_day)]
    rho = [
        Fraction(width(zone.calibration, kinds)) ** 2 / (2 * Fraction(float(scale)) ** 2) if kinds else Fraction(0)
        for kinds, scale in zip(secret, scale_wh, strict=True)
    ]
    return {"epsilon_micro": nothing, "rho_micro": [math.ceil(MICRO * spent) for spent in rho]}
