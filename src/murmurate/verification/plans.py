"""Plans, each proven again, what each says about the rows that are released under it, and the rows checked by them.

Predicted prices are computed again: from the plan, the row before of each zone, its noised demand, and public inputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from murmurate.errors import ChainError, MurmurateError
from murmurate.planning.plan import Plan, load_plan
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from murmurate.prediction.public_inputs import from_extensions
from murmurate.public_log.predicted_rows import Carried, PredictedZones, has_predicted_columns
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, TileHeader
from murmurate.public_log.tile_chain import COST_COLUMNS
from murmurate.time_zones import LocalClock, utc_offset_min
from murmurate.units import IntArray
from murmurate.verification.report import BrokenRule, PlanSummary, ZoneSummary

_PLAN_ERRORS = (MurmurateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
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
_NOISE_COLUMNS = ("noise", "scale_wh", "core_wh", "epsilon_micro", "rho_micro")  # that a plan fixes
_MIN_TICKS, _MAX_TICKS = -(2**63), 2**63 - 1
_NOISE_NAMES = {code.value: code.name.lower() for code in NoiseCode}
_PREDICTION = "prediction"  # the rule


@dataclass(frozen=True, slots=True, eq=False)
class ProvenPlan:
    """A plan that was proven again, and what it says about the row of each interval of the day."""

    plan: Plan
    terms: ReleaseTerms
    expected: Rows  # [interval of the day]

    @classmethod
    def from_json(cls, text: str) -> ProvenPlan:
        plan, terms = load_plan(text), ReleaseTerms.from_json(text)
        expected = np.zeros(len(terms.scale_wh), _EXPECTED_ROW)
        expected["noise"] = NoiseCode[terms.distribution.name]
        for column in (*_NOISE_COLUMNS[1:], "forecast_ticks"):
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


@lru_cache(maxsize=4096)
def _clock_mismatch(clock: LocalClock, interval: int, interval_s: int) -> str | None:
    """Return why a plan does not cover the local time of an interval; None where it does, or the time is unknown."""
    for at_s in (interval * interval_s, (interval + 1) * interval_s - 1):
        try:
            found = utc_offset_min(clock.name, at_s)
        except (MurmurateError, OverflowError, OSError, ValueError):
            continue
        if found not in clock.offsets_min:
            known = ", ".join(f"{offset:+d}" for offset in clock.offsets_min)
            return f"clocks of {clock.name} are {found:+d} min from UTC then; the plan is proven for {known}"
    return None


class PlanStore:
    """The plans that were given, by digest. Each is proven once, when a chain first names it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._proven: dict[str, ProvenPlan | str] = {}

    def add_document(self, text: str) -> bool:
        """Keep a plan document; False if it is none."""
        try:
            document: Any = json.loads(text)
            claimed = document["digest"] if "murmurate_plan" in document else None
            if not isinstance(claimed, str):
                return False
            if claimed == compute_plan_digest(document) or claimed not in self._texts:
                self._texts[claimed] = text
        except _PLAN_ERRORS:
            return False
        return True

    def proven_plan(self, digest: str) -> ProvenPlan | str | None:
        """The plan with this digest, or why it is none; None where it was not given."""
        if digest not in self._proven and digest in self._texts:
            try:
                self._proven[digest] = ProvenPlan.from_json(self._texts[digest])
            except _PLAN_ERRORS as error:
                self._proven[digest] = str(error) if isinstance(error, MurmurateError) else "it cannot be read"
        return self._proven.get(digest)


class RowTerms:
    """Check the rows of a release against the plans of their zones, all rows at once.

    Rows whose plan is missing or not proven are left out.
    """

    def __init__(self, zones: tuple[str, ...], plan_of_row: Sequence[ProvenPlan | None]) -> None:
        self.zones = zones
        self._terms = [None if plan is None else plan.terms for plan in plan_of_row]
        self._plans = tuple(dict.fromkeys(plan for plan in plan_of_row if plan is not None))  # each once
        position: dict[ProvenPlan | None, int] = {plan: number for number, plan in enumerate(self._plans)}
        self._plan_index = np.array([position.get(plan, 0) for plan in plan_of_row], np.int64)  # [row] 0: none
        self._has_plan = np.array([terms is not None for terms in self._terms], np.bool_)
        predicted = [terms is not None and terms.prediction is not None for terms in self._terms]
        self._is_predicted = np.array(predicted, np.bool_)
        self._reads_meters = np.array([terms is None or terms.reads_meters for terms in self._terms], np.bool_)

    def broken_terms(self, header: TileHeader, rows: Rows, carried: Carried | None) -> Iterator[BrokenRule]:
        """Yield where rows do not say what their plans say.

        `carried` is what follows from the rows before; None: they are not known, and only prices are checked.
        """
        if not self._plans:
            return
        expected = np.concatenate([plan.expected_row(header.interval) for plan in self._plans])[self._plan_index]
        kind, price = rows["kind"], rows["price_ticks"]
        measured = self._has_plan & (kind == RowKind.MEASURED)
        wrong = self._has_plan & ~self._is_predicted & (kind == RowKind.FALLBACK)
        wrong &= price != expected["forecast_ticks"]
        wrong |= measured & ((price < expected["floor_ticks"]) | (price > expected["cap_ticks"]))
        for column in _NOISE_COLUMNS:
            wrong |= measured & (rows[column] != expected[column])
        yield from self._broken_kinds(kind)
        for at in np.flatnonzero(wrong).tolist():
            for words in self._describe(at, rows[at], expected[at]):
                yield BrokenRule(self.zones[at], "terms", words)
        mismatches = [_clock_mismatch(plan.plan.zone.clock, header.interval, header.interval_s) for plan in self._plans]
        for at in np.flatnonzero(measured).tolist() if any(mismatches) else ():
            mismatch = mismatches[int(self._plan_index[at])]
            if mismatch is not None:
                yield BrokenRule(self.zones[at], "clock", mismatch)
        if self._is_predicted.any():
            yield from self._broken_predictions(header, rows, carried)

    def _broken_kinds(self, kind: IntArray) -> Iterator[BrokenRule]:
        """Yield where a kind is not one of the plan: one that reads no meter has public rows, and no other has them."""
        is_public = kind == RowKind.PUBLIC
        wrong = self._has_plan & (is_public == self._reads_meters) & (kind != RowKind.WITHHELD)
        for at in np.flatnonzero(wrong).tolist():
            reads = "reads meters" if self._reads_meters[at] else "reads no meter"
            yield BrokenRule(self.zones[at], "terms", f"kind is {RowKind(kind[at]).name.lower()}: the plan {reads}")

    def _describe(self, at: int, row: np.void, expected: np.void) -> Iterator[str]:
        if row["kind"] == RowKind.FALLBACK:
            yield f"price_ticks is {row['price_ticks']}: the plan's fallback price is {expected['forecast_ticks']}"
            return
        terms = self._terms[at]
        if terms is not None and not expected["floor_ticks"] <= row["price_ticks"] <= expected["cap_ticks"]:
            limits = f"from {terms.curve.floor} to {terms.curve.cap}"
            yield f"price_ticks is {row['price_ticks']}: the plan's prices lie {limits}"
        for column in _NOISE_COLUMNS:
            if row[column] != expected[column]:
                value, planned = row[column], expected[column]
                if column == "noise":
                    value, planned = (_NOISE_NAMES.get(int(code), code) for code in (value, planned))
                yield f"{column} is {value}: the plan says {planned}"

    def _broken_predictions(self, header: TileHeader, rows: Rows, carried: Carried | None) -> Iterator[BrokenRule]:
        """Yield where states or a price are not what the plan predicts."""
        interval, lead = header.interval, header.lead
        try:
            if not has_predicted_columns(header):
                raise ChainError("row", "without a column", "must hold what its price is predicted from")
            predicted = PredictedZones(rows, self._terms, from_extensions(header.extensions))
            price_ticks = predicted.price(rows["states"], interval, lead)
            states = None if carried is None else predicted.step(rows, carried, interval, lead)
        except (MurmurateError, ArithmeticError) as error:
            words = f"the price cannot be computed: {error}"
            yield from (BrokenRule(self.zones[at], _PREDICTION, words) for at in np.flatnonzero(self._is_predicted))
            return
        numbers = predicted.numbers.tolist()
        for at, stated, price in zip(numbers, rows["price_ticks"][numbers].tolist(), price_ticks.tolist(), strict=True):
            if stated != price:
                yield BrokenRule(self.zones[at], _PREDICTION, f"price_ticks is {stated}: the plan predicts {price}")
        if carried is not None and states is not None:
            yield from self._broken_states(header, rows, carried, states)

    def _broken_states(
        self, header: TileHeader, rows: Rows, carried: Carried, states: IntArray
    ) -> Iterator[BrokenRule]:
        """Yield where states or prices that are due do not follow from the rows."""
        states_differ = (rows["states"] != states).any(axis=1)
        due_differs = (rows["due"] != carried.due[:, 1:]).any(axis=1) if header.lead > 1 else states_differ & False
        for at in np.flatnonzero(self._is_predicted & (due_differs | states_differ)).tolist():
            if due_differs[at]:
                yield BrokenRule(self.zones[at], _PREDICTION, "due is not what was decided in the rows before")
            if states_differ[at]:
                stays = "those of" if rows["kind"][at] == RowKind.WITHHELD else "what follows from"
                yield BrokenRule(self.zones[at], _PREDICTION, f"states are not {stays} the row before")


class ZoneTally:
    """Counts of the rows of a chain under one zone table that are not yet in the summaries, all zones at once."""

    def __init__(self) -> None:
        self.first, self.last = 0, 0  # interval
        self.rows: Rows | None = None  # the last ones
        self.begin([], 0)

    def begin(self, summaries: list[tuple[int, ZoneSummary]], zone_count: int) -> None:
        """Count from here on the rows of these zones, each with the number of its row."""
        self.flush()
        self.summaries, self.counts = summaries, np.zeros((len(RowKind), zone_count), np.int64)  # [kind, row]

    def add_rows(self, interval: int, rows: Rows) -> None:
        if self.rows is None:
            self.first = interval
        self.last, self.rows = interval, rows
        for number, kind in enumerate(RowKind):
            self.counts[number] += rows["kind"] == kind

    def flush(self) -> None:
        """Add what was counted to the summaries."""
        if self.rows is None:
            return
        for at, summary in self.summaries:
            counts = zip(RowKind, self.counts[:, at].tolist(), strict=True)
            kinds = Counter({kind.name.lower(): count for kind, count in counts if count})
            epsilon, rho = (int(self.rows[f"total_{cost}"][at]) for cost in COST_COLUMNS)
            summary.add_rows(kinds, self.first, self.last, (epsilon, rho))
        self.counts[:] = 0
        self.rows = None
