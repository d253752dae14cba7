"""Load a `plan.json`: check its digest, parse its zone file and prove the plan again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from murmurate.errors import PrivacyError
from murmurate.planning.digest import compute_plan_digest
from murmurate.planning.plan import Plan, prove_plan
from murmurate.planning.plan_prediction import check_stated_prediction
from murmurate.planning.zone_file import MeterSummary, parse_zone
from murmurate.prediction.public_forecast import PublicForecast
from murmurate.prediction.zone_prediction import ZonePrediction
from murmurate.privacy.noise import NoiseDistribution
from murmurate.time_zones import LocalClock


def load_plan(text: str) -> Plan:
    """Return the plan of a `plan.json`, after checking its digest and proving it again.

    The zone, the noise, and the offsets of the time zone are taken from the file. Everything else is computed again and
    must agree, numbers to a millionth (another machine may round the last digits differently).

    Args:
        text: The content of `plan.json`, as `Plan.to_json` or `murmurate plan` wrote it.

    Returns:
        The plan.

    Raises:
        PrivacyError: The text is not a plan, a byte was changed, or the noise does not keep a promise.

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
        document: dict[str, Any] = json.loads(text)
        meters = {
            (kind["meters"], kind["name"]): MeterSummary(kind["count"], kind["bound_wh"])
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
    zone = parse_zone(
        source,
        lambda file, _, kind: meters[file, kind],
        read_forecast=lambda _: _stated_forecast(prediction),
        read_clock=lambda _: clock,
    )
    check_stated_prediction(zone, prediction)
    plan = prove_plan(zone, distribution, scale_wh, core_wh, prediction)
    computed = plan.to_document() | {"digest": digest}
    same_cost = cost.shape == _release_costs_micro(computed).shape and bool(
        (np.abs(cost - _release_costs_micro(computed)) <= 1).all()
    )
    if not same_cost or not _documents_agree(computed | {"cost": None}, document | {"cost": None}):
        raise PrivacyError("plan", "not what its zone file gives", "must be made again by murmurate plan")
    stated = [promise["spent"] for promise in document["promises"]]
    costs = tuple(replace(cost, spent=spent) for cost, spent in zip(plan.costs, stated, strict=True))
    return replace(plan, costs=costs)


def _stated_forecast(prediction: ZonePrediction | None) -> PublicForecast:
    """Return the public forecast that the plan was made with."""
    if prediction is None:
        raise PrivacyError("prediction", "missing", "must be in a plan whose zone file names a forecast")
    return prediction.model.public


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
