"""A plan: the least noise that keeps a promise, proven before anything runs.

Making a plan is proving it. `prove` computes what each promise costs under a given noise and refuses one that is
broken; `make_plan` finds the least noise and hands it to `prove`. At run time there is no budget arithmetic left to get
wrong: one release per zone and interval, under the active plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from murmurate.curator.document import digest
from murmurate.curator.spending import Cost, cost_of, per_release, width
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.pricing.forecast import make_filter
from murmurate.privacy.calibration import Calibration, calibrate, least_scale
from murmurate.privacy.leakage import epsilon_for_leakage
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import IntervalPromise, MomentPromise, WindowPromise
from murmurate.quantities import FloatArray, double_at_most

_MOST_EPSILON = 20.0
_DIGITS = 1e-4  # relative precision of a search; always on the safe side
_SLACK = 1e-6  # relative room below each promise, so that rounding never breaks it

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A frozen, proven choice of noise for each interval of the day. Made by `make_plan` or `prove`, not by hand."""

    zone: Zone
    law: NoiseLaw
    scale_wh: FloatArray  # [interval of the day]
    costs: tuple[Cost, ...]

    @property
    def noise_variance(self) -> FloatArray:
        """[Wh^2, interval of the day]"""
        return self.scale_wh**2 * (2.0 if self.law is NoiseLaw.LAPLACE else 1.0)

    def document(self) -> dict[str, Any]:
        """Everything that decides a release, as `plan.json` holds it."""
        zone = self.zone
        curve = zone.curve
        return {
            "murmurate_plan": 1,
            "zone": zone.name,
            "currency": zone.currency,
            "intervals_per_day": zone.intervals_per_day,
            "tariff": {
                "segments": [[s.from_wh, str(s.price), str(s.slope)] for s in curve.segments],
                "tick": str(curve.tick),
                "floor": None if curve.floor is None else str(curve.floor),
                "cap": None if curve.cap is None else str(curve.cap),
            },
            "households": [_kind_document(kind) for kind in zone.kinds],
            "calibration": zone.calibration.value,
            "eta": zone.eta,
            "independence": None if zone.independence is None else zone.independence._asdict(),
            "promises": [
                {"promise": str(cost.promise), "promised": cost.promised, "spent": cost.spent} for cost in self.costs
            ],
            "noise": self.law.value,
            "scale_wh": self.scale_wh.tolist(),
            "cost": per_release(zone, self.law, self.scale_wh),
            "forecast_wh": np.rint(zone.forecast.profile_wh).astype(int).tolist(),
            "filter": self._filter() if zone.filtered else None,
            "zone_file": zone.source,
        }

    def _filter(self) -> dict[str, Any]:
        chosen = make_filter(self.zone.forecast, self.noise_variance)
        return {"carry": chosen.carry.round(9).tolist(), "gain": chosen.gain.round(9).tolist()}

    def to_json(self) -> str:
        """`plan.json`: the document and its digest, in canonical bytes."""
        document = self.document()
        return json.dumps(document | {"digest": digest(document)}, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def _kind_document(kind: HouseholdKind) -> dict[str, Any]:
    laws = hashlib.sha256(kind.secret.away.tobytes() + kind.secret.home.tobytes())
    models = hashlib.sha256(b"".join(m.initial.tobytes() + m.transition.tobytes() for m in kind.models))
    return {
        "name": kind.name,
        "count": kind.count,
        "bound_wh": kind.bound_wh,
        "meters": kind.meters,
        "laws_sha256": laws.hexdigest(),
        "models": len(kind.models),
        "models_sha256": models.hexdigest(),
        "public": list(kind.public),
    }


def make_plan(zone: Zone, progress: Progress = lambda _: None) -> Plan:
    """The plan with the least noise that keeps every promise of `zone`.

    Laplace noise is searched by the epsilon of one interval, Gaussian by its scale; of those that the promises allow,
    the one with the smaller mean square is taken. Raises PrivacyError where a promise cannot be kept.
    """
    _refuse_unproven(zone)
    pure = any(not isinstance(promise, WindowPromise) or not promise.delta for promise in zone.promises)
    allowed = [NoiseLaw.LAPLACE] if pure or zone.calibration is Calibration.ROBUST else list(NoiseLaw)
    laws = [law for law in allowed if zone.law in {None, law}]
    if not laws:
        raise PrivacyError("noise", "gaussian", "can keep windows with a delta only, and not with robust; take laplace")
    plans = []
    for law in laws:
        progress(f"{law.value} noise")
        scale_wh = _gaussian_scale(zone) if law is NoiseLaw.GAUSSIAN else _laplace_scale(zone)
        progress(f"proving {law.value}")
        plans.append(prove(zone, law, scale_wh))
    return min(plans, key=lambda plan: float(plan.noise_variance.mean()))


def prove(zone: Zone, law: NoiseLaw, scale_wh: FloatArray) -> Plan:
    """What each promise costs under this noise; PrivacyError names the first one that it breaks."""
    _refuse_unproven(zone)
    if scale_wh.shape != (zone.intervals_per_day,):
        allowed = f"must have one scale for each of the {zone.intervals_per_day} intervals of the day"
        raise PrivacyError("scale_wh", f"shaped {scale_wh.shape}", allowed)
    costs = tuple(cost_of(zone, law, scale_wh, promise) for promise in zone.promises)
    for cost in costs:
        if not cost.spent <= cost.promised:
            raise PrivacyError("noise", f"too little for {str(cost.promise)!r}", f"it would cost {cost.spent:.6g}")
    return Plan(zone=zone, law=law, scale_wh=scale_wh, costs=costs)


def _refuse_unproven(zone: Zone) -> None:
    """What the proofs do not cover: untested memory under `exact` and `robust`, and moments beside public hours.

    Whoever knows the public hours of a household knows the ends of its secret stretches; its other hours may then leak
    more than the chain alone says. So a moment promise takes premises that are public always or never.
    """
    partly = [kind.name for kind in zone.kinds if any(kind.public) and not all(kind.public)]
    if partly and any(isinstance(promise, MomentPromise) for promise in zone.promises):
        allowed = "must be public always or never where a moment is promised"
        raise PrivacyError("public hours", f"of {', '.join(partly)}", allowed)
    several = any(not isinstance(promise, IntervalPromise) for promise in zone.promises)
    if zone.calibration.needs_independence and several and (zone.independence is None or not zone.independence.passed):
        found = (
            "untested" if zone.independence is None else f"correlated over time ({zone.independence.correlation:.3f})"
        )
        allowed = (
            f"{zone.calibration.value} needs a passed independence test over several intervals; range and shift do not"
        )
        raise PrivacyError("consumption", found, allowed)


def _laplace_scale(zone: Zone) -> FloatArray:
    """Scales at the largest epsilon of one interval that every promise allows."""
    bounds = [_MOST_EPSILON]
    for promise in zone.promises:
        if isinstance(promise, IntervalPromise):
            bounds.append(float(promise.epsilon))
        if isinstance(promise, MomentPromise):
            target = float(promise.leakage) * (1 - _SLACK)
            bounds.extend(float(epsilon_for_leakage(models, target)[0]) for _, models in zone.secrets_in_time)
    epsilon = min(bounds) * (1 - _SLACK)
    windows = [promise for promise in zone.promises if isinstance(promise, WindowPromise)]

    def keeps(noise: float) -> bool:
        scale_wh = _scales_at(zone, epsilon / noise)
        costs = (cost_of(zone, NoiseLaw.LAPLACE, scale_wh, promise) for promise in windows)
        return all(cost.spent <= cost.promised * (1 - _SLACK) for cost in costs)

    longest = max((promise.intervals * epsilon / float(promise.epsilon) for promise in windows), default=1.0)
    more = least_scale(keeps, 1.01 * max(longest, 1.0), _DIGITS) if windows else 1.0
    return _scales_at(zone, epsilon / more)


def _scales_at(zone: Zone, epsilon: float) -> FloatArray:
    """The scale [Wh, interval of the day] at which each interval costs `epsilon`."""
    budget = Fraction(double_at_most(Fraction(epsilon)))
    of_kind = {kind: calibrate(kind.secret, budget, zone.calibration, zone.eta) for kind in zone.kinds}
    return np.array([max(of_kind[kind] for kind in kinds) for kinds in zone.protected])


def _gaussian_scale(zone: Zone) -> FloatArray:
    """The least multiple of each interval's width that keeps every window."""
    widths = np.array([width(zone.calibration, kinds) for kinds in zone.protected], np.float64)

    def keeps(multiple: float) -> bool:
        costs = (cost_of(zone, NoiseLaw.GAUSSIAN, multiple / 1000 * widths, promise) for promise in zone.promises)
        return all(cost.spent <= cost.promised * (1 - _SLACK) for cost in costs)

    ceiling = 1000.0
    while not keeps(ceiling):
        ceiling *= 4
        if ceiling > 1e9:
            raise PrivacyError("promise", str(zone.promises[0]), "cannot be kept by any reasonable Gaussian noise")
    return least_scale(keeps, ceiling, _DIGITS) / 1000 * widths
