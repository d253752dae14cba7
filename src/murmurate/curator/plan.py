"""A plan: the least noise that keeps a promise, proven before anything runs.

Making a plan is proving it. `prove` computes what each promise costs under a given noise and refuses one that is
broken; `make_plan` finds the least noise (`noise_search`) and hands it to `prove`. At run time there is no budget
arithmetic left to get wrong: one release per zone and interval, under the active plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.curator.document import digest
from murmurate.curator.habits import habits_taught
from murmurate.curator.noise_schedule import NoiseSchedule
from murmurate.curator.noise_search import candidates
from murmurate.curator.spending import Cost, cost_of, mean_variance, per_release
from murmurate.curator.zone import HouseholdKind, Zone
from murmurate.errors import PrivacyError
from murmurate.pricing.forecast import make_filter
from murmurate.privacy.calibration import Calibration
from murmurate.privacy.noise import NoiseLaw
from murmurate.privacy.promise import Habits, MomentPromise
from murmurate.quantities import FloatArray, IntArray

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A frozen, proven choice of noise for each interval of the day. Made by `make_plan` or `prove`, not by hand."""

    zone: Zone
    noise: NoiseSchedule
    costs: tuple[Cost, ...]
    habits: tuple[Habits, ...] = ()  # what prices may teach about habits; of plans that promise a moment

    @property
    def law(self) -> NoiseLaw:
        return self.noise.law

    @property
    def scale_wh(self) -> FloatArray:
        """[interval of the day]"""
        return self.noise.scale_wh

    @property
    def core_wh(self) -> IntArray:
        """[interval of the day]"""
        return self.noise.core_wh

    @property
    def noise_variance(self) -> FloatArray:
        """[Wh^2, interval of the day]"""
        return self.noise.variance

    def document(self) -> dict[str, Any]:
        """Everything that decides a release, as `plan.json` holds it."""
        zone = self.zone
        curve = zone.curve
        return {
            "murmurate_plan": 1,
            "zone": zone.name,
            "currency": zone.currency,
            "intervals_per_day": zone.intervals_per_day,
            "clock": {
                "time_zone": zone.clock.name,
                "offsets_min": list(zone.clock.offsets_min),
                "changes": [list(change) for change in zone.clock.changes],
            },
            "tariff": {
                "segments": [[s.from_wh, str(s.price), str(s.slope)] for s in curve.segments],
                "tick": str(curve.tick),
                "floor": None if curve.floor is None else str(curve.floor),
                "cap": None if curve.cap is None else str(curve.cap),
            },
            "households": [_kind_document(kind) for kind in zone.kinds],
            "calibration": zone.calibration.value,
            "eta": zone.eta,
            "tested": zone.tested
            and zone.calibration.needs_independence,  # one bit of the sample, and only where needed
            "promises": [
                {"promise": str(cost.promise), "promised": cost.promised, "spent": cost.spent} for cost in self.costs
            ],
            "habits": [found._asdict() for found in self.habits],
            "noise": self.law.value,
            "scale_wh": self.scale_wh.tolist(),
            "core_wh": self.core_wh.tolist(),
            "cost": per_release(zone, self.noise),
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
    models = hashlib.sha256(b"".join(m.transition.tobytes() + m.period.tobytes() for m in kind.models))
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

    Of the laws that the promises allow, the one with the smallest mean square is taken. Raises PrivacyError where a
    promise cannot be kept.
    """
    _refuse_unproven(zone)
    found = []
    for noise in candidates(zone, progress):
        progress(f"proving {noise.law.value}")
        found.append((noise, _costs(zone, noise)))
    noise, costs = min(found, key=lambda one: mean_variance(one[0]))
    return Plan(zone=zone, noise=noise, costs=costs, habits=habits_taught(zone, noise))


def prove(zone: Zone, law: NoiseLaw, scale_wh: FloatArray, core_wh: IntArray | None = None) -> Plan:
    """What each promise costs under this noise; PrivacyError names the first one that it breaks."""
    _refuse_unproven(zone)
    noise = NoiseSchedule.of(law, scale_wh, core_wh)
    return Plan(zone=zone, noise=noise, costs=_costs(zone, noise), habits=habits_taught(zone, noise))


def _costs(zone: Zone, noise: NoiseSchedule) -> tuple[Cost, ...]:
    if noise.scale_wh.shape != (zone.intervals_per_day,):
        allowed = f"must have one scale for each of the {zone.intervals_per_day} intervals of the day"
        raise PrivacyError("scale_wh", f"shaped {noise.scale_wh.shape}", allowed)
    if noise.law is NoiseLaw.HUBER and zone.calibration not in {Calibration.RANGE, Calibration.SHIFT}:
        raise PrivacyError("noise", "huber", "is proven for the calibrations range and shift alone")
    if noise.law is NoiseLaw.GAUSSIAN and zone.calibration is Calibration.ROBUST:
        raise PrivacyError("noise", "gaussian", "is not proven for the calibration robust")
    costs = tuple(cost_of(zone, noise, promise) for promise in zone.promises)
    for cost in costs:
        if not cost.spent <= cost.promised:
            raise PrivacyError("noise", f"too little for {str(cost.promise)!r}", f"it would cost {cost.spent:.6g}")
    return costs


def _refuse_unproven(zone: Zone) -> None:
    """What the proofs do not cover: untested laws under `exact` and `robust`, and moments beside public hours.

    Every promise conditions on the past, so even a single interval under `exact` needs readings without memory.

    Whoever knows the public hours of a household knows the ends of its secret stretches; its other hours may then leak
    more than the chain alone says. So a moment promise takes premises that are public always or never.
    """
    partly = [kind.name for kind in zone.kinds if any(kind.public) and not kind.always_public]
    if partly and any(isinstance(promise, MomentPromise) for promise in zone.promises):
        allowed = "must be public always or never where a moment is promised"
        raise PrivacyError("public hours", f"of {', '.join(partly)}", allowed)
    if zone.calibration.needs_independence and not zone.tested:
        allowed = f"{zone.calibration.value} needs a sample that passes the law test (--readings); range does not"
        raise PrivacyError("consumption", "untested", allowed)
