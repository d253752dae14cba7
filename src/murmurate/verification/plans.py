"""Plans, each proven anew, and what each says about the rows that are released under it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.planning.plan import Plan, load_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import NoiseCode, Rows
from murmurate.time_zones import utc_offset_min
from murmurate.verification.report import PlanSummary

_PLAN_ERRORS = (MurmurateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
_NOISE_CODES = {
    NoiseDistribution.LAPLACE: NoiseCode.LAPLACE,
    NoiseDistribution.HUBER: NoiseCode.HUBER,
    NoiseDistribution.GAUSSIAN: NoiseCode.GAUSSIAN,
}
_EXPECTED_ROW = np.dtype(
    [
        ("noise", "u1"),
        ("scale_wh", "<f8"),
        ("core_wh", "<i8"),
        ("epsilon_micro", "<i8"),
        ("rho_micro", "<i8"),
        ("forecast_ticks", "<i8"),
        ("floor_ticks", "<i8"),
        ("cap_ticks", "<i8"),
    ]
)
NOISE_COLUMNS = ("noise", "scale_wh", "core_wh", "epsilon_micro", "rho_micro")  # that a plan fixes
_MIN_TICKS, _MAX_TICKS = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class ProvenPlan:
    """A plan that was proven anew, and what it says about the row of each interval of the day."""

    plan: Plan
    terms: ReleaseTerms
    expected: Rows  # [interval of the day]

    @classmethod
    def from_json(cls, text: str) -> ProvenPlan:
        plan, terms = load_plan(text), ReleaseTerms.from_json(text)
        expected = np.zeros(len(terms.scale_wh), _EXPECTED_ROW)
        expected["noise"] = _NOISE_CODES[terms.distribution]
        for column in (*NOISE_COLUMNS[1:], "forecast_ticks"):
            expected[column] = getattr(terms, column)
        floor, cap, tick = terms.curve.floor, terms.curve.cap, terms.curve.tick
        expected["floor_ticks"] = _MIN_TICKS if floor is None else max(_MIN_TICKS, -(-floor // tick))
        expected["cap_ticks"] = _MAX_TICKS if cap is None else min(_MAX_TICKS, cap // tick)
        return cls(plan, terms, expected)

    def expected_row(self, interval: int) -> Rows:
        """Return what the plan says about an interval, as an array of one."""
        slot = self.terms.slot_of_day(interval)
        return self.expected[slot : slot + 1]

    def summarize(self) -> PlanSummary:
        costs = (f"{cost.promise} (at most {cost.spent:.4g})" for cost in self.plan.costs)
        return PlanSummary(self.terms.plan_digest, self.terms.zone, tuple(costs))

    def clock_mismatch(self, interval: int, interval_s: int) -> str | None:
        """Return why the plan does not cover the local time of an interval; None where it does."""
        return _clock_mismatch(self.plan.zone.clock.name, self.plan.zone.clock.offsets_min, interval, interval_s)


@lru_cache(maxsize=4096)
def _clock_mismatch(time_zone: str, offsets_min: tuple[int, ...], interval: int, interval_s: int) -> str | None:
    for at_s in (interval * interval_s, (interval + 1) * interval_s - 1):
        found = _utc_offset_min(time_zone, at_s)
        if found is not None and found not in offsets_min:
            known = ", ".join(f"{offset:+d}" for offset in offsets_min)
            return f"clocks of {time_zone} are {found:+d} min from UTC then; the plan is proven for {known}"
    return None


@lru_cache(maxsize=4096)
def _utc_offset_min(time_zone: str, at_s: int) -> int | None:
    """None where this machine knows nothing about that zone or time."""
    try:
        return utc_offset_min(time_zone, at_s)
    except (MurmurateError, OverflowError, OSError, ValueError):
        return None


@dataclass(slots=True)
class PlanStore:
    """The plans that were given, by digest. Each is proven once, when a chain first names it."""

    _texts: dict[str, str] = field(default_factory=dict)
    _proven: dict[str, ProvenPlan | str] = field(default_factory=dict)

    def add_document(self, text: str) -> bool:
        """Keep a plan document; False if it is none."""
        try:
            document: Any = json.loads(text)
            claimed = document["digest"] if isinstance(document, dict) and "murmurate_plan" in document else None
            right = claimed == compute_plan_digest(document) if isinstance(claimed, str) else False
        except _PLAN_ERRORS:
            return False
        if not isinstance(claimed, str):
            return False
        if right or claimed not in self._texts:
            self._texts[claimed] = text
        return True

    def proven_plan(self, digest: str) -> ProvenPlan | str | None:
        """The plan with this digest, or why it is none; None where it was not given."""
        if digest not in self._proven and digest in self._texts:
            try:
                self._proven[digest] = ProvenPlan.from_json(self._texts[digest])
            except _PLAN_ERRORS as error:
                self._proven[digest] = str(error) if isinstance(error, MurmurateError) else "it cannot be read"
        return self._proven.get(digest)
