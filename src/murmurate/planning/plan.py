"""A plan: the least noise that keeps the promises of a zone. It is proven before the first release.

`prove_plan` computes the cost of each promise under a given noise. It raises PrivacyError if a promise is broken.
`make_plan` searches the least noise (`noise_search`) and computes the same costs. The publisher does no budget
arithmetic at run time: it makes one release per zone and interval, under the active plan.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.digest import compute_plan_digest
from murmurate.planning.habit_leakage import absence_risk, habit_inference_risks
from murmurate.planning.noise_schedule import NoiseSchedule
from murmurate.planning.noise_search import PlanProgress, noise_candidates
from murmurate.planning.plan_prediction import make_zone_prediction
from murmurate.planning.privacy_cost import Cost, mean_variance, promise_cost, release_costs
from murmurate.planning.zone import HouseholdKind, Zone
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import AbsenceGuessBound, HabitGuessBound, MomentPromise
from murmurate.units import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """A proven choice of noise for each interval of the day. It comes from `make_plan`, `prove_plan` or `load_plan`.

    Attributes:
        zone: The zone that the plan was made for.
        noise: Distribution of the noise, with scale and core [Wh, interval of the day].
        costs: For each promise what was promised and what the noise spends of it, no unit.
        absence: What prices may reveal about an absence of 14 days.
        habits: What prices may reveal about habits, for plans that promise a moment.
        prediction: How prices are predicted; None: a price is made from the last release alone.

    Example:
        >>> import murmurate as mm
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> text = text.replace(', "any moment: 1"', "")
        >>> plan = mm.make_plan(mm.parse_zone(text))
        >>> plan.distribution.value, plan.scale_wh.shape, plan.costs[0].promised
        ('laplace', (96,), 0.5)
    """

    zone: Zone
    noise: NoiseSchedule
    costs: tuple[Cost, ...]
    absence: AbsenceGuessBound
    habits: tuple[HabitGuessBound, ...] = ()
    prediction: ZonePrediction | None = None

    @property
    def distribution(self) -> NoiseDistribution:
        """Distribution of the noise."""
        return self.noise.distribution

    @property
    def scale_wh(self) -> FloatArray:
        """Scale of the noise [Wh, interval of the day]."""
        return self.noise.scale_wh

    @property
    def core_wh(self) -> IntArray:
        """Core of Huber noise, 0 for the other distributions [Wh, interval of the day]."""
        return self.noise.core_wh

    @property
    def noise_variance(self) -> FloatArray:
        """Variance of the noise [Wh^2, interval of the day]."""
        return self.noise.variance

    def to_document(self) -> dict[str, Any]:
        """Return everything that decides a release, as the members of `plan.json` without its digest."""
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
            "promises": [
                {
                    "promise": str(cost.promise),
                    "promised": cost.promised,
                    "spent": cost.spent,
                    "above_epsilon": cost.above_epsilon,
                    "right_guesses": cost.right_guesses,
                }
                for cost in self.costs
            ],
            "absence": self.absence._asdict(),
            "habits": [bound._asdict() for bound in self.habits],
            "noise": self.distribution.value,
            "scale_wh": self.scale_wh.tolist(),
            "core_wh": self.core_wh.tolist(),
            "cost": release_costs(zone, self.noise),
            "forecast_wh": np.rint(zone.forecast_moments[0]).astype(int).tolist(),
            "zone_file": zone.source_text,
            **self._optional_members(),
        }

    def _optional_members(self) -> dict[str, Any]:
        """Members that only some plans have: how prices are predicted, and what habits were learned from."""
        members: dict[str, Any] = {}
        if self.prediction is not None:
            members["prediction"] = self.prediction.to_document()
        if self.zone.learned:
            members["learned"] = [habits.to_document() for habits in self.zone.learned]
        return members

    def to_json(self) -> str:
        """Return the text of `plan.json`: the document and its digest. Equal plans give equal texts."""
        document = self.to_document()
        return (
            json.dumps(
                document | {"digest": compute_plan_digest(document)}, sort_keys=True, indent=1, ensure_ascii=False
            )
            + "\n"
        )


def _kind_document(kind: HouseholdKind) -> dict[str, Any]:
    models = hashlib.sha256(b"".join(m.transition.tobytes() + m.period.tobytes() for m in kind.models))
    return {
        "name": kind.name,
        "count": kind.count,
        "bound_wh": kind.bound_wh,
        "meters": kind.meters_file,
        "models": len(kind.models),
        "models_sha256": models.hexdigest(),
        "public": list(kind.public),
    }


def make_plan(zone: Zone, progress: PlanProgress = lambda _: None) -> Plan:
    """Return the plan with the least noise that keeps every promise of a zone, and prove it.

    Of the distributions that the promises allow, the one with the smallest mean square is taken. A plan for windows and
    moments takes some seconds.

    Args:
        zone: The zone, with its promises.
        progress: Is called with a short text before each stage.

    Returns:
        The plan.

    Raises:
        PrivacyError: A promise cannot be kept, or the proofs do not cover the zone.

    Example:
        >>> import murmurate as mm
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> text = text.replace(', "any moment: 1"', "")
        >>> plan = mm.make_plan(mm.parse_zone(text))
        >>> plan.scale_wh[0].round(1).item(), plan.costs[0].spent <= 0.5
        (2000.0, True)
    """
    _check_provable(zone)
    proven = []
    for noise in noise_candidates(zone, progress):
        progress(f"proving {noise.distribution.value}")
        proven.append((noise, _proven_costs(zone, noise)))
    noise, costs = min(proven, key=lambda candidate: mean_variance(candidate[0]))
    return _make(zone, noise, costs, None)


def _make(zone: Zone, noise: NoiseSchedule, costs: tuple[Cost, ...], prediction: ZonePrediction | None) -> Plan:
    if prediction is None and zone.predicted is not None:
        prediction = make_zone_prediction(zone, zone.predicted, noise)
    habits, absence = habit_inference_risks(zone, noise), absence_risk(zone, noise)
    return Plan(zone=zone, noise=noise, costs=costs, absence=absence, habits=habits, prediction=prediction)


def prove_plan(
    zone: Zone,
    distribution: NoiseDistribution,
    scale_wh: FloatArray,
    core_wh: IntArray | None = None,
    prediction: ZonePrediction | None = None,
) -> Plan:
    """Return the plan for a given noise, if the noise keeps every promise of the zone.

    Args:
        zone: The zone, with its promises.
        distribution: Distribution of the noise.
        scale_wh: Scale of the noise, at least 1 [Wh, interval of the day].
        core_wh: Core of Huber noise [Wh, interval of the day]; None for the other distributions.
        prediction: How prices are predicted; None: the best way, if the zone has a forecast.

    Returns:
        The plan, with the cost of each promise.

    Raises:
        PrivacyError: A promise is broken (it names the first one), the noise has the wrong shape, or the proofs do not
            cover the zone or the distribution.

    Example:
        >>> import murmurate as mm
        >>> import numpy as np
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> text = text.replace(', "any moment: 1"', "")
        >>> zone = mm.parse_zone(text)
        >>> mm.prove_plan(zone, mm.NoiseDistribution.LAPLACE, np.full(96, 2500.0)).costs[0].spent
        0.4
        >>> mm.prove_plan(zone, mm.NoiseDistribution.LAPLACE, np.full(96, 1000.0))
        Traceback (most recent call last):
        murmurate.errors.PrivacyError: noise is too little for 'interval: 0.5': it would cost 1
    """
    _check_provable(zone)
    noise = NoiseSchedule.from_scales(distribution, scale_wh, core_wh)
    return _make(zone, noise, _proven_costs(zone, noise), prediction)


def _proven_costs(zone: Zone, noise: NoiseSchedule) -> tuple[Cost, ...]:
    if noise.scale_wh.shape != (zone.intervals_per_day,):
        allowed = f"must have one scale for each of the {zone.intervals_per_day} intervals of the day"
        raise PrivacyError("scale_wh", f"shaped {noise.scale_wh.shape}", allowed)
    costs = tuple(promise_cost(zone, noise, promise) for promise in zone.promises)
    for cost in costs:
        if not cost.spent <= cost.promised:
            raise PrivacyError("noise", f"too little for {str(cost.promise)!r}", f"it would cost {cost.spent:.6g}")
    return costs


def _check_provable(zone: Zone) -> None:
    """Raise PrivacyError for a zone that the proofs do not cover.

    They do not cover a moment promise for a household with some public hours. An attacker who knows the occupancy in
    the public hours knows both ends of a secret stretch, and the secret hours may leak more than the chain alone gives.
    With a moment promise, the occupancy of a household must be always public or never public.
    """
    partly = [kind.name for kind in zone.kinds if any(kind.public) and not kind.always_public]
    if partly and any(isinstance(promise, MomentPromise) for promise in zone.promises):
        allowed = "must be public always or never where a moment is promised"
        raise PrivacyError("public hours", f"of {', '.join(partly)}", allowed)
