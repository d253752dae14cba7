"""Read a `plan.json` again: check its digest, read its zone anew, and prove it anew."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from murmurate.curator.plan import Plan, digest, prove
from murmurate.curator.zonefile import MeterSummary, parse_zone
from murmurate.errors import PrivacyError
from murmurate.household.independence import IndependenceTest
from murmurate.privacy.noise import NoiseLaw


def load_plan(text: str) -> Plan:
    """The plan in a `plan.json`. Raises PrivacyError if a byte was changed, or if it does not keep its promise.

    Nothing in the file is believed but the zone and the scales: costs are computed again, and the document must come
    out the same to the last digit.
    """
    try:
        document: dict[str, Any] = json.loads(text)
        kinds = {kind["name"]: MeterSummary(kind["count"], kind["bound_wh"]) for kind in document["households"]}
        tested = document["independence"]
        law, scale_wh = NoiseLaw(document["noise"]), np.array(document["scale_wh"], np.float64)
        source = str(document["zone_file"])
    except (ValueError, KeyError, TypeError):
        raise PrivacyError("plan", "unreadable", "must be a plan.json written by murmurate plan") from None
    if document.get("digest") != digest(document):
        raise PrivacyError("digest", document.get("digest"), "must be that of the plan: something was changed")
    files = iter(kinds.values())
    zone = parse_zone(source, lambda _: next(files), None if tested is None else IndependenceTest(**tested))
    plan = prove(zone, law, scale_wh)
    if digest(plan.document()) != document["digest"]:
        raise PrivacyError("plan", "not what its zone file gives", "must be made again by murmurate plan")
    return plan
