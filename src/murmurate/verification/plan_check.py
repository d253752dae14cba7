"""Plans, each proven anew, and changes of plan, each held against what was released before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.planning.plan import Plan, load_plan
from murmurate.planning.plan_change import PlanHistory, check_plan_change, lookback_intervals
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.privacy.noise import NoiseDistribution
from murmurate.public_log.tile import NoiseCode, Rows
from murmurate.time_zones import utc_offset_min
from murmurate.units import BoolArray
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
    """The plans at hand, by digest. Each is proven when a chain first names it, and once."""

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


class ReleaseRun(NamedTuple):
    """Successive intervals of a zone under one plan, all measured or none."""

    plan: ProvenPlan
    measured: bool
    length: int  # intervals


def encode_runs(plan: ProvenPlan, measured: BoolArray) -> list[ReleaseRun]:
    """Return the runs of successive intervals under one plan."""
    if not len(measured):
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(measured)) + 1, [len(measured)]])
    return [ReleaseRun(plan, bool(measured[at]), int(end - at)) for at, end in pairwise(starts)]


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    """What was released for one zone, as far back as it is known."""

    runs: tuple[ReleaseRun, ...]  # oldest first
    end: int  # the interval after the last one
    complete: bool  # whether they reach back to where the zone was opened

    @classmethod
    def from_runs(cls, runs: Iterable[ReleaseRun], *, end: int, complete: bool) -> ReleaseHistory:
        """Return the history of these runs. Neighbours of one kind are joined."""
        joined: list[ReleaseRun] = []
        for run in runs:
            if joined and joined[-1][:2] == run[:2]:
                joined[-1] = run._replace(length=joined[-1].length + run.length)
            else:
                joined.append(run)
        return cls(tuple(joined), end, complete)

    @property
    def begin(self) -> int:
        """The first interval."""
        return self.end - sum(run.length for run in self.runs)

    def to_plan_history(self, after: Plan) -> PlanHistory:
        """Return the newest intervals, as many as a change to `after` must look back."""
        longest = lookback_intervals([*dict.fromkeys(run.plan.plan for run in self.runs), after])
        releases: list[tuple[Plan, bool]] = []
        for run in reversed(self.runs):
            releases += [(run.plan.plan, run.measured)] * min(run.length, longest - len(releases))
        whole = self.complete and len(releases) == sum(run.length for run in self.runs)
        return PlanHistory.from_releases(releases[::-1], first=self.end - len(releases), complete=whole)


@dataclass(slots=True)
class ChangeCheck:
    """Changes of plan. Zones with one history are checked together."""

    _results: dict[tuple[ReleaseHistory, ProvenPlan], str | None] = field(default_factory=dict)

    def find_broken_promise(self, history: ReleaseHistory, after: ProvenPlan) -> str | None:
        """Return why a change to `after` may cost more than was promised; None where it does not."""
        if not history.runs:
            return None
        key = (history, after)
        if key not in self._results:
            try:
                check_plan_change(history.to_plan_history(after.plan), after.plan)
                self._results[key] = None
            except MurmurateError as error:
                words = f"moments or windows across this change may cost more than promised: {error}"
                self._results[key] = words
        return self._results[key]
