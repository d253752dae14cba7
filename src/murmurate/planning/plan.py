"""A plan: the least noise that keeps the promises of a zone. It is proven before the first release.

`prove_plan` computes the cost of each promise under a given noise. It raises PrivacyError if a promise is broken.
`make_plan` searches the least noise (`noise_search`) and computes the same costs. `load_plan` reads a `plan.json` and
proves it again. The publisher does no budget arithmetic at run time: it makes one release per zone and interval, under
the active plan.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.files import read_text
from murmurate.planning.household_bounds import MeterSummary
from murmurate.planning.noise_search import PlanProgress, noise_candidates
from murmurate.planning.plan_prediction import check_stated_prediction, make_zone_prediction
from murmurate.planning.privacy_cost import (
    Cost,
    NoiseSchedule,
    absence_risk,
    habit_inference_risks,
    mean_variance,
    promise_cost,
    release_costs,
)
from murmurate.planning.release_terms import compute_plan_digest
from murmurate.planning.zone import Zone
from murmurate.planning.zone_file import parse_zone
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.privacy.noise import NoiseDistribution
from murmurate.privacy.promise import AbsenceGuessBound, HabitGuessBound, MomentPromise
from murmurate.time_zones import LocalClock
from murmurate.units import WH_PER_KWH, FloatArray, IntArray


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

    def __repr__(self) -> str:
        rms_kwh = math.sqrt(mean_variance(self.noise)) / WH_PER_KWH
        promises = "; ".join(f"{cost.promise}, spends {cost.spent:.3g}" for cost in self.costs)
        return f"Plan({self.zone.name}: {self.distribution.value} noise, rms {rms_kwh:.3g} kWh; {promises})"

    @property
    def reads_meters(self) -> bool:
        """Whether prices are made from readings. If not, nothing that depends on a household is released."""
        return self.prediction is None or self.prediction.read_meters

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
        zone, curve = self.zone, self.zone.curve
        document: dict[str, Any] = {
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
            "households": [
                ({"export_bound_wh": kind.export_bound_wh} if kind.export_bound_wh else {})
                | {
                    "name": kind.name,
                    "count": kind.count,
                    "bound_wh": kind.bound_wh,
                    "meters": kind.meters_file,
                    "models": len(kind.models),
                    "models_sha256": hashlib.sha256(
                        b"".join(model.transition.tobytes() + model.period.tobytes() for model in kind.models)
                    ).hexdigest(),
                    "public": list(kind.public),
                }
                for kind in zone.kinds
            ],
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
        }
        if self.prediction is not None:
            document["prediction"] = self.prediction.to_document()
        if zone.learned:
            document["learned"] = [habits.to_document() for habits in zone.learned]
        return document

    def to_json(self) -> str:
        """Return the text of `plan.json`: the document and its digest. Equal plans give equal texts.

        Raises PrivacyError for a zone made in Python: without its zone file a reader cannot prove the plan again.
        """
        if not self.zone.source_text:
            allowed = "must be the zone file, from which a reader proves the plan again: see parse_zone"
            raise PrivacyError("source_text", "empty", allowed)
        document = self.to_document()
        document["digest"] = compute_plan_digest(document)
        return json.dumps(document, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


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


def load_plan(text: str | PathLike[str]) -> Plan:
    """Return the plan of a `plan.json`, after checking its digest and proving it again.

    The zone, the noise, and the offsets of the time zone are taken from the file. Everything else is computed again and
    must agree, numbers to a millionth (another machine may round the last digits differently).

    Args:
        text: The content of `plan.json`, as `Plan.to_json` or `murmurate plan` wrote it, or its path.

    Returns:
        The plan.

    Raises:
        PrivacyError: The text is not a plan, a byte was changed, or the noise does not keep a promise.
        OSError: The file of this path cannot be read.

    Example:
        >>> import murmurate as mm
        >>> text = mm.EXAMPLE_ZONE_FILE.replace("any 24 h: epsilon 1, delta 1e-6", "interval: 0.5")
        >>> text = text.replace(', "any moment: 1"', "")
        >>> written = mm.make_plan(mm.parse_zone(text)).to_json()
        >>> mm.load_plan(written).zone.name
        'harbour'
        >>> mm.load_plan(written.replace("harbour", "hill"))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        murmurate.errors.PrivacyError: digest is ...: must be the digest of the plan: the file was changed
    """
    try:
        document: dict[str, Any] = json.loads(read_text(text) if isinstance(text, PathLike) else text)
        meters = {
            (kind["meters"], kind["name"]): MeterSummary(
                kind["count"], kind["bound_wh"], kind.get("export_bound_wh", 0)
            )
            for kind in document["households"]
        }
        distribution, scale_wh = NoiseDistribution(document["noise"]), np.array(document["scale_wh"], np.float64)
        core_wh, clock = np.array(document["core_wh"], np.int64), _clock_from_document(document["clock"])
        prediction = ZonePrediction.from_document(document["prediction"]) if "prediction" in document else None
        source, digest, cost = str(document["zone_file"]), document["digest"], _release_costs_micro(document)
    except (ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
    if digest != compute_plan_digest(document):
        raise PrivacyError("digest", digest, "must be the digest of the plan: the file was changed")

    def stated_forecast(_: str) -> PublicForecast:
        if prediction is None:
            raise PrivacyError("prediction", "missing", "must be in a plan whose zone file names a forecast")
        return prediction.model.public

    zone = parse_zone(
        source,
        lambda file, _, kind: meters[file, kind],
        read_forecast=stated_forecast,
        read_clock=lambda _: clock,
    )
    check_stated_prediction(zone, prediction)
    plan = prove_plan(zone, distribution, scale_wh, core_wh, prediction)
    computed = plan.to_document() | {"digest": digest}
    proven_cost = _release_costs_micro(computed)
    same_cost = cost.shape == proven_cost.shape and bool((np.abs(cost - proven_cost) <= 1).all())
    if not same_cost or not _documents_agree(computed | {"cost": None}, document | {"cost": None}):
        raise PrivacyError("plan", "not what its zone file gives", "must be made again by murmurate plan")
    stated = [promise["spent"] for promise in document["promises"]]
    costs = tuple(replace(cost, spent=spent) for cost, spent in zip(plan.costs, stated, strict=True))
    return replace(plan, costs=costs)


def _clock_from_document(clock: dict[str, Any]) -> LocalClock:
    """Return the clock of the plan. The log verifier compares it with the time zone database."""
    changes = tuple((int(minute), int(before), int(after)) for minute, before, after in clock["changes"])
    offsets = tuple(int(offset) for offset in clock["offsets_min"])
    distinct = set(offsets)
    invalid = any({before, after} - distinct or not 0 <= minute <= 1440 for minute, before, after in changes)
    if not offsets or list(offsets) != sorted(distinct) or invalid:
        raise ValueError
    return LocalClock(name=str(clock["time_zone"]), offsets_min=offsets, changes=changes)


def _release_costs_micro(document: dict[str, Any]) -> Any:
    """Return the costs of the releases, rounded up. The last digit may differ between machines."""
    return np.array([document["cost"]["epsilon_micro"], document["cost"]["rho_micro"]], np.int64)


def _documents_agree(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_documents_agree(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_documents_agree(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) or isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-9)
    return bool(left == right)
