"""The rules of predicted prices, checked for every tile of the true log."""

from __future__ import annotations

from typing import NamedTuple

from murmurate.planning.release_terms import ReleaseTerms
from tests.simulation import reference_chain_rules as reference
from tests.simulation import reference_prediction as prediction
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import violation


class _Before(NamedTuple):
    """What follows from the row before of a zone."""

    states: tuple[int, ...]
    due: list[int]  # the first is paid in the interval that is released


class PredictionOracle:
    """States, prices that are due, the pool and predicted prices follow from the rows before."""

    def __init__(self) -> None:
        self._last_rows: dict[tuple[str, str], reference.Row] = {}  # of each shard and zone

    def check_tile(self, new: reference.Head) -> None:
        """Check the rows of a release."""
        header, has_states = new.header, new.header["row"] != reference.LAYOUT
        terms = {row["zone"]: samples.PLAN_BY_DIGEST[row["plan"]].terms for row in new.table["zones"]}
        before = {zone: self._before(header, zone) for zone in new.rows}
        shown = {zone: _shown(new, zone, terms[zone], before[zone]) for zone in new.rows}
        pool = tuple(map(sum, zip(*(each.rounded() for each in shown.values()), strict=True)))
        stated = header["extensions"].get("pool")
        if stated != (dict(zip(prediction.Shown._fields, pool, strict=True)) if has_states else None):
            violation("wrong pool", header["shard"], header["seq"], "says", stated, "but the rows", pool)
        for zone, row in new.rows.items():
            facts = f"{zone} in {header['shard']}/{header['seq']}: {row}"
            if has_states:
                self._check_row(new, terms[zone], row, before[zone], shown[zone], pool, facts)
            elif row.kind != reference.WITHHELD and terms[zone].prediction is not None:
                violation("not predicted", facts)
            self._last_rows[header["shard"], zone] = row

    def _before(self, header: reference.Header, zone: str) -> _Before:
        lead, row = header["lead"], self._last_rows.get((header["shard"], zone))
        states, due = (0,) * prediction.STATES, [prediction.NO_PRICE] * lead
        if row is not None:
            last = row.price_ticks if row.kind != reference.WITHHELD else prediction.NO_PRICE
            states, due = row.states or states, [*(row.due or due[1:]), last] if lead else []
        return _Before(states, due)

    def _check_row(
        self,
        new: reference.Head,
        terms: ReleaseTerms,
        row: reference.Row,
        before: _Before,
        shown: prediction.Shown,
        pool: tuple[int, ...],
        facts: str,
    ) -> None:
        interval, lead = new.header["interval"], new.header["lead"]
        if row.due != tuple(before.due[1:]):
            violation("wrong prices due", facts, "but decided were", before.due)
        expected = before.states if row.kind == reference.WITHHELD else (0,) * prediction.STATES
        if row.kind != reference.WITHHELD and terms.prediction is not None:
            expected = prediction.next_states(terms.prediction, before.states, shown, pool, interval)
            price = prediction.price_of(terms, expected, interval, lead)
            if row.price_ticks != price:
                violation("wrong prediction", facts, "but the price is", price)
        if row.states != expected:
            violation("wrong states", facts, "but they are", expected)


def _shown(new: reference.Head, zone: str, terms: ReleaseTerms, before: _Before) -> prediction.Shown:
    row, lead = new.rows[zone], new.header["lead"]
    if terms.prediction is None or row.kind != reference.MEASURED or not row.states:
        return prediction.Shown()
    paid = before.due[0] if lead else prediction.NO_PRICE
    return prediction.show(terms.prediction, paid, row.noisy_wh, new.header["interval"])
