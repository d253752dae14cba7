"""Hold the rows of a release against the plans of their zones, all rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.predicted_rows import Carried
from murmurate.public_log.tile import NoiseCode, RowKind, Rows, TileHeader
from murmurate.units import BoolArray, IntArray
from murmurate.verification.plan_check import NOISE_COLUMNS, ProvenPlan
from murmurate.verification.prediction_check import BrokenRow, broken_predictions

_NOISE_NAMES = {code.value: code.name.lower() for code in NoiseCode}


@dataclass(frozen=True, slots=True, eq=False)
class RowTerms:
    """The plan of each row. Rows whose plan is missing or not proven are left out."""

    plans: tuple[ProvenPlan, ...]  # each once
    plan_index: IntArray  # [row] position in `plans`; 0 where there is none
    has_plan: BoolArray  # [row]
    is_predicted: BoolArray  # [row] whether its plan predicts prices

    @classmethod
    def from_plans(cls, plan_of_row: Sequence[ProvenPlan | None]) -> RowTerms:
        """Return the terms of rows with these plans."""
        plans = tuple(dict.fromkeys(plan for plan in plan_of_row if plan is not None))
        position: dict[ProvenPlan | None, int] = {plan: number for number, plan in enumerate(plans)}
        index = np.array([position.get(plan, 0) for plan in plan_of_row], np.int64)
        has_plan = [plan is not None for plan in plan_of_row]
        predicted = [plan is not None and plan.terms.prediction is not None for plan in plan_of_row]
        return cls(plans, index, np.array(has_plan, np.bool_), np.array(predicted, np.bool_))

    @property
    def _terms_of_rows(self) -> list[ReleaseTerms | None]:
        if not self.is_predicted.any():
            return []
        known = zip(self.plan_index.tolist(), self.has_plan.tolist(), strict=True)
        return [self.plans[at].terms if has_plan else None for at, has_plan in known]

    def broken_terms(self, header: TileHeader, rows: Rows, carried: Carried | None) -> list[BrokenRow]:
        """Return where rows do not say what their plans say.

        `carried` is what follows from the rows before; None: they are not known.
        """
        if not self.plans:
            return []
        expected = np.concatenate([plan.expected_row(header.interval) for plan in self.plans])[self.plan_index]
        kind, price = rows["kind"], rows["price_ticks"]
        measured = self.has_plan & (kind == RowKind.MEASURED)
        forecast = self.has_plan & ~self.is_predicted & (kind == RowKind.FALLBACK)
        wrong = forecast & (price != expected["forecast_ticks"])
        wrong |= measured & ((price < expected["floor_ticks"]) | (price > expected["cap_ticks"]))
        for column in NOISE_COLUMNS:
            wrong |= measured & (rows[column] != expected[column])
        broken = [
            BrokenRow(int(at), "terms", words)
            for at in np.flatnonzero(wrong)
            for words in self._describe(int(at), rows[at], expected[at])
        ]
        broken += self._wrong_clocks(header, measured)
        return broken + list(broken_predictions(header, rows, self._terms_of_rows, carried))

    def _describe(self, at: int, row: np.void, expected: np.void) -> Iterator[str]:
        if row["kind"] == RowKind.FALLBACK:
            yield f"price_ticks is {row['price_ticks']}: the plan's fallback price is {expected['forecast_ticks']}"
            return
        curve = self.plans[int(self.plan_index[at])].terms.curve
        if not expected["floor_ticks"] <= row["price_ticks"] <= expected["cap_ticks"]:
            yield f"price_ticks is {row['price_ticks']}: the plan's prices lie from {curve.floor} to {curve.cap}"
        for column in NOISE_COLUMNS:
            if row[column] != expected[column]:
                value, wanted = row[column], expected[column]
                if column == "noise":
                    value, wanted = (_NOISE_NAMES.get(int(code), code) for code in (value, wanted))
                yield f"{column} is {value}: the plan says {wanted}"

    def _wrong_clocks(self, header: TileHeader, measured: BoolArray) -> Iterator[BrokenRow]:
        words = [plan.clock_mismatch(header.interval, header.interval_s) for plan in self.plans]
        if any(words):
            for at in np.flatnonzero(measured):
                mismatch = words[int(self.plan_index[at])]
                if mismatch is not None:
                    yield BrokenRow(int(at), "clock", mismatch)
