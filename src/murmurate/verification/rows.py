"""Check the rows of a release against the plans of their zones, all rows at once, and count them for the summaries.

Predicted prices are computed again: from the plan, the row before of each zone, the noised demand, and the pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.predicted_rows import Carried, Pool, PredictedZones, has_predicted_columns
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, TileHeader
from murmurate.public_log.tile_chain import COST_COLUMNS
from murmurate.units import BoolArray, IntArray
from murmurate.verification.plans import NOISE_COLUMNS, ProvenPlan
from murmurate.verification.report import BrokenRule, ZoneSummary

_NOISE_NAMES = {code.value: code.name.lower() for code in NoiseCode}
_PREDICTION = "prediction"  # the rule
_NO_COUNTS: IntArray = np.zeros((len(RowKind), 0), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RowTerms:
    """The plan of each row. Rows whose plan is missing or not proven are left out."""

    zones: tuple[str, ...]  # [row]
    plans: tuple[ProvenPlan, ...]  # each once
    plan_index: IntArray  # [row] position in `plans`; 0 where there is none
    has_plan: BoolArray  # [row]
    is_predicted: BoolArray  # [row] whether its plan predicts prices

    @classmethod
    def from_plans(cls, zones: tuple[str, ...], plan_of_row: Sequence[ProvenPlan | None]) -> RowTerms:
        """Return the terms of the rows of zones with these plans."""
        plans = tuple(dict.fromkeys(plan for plan in plan_of_row if plan is not None))
        position: dict[ProvenPlan | None, int] = {plan: number for number, plan in enumerate(plans)}
        index = np.array([position.get(plan, 0) for plan in plan_of_row], np.int64)
        has_plan = [plan is not None for plan in plan_of_row]
        predicted = [plan is not None and plan.terms.prediction is not None for plan in plan_of_row]
        return cls(zones, plans, index, np.array(has_plan, np.bool_), np.array(predicted, np.bool_))

    def broken_terms(self, header: TileHeader, rows: Rows, carried: Carried | None) -> Iterator[BrokenRule]:
        """Yield where rows do not say what their plans say.

        `carried` is what follows from the rows before; None: they are not known, and only prices are checked.
        """
        if not self.plans:
            return
        expected = np.concatenate([plan.expected_row(header.interval) for plan in self.plans])[self.plan_index]
        kind, price = rows["kind"], rows["price_ticks"]
        measured = self.has_plan & (kind == RowKind.MEASURED)
        wrong = self.has_plan & ~self.is_predicted & (kind == RowKind.FALLBACK) & (price != expected["forecast_ticks"])
        wrong |= measured & ((price < expected["floor_ticks"]) | (price > expected["cap_ticks"]))
        for column in NOISE_COLUMNS:
            wrong |= measured & (rows[column] != expected[column])
        for at in np.flatnonzero(wrong).tolist():
            for words in self._describe(at, rows[at], expected[at]):
                yield BrokenRule(self.zones[at], "terms", words)
        mismatches = [plan.clock_mismatch(header.interval, header.interval_s) for plan in self.plans]
        for at in np.flatnonzero(measured).tolist() if any(mismatches) else ():
            mismatch = mismatches[int(self.plan_index[at])]
            if mismatch is not None:
                yield BrokenRule(self.zones[at], "clock", mismatch)
        if self.is_predicted.any():
            yield from self._broken_predictions(header, rows, carried)

    def _describe(self, at: int, row: np.void, expected: np.void) -> Iterator[str]:
        if row["kind"] == RowKind.FALLBACK:
            yield f"price_ticks is {row['price_ticks']}: the plan's fallback price is {expected['forecast_ticks']}"
            return
        curve = self.plans[int(self.plan_index[at])].terms.curve
        if not expected["floor_ticks"] <= row["price_ticks"] <= expected["cap_ticks"]:
            yield f"price_ticks is {row['price_ticks']}: the plan's prices lie from {curve.floor} to {curve.cap}"
        for column in NOISE_COLUMNS:
            if row[column] != expected[column]:
                value, planned = row[column], expected[column]
                if column == "noise":
                    value, planned = (_NOISE_NAMES.get(int(code), code) for code in (value, planned))
                yield f"{column} is {value}: the plan says {planned}"

    def _broken_predictions(self, header: TileHeader, rows: Rows, carried: Carried | None) -> Iterator[BrokenRule]:
        """Yield where states or a price are not what the plan predicts."""
        interval, lead = header.interval, header.lead
        index = zip(self.plan_index.tolist(), self.has_plan.tolist(), strict=True)
        terms = [self.plans[at].terms if has_plan else None for at, has_plan in index]
        try:
            if not has_predicted_columns(header):
                raise ChainError("row", "without a column", "must hold what its price is predicted from")
            pool, predicted = Pool.from_header(header), PredictedZones(rows, terms)
            price_ticks = predicted.price(rows["states"], interval, lead)
            measures = None if carried is None else predicted.measure(rows, carried, interval, lead)
            if carried is not None and measures is not None:
                follows = predicted.pool(measures), predicted.step(rows, carried, interval, measures, pool)
        except (MurmurateError, ArithmeticError) as error:
            words = f"the price cannot be computed: {error}"
            yield from (BrokenRule(self.zones[at], _PREDICTION, words) for at in np.flatnonzero(self.is_predicted))
            return
        numbers = predicted.numbers.tolist()
        for at, stated, price in zip(numbers, rows["price_ticks"][numbers].tolist(), price_ticks.tolist(), strict=True):
            if stated != price:
                yield BrokenRule(self.zones[at], _PREDICTION, f"price_ticks is {stated}: the plan predicts {price}")
        if carried is not None:
            yield from self._broken_states(header, rows, carried, pool, *follows)

    def _broken_states(
        self, header: TileHeader, rows: Rows, carried: Carried, pool: Pool, pool_of_rows: Pool, states: IntArray
    ) -> Iterator[BrokenRule]:
        """Yield where states, prices that are due or the pool do not follow from the rows."""
        all_known = bool((self.has_plan | (rows["kind"] != RowKind.MEASURED)).all())
        if len(rows) == header.count and all_known and pool_of_rows != pool:
            yield BrokenRule("", _PREDICTION, f"pool is {tuple(pool)}: the rows add up to {tuple(pool_of_rows)}")
        states_differ = (rows["states"] != states).any(axis=1)
        due_differs = (rows["due"] != carried.due[:, 1:]).any(axis=1) if header.lead > 1 else states_differ & False
        for at in np.flatnonzero(self.is_predicted & (due_differs | states_differ)).tolist():
            if due_differs[at]:
                yield BrokenRule(self.zones[at], _PREDICTION, "due is not what was decided in the rows before")
            if states_differ[at]:
                stays = "those of" if rows["kind"][at] == RowKind.WITHHELD else "what follows from"
                yield BrokenRule(self.zones[at], _PREDICTION, f"states are not {stays} the row before")


@dataclass(slots=True)
class ZoneTally:
    """Counts of the rows of a chain under one zone table that are not yet in the summaries, all zones at once."""

    summaries: list[tuple[int, ZoneSummary]] = field(default_factory=list)  # each with the number of its row
    counts: IntArray = field(default_factory=lambda: _NO_COUNTS)  # [kind, row]
    first: int = 0  # interval
    last: int = 0
    rows: Rows | None = None  # the last ones

    def begin(self, summaries: list[tuple[int, ZoneSummary]], zone_count: int) -> None:
        """Count from here on the rows of these zones."""
        self.flush()
        self.summaries, self.counts = summaries, np.zeros((len(RowKind), zone_count), np.int64)

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
