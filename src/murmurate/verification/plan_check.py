"""Hold each record against its plan, which is proven anew, and each change of plan against what was released before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from murmurate.errors import MurmurateError
from murmurate.planning.digest import compute_plan_digest
from murmurate.planning.plan import Plan
from murmurate.planning.plan_change import check_plan_change, lookback_intervals
from murmurate.planning.plan_file import load_plan
from murmurate.planning.plan_history import PlanHistory
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.record import RELEASE_KINDS, Record, RecordKind
from murmurate.time_zones import utc_offset_min
from murmurate.verification.report import PlanSummary

_PLAN_MARKER = '"murmurate_plan"'
_PLAN_ERRORS = (MurmurateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, eq=False)
class ProvenPlan:
    """A plan that was proven anew, in plain numbers by the interval of the day."""

    plan: Plan
    terms: ReleaseTerms
    measured_members: tuple[dict[str, object], ...]  # what a measured record must say
    forecast_ticks: tuple[int, ...]

    @classmethod
    def from_json(cls, text: str) -> ProvenPlan:
        plan, terms = load_plan(text), ReleaseTerms.from_json(text)
        measured = tuple(terms.noise_members(slot) for slot in range(len(terms.scale_wh)))
        return cls(plan, terms, measured, tuple(terms.forecast_ticks.tolist()))

    def summarize(self) -> PlanSummary:
        costs = (f"{cost.promise} (at most {cost.spent:.4g})" for cost in self.plan.costs)
        return PlanSummary(self.terms.plan_digest, self.terms.zone, tuple(costs))

    def disagreements(self, record: Record) -> Iterator[str]:
        """Where a record does not say what its plan says, in words."""
        terms, slot = self.terms, self.terms.slot_of_day(record.interval)
        wanted: dict[str, object] = {"interval_s": terms.interval_s, "currency": terms.currency, "tick": terms.tick}
        if record.kind is RecordKind.MEASURED:
            wanted |= self.measured_members[slot]
            floor, cap = terms.curve.floor, terms.curve.cap
            price = (record.price_ticks or 0) * terms.curve.tick
            if (floor is not None and price < floor) or (cap is not None and price > cap):
                yield f"price_ticks is {record.price_ticks}: the plan's prices lie from {floor} to {cap}"
        if record.kind is RecordKind.FORECAST:
            wanted["price_ticks"] = self.forecast_ticks[slot]
        for name, value in wanted.items():
            if getattr(record, name) != value:
                yield f"{name} is {getattr(record, name)}: the plan says {value}"

    def clock_mismatch(self, record: Record) -> str | None:
        """Why the plan does not cover the local time of a record: its clocks show what the plan did not reckon with."""
        clock, step = self.plan.zone.clock, record.interval_s
        for at_s in (record.interval * step, (record.interval + 1) * step - 1):
            found = _utc_offset_min(clock.name, at_s)
            if found is not None and found not in clock.offsets_min:
                known = ", ".join(f"{offset:+d}" for offset in clock.offsets_min)
                return f"clocks of {clock.name} are {found:+d} min from UTC then; the plan is proven for {known}"
        return None


@dataclass(slots=True)
class PlanStore:
    """The plans at hand, by digest. Each is proven when a chain first names it, and once."""

    _texts: dict[str, str] = field(default_factory=dict)
    _proven: dict[str, ProvenPlan | str] = field(default_factory=dict)

    def add_document(self, text: str) -> bool:
        """Keep a plan document; False if it is none."""
        try:
            document: Any = json.loads(text) if _PLAN_MARKER in text else None
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


@dataclass(slots=True)
class Account:
    """One zone under its plans: what was released under each, as far back as a change must look."""

    plan_in_force: ProvenPlan | None = None
    _complete: bool = False  # whether it began with the chain
    _end: int = 0  # the interval after the last one
    _runs: list[tuple[ProvenPlan, bool, int]] = field(
        default_factory=list
    )  # (plan, measured, so many intervals), in order

    def book_record(self, record: Record, proven: ProvenPlan) -> Iterator[tuple[str, str]]:
        """Hold a record against its plan: each rule that it breaks, with words."""
        for words in proven.disagreements(record):
            yield "terms", words
        if self.plan_in_force is not proven:
            yield from self._check_change(proven)
            self.plan_in_force = proven
        if record.kind is RecordKind.OPEN:
            self._complete = True
        if record.kind in RELEASE_KINDS:
            if record.kind is RecordKind.MEASURED and (wrong := proven.clock_mismatch(record)):
                yield "clock", wrong
            self._release(record, proven)

    def _release(self, record: Record, proven: ProvenPlan) -> None:
        if self._runs and record.interval != self._end:  # records are missing: nothing is known of the time before
            self._runs, self._complete = [], False
        measured, count = record.kind is RecordKind.MEASURED, 0
        if self._runs and self._runs[-1][:2] == (proven, measured):
            count = self._runs.pop()[2]
        self._runs.append((proven, measured, count + 1))
        self._end = record.interval + 1

    def history(self, after: Plan) -> PlanHistory:
        """The newest intervals, as many as a change to `after` must look back."""
        longest = lookback_intervals([*dict.fromkeys(proven.plan for proven, _, _ in self._runs), after])
        releases: list[tuple[Plan, bool]] = []
        for proven, measured, count in reversed(self._runs):
            releases += [(proven.plan, measured)] * min(count, longest - len(releases))
        whole = self._complete and len(releases) == sum(count for _, _, count in self._runs)
        return PlanHistory.from_releases(releases[::-1], first=self._end - len(releases), complete=whole)

    def _check_change(self, after: ProvenPlan) -> Iterator[tuple[str, str]]:
        if not self._runs:
            return
        try:
            check_plan_change(self.history(after.plan), after.plan)
        except MurmurateError as error:
            yield "change", f"moments or windows across this change may cost more than promised: {error}"


@lru_cache(maxsize=4096)
def _utc_offset_min(time_zone: str, at_s: int) -> int | None:
    """None where this machine knows nothing about that zone or time."""
    try:
        return utc_offset_min(time_zone, at_s)
    except (MurmurateError, OverflowError, OSError, ValueError):
        return None
