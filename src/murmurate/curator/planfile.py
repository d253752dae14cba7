"""Read a `plan.json` again: check its digest, read its zone anew, and prove it anew."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from murmurate.curator.document import digest
from murmurate.curator.plan import Plan, prove
from murmurate.curator.zonefile import MeterSummary, parse_zone
from murmurate.errors import PrivacyError
from murmurate.privacy.noise import NoiseLaw
from murmurate.time_zones import LocalClock


def load_plan(text: str) -> Plan:
    """The plan in a `plan.json`. Raises PrivacyError if a byte was changed, or if it does not keep its promise.

    Nothing in the file is believed but the zone, the noise, and what the time zone database said when it was made:
    everything else is computed again and must agree, numbers to a millionth (another machine may round its last digits
    otherwise).
    """
    try:
        document: dict[str, Any] = json.loads(text)
        files = {kind["meters"]: MeterSummary(kind["count"], kind["bound_wh"]) for kind in document["households"]}
        tested = document["tested"] is True
        law, scale_wh = NoiseLaw(document["noise"]), np.array(document["scale_wh"], np.float64)
        core_wh, clock = np.array(document["core_wh"], np.int64), _clock(document["clock"])
        source, sealed, cost = str(document["zone_file"]), document["digest"], _millionths(document)
    except (ValueError, KeyError, TypeError):
        raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
    if sealed != digest(document):
        raise PrivacyError("digest", sealed, "must be that of the plan: something was changed")
    plan = prove(
        parse_zone(source, files.__getitem__, tested=tested, read_clock=lambda _: clock), law, scale_wh, core_wh
    )
    again = plan.document() | {"digest": sealed}
    same_cost = cost.shape == _millionths(again).shape and bool((np.abs(cost - _millionths(again)) <= 1).all())
    if not same_cost or not _alike(again | {"cost": None}, document | {"cost": None}):
        raise PrivacyError("plan", "not what its zone file gives", "must be made again by murmurate plan")
    stated = [promise["spent"] for promise in document["promises"]]
    costs = tuple(replace(cost, spent=spent) for cost, spent in zip(plan.costs, stated, strict=True))
    return replace(plan, costs=costs)


def _clock(given: dict[str, Any]) -> LocalClock:
    """The offsets of the time zone as the plan states them. Whoever verifies a log holds them against the database."""
    changes = tuple((int(minute), int(before), int(after)) for minute, before, after in given["changes"])
    offsets = tuple(int(offset) for offset in given["offsets_min"])
    known = set(offsets)
    strange = any({before, after} - known or not 0 <= minute <= 1440 for minute, before, after in changes)
    if not offsets or list(offsets) != sorted(known) or strange:
        raise ValueError
    return LocalClock(name=str(given["time_zone"]), offsets_min=offsets, changes=changes)


def _millionths(document: dict[str, Any]) -> Any:
    """The cost of each release, rounded up: the last digit may differ between machines."""
    return np.array([document["cost"]["epsilon_micro"], document["cost"]["rho_micro"]], np.int64)


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return bool(one == other)
