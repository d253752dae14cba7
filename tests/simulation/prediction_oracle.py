"""The rules of predicted prices, checked for every tile of the true log, and what silent meters count for."""

from __future__ import annotations

from typing import NamedTuple

from murmurate.planning.release_terms import ReleaseTerms
from tests.simulation import reference_chain_rules as reference
from tests.simulation import reference_prediction as prediction
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import violation

MICRO = 10**6


class _Before(NamedTuple):
    """What follows from the row before of a zone."""

    states: tuple[int, ...]
    due: list[int]  # the first is paid in the interval that is released

    @property
    def paid(self) -> int:
        return self.due[0] if self.due else prediction.NO_PRICE


class PredictionOracle:
    """States, prices that are due, inputs and predicted prices follow from the rows before and from public numbers."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, reference.Row]] = {reference.NOTHING: {}}  # the last of each zone, by tile

    def note_rows(self, new: reference.Head) -> None:
        """Keep the last row of each zone after a tile."""
        self._rows[new.hash] = self._rows[new.header["prev"]] | new.rows

    def silent_wh(
        self, last: reference.Head | None, header: reference.Header, terms: ReleaseTerms, energy_wh: int
    ) -> int:
        """Return what the silent meters of a demand count for [Wh]: a public share of their bounds."""
        interval, zone = header["interval"], terms.prediction
        expected_wh = terms.forecast_wh[interval % samples.SLOTS]
        if zone is not None:
            before = self._before(reference.NOTHING if last is None else last.hash, header["lead"], terms.zone)
            expected_wh = round(prediction.expect_sum(zone, before.states, before.paid, interval, _inputs(header)))
        bound_wh, export_bound_wh = samples.silent_bounds(energy_wh)
        home = samples.HOMES
        if expected_wh < 0:
            share = min(-expected_wh * MICRO // (home.count * home.export_bound_wh), MICRO)
            return -(share * export_bound_wh // MICRO)
        return min(expected_wh * MICRO // (home.count * home.bound_wh), MICRO) * bound_wh // MICRO

    def check_inputs(self, new: reference.Head, known_until: int) -> None:
        """Check that a draft states what was known of the series that its prices need, as it was known."""
        header, stated = new.header, _inputs(new.header)
        terms = [samples.PLAN_BY_DIGEST[row["plan"]].terms for row in new.table["zones"]]
        priced = [its.prediction for its in terms if new.rows[its.zone].kind != reference.WITHHELD]
        for series in stated.keys() | {name for its in priced if its is not None for name in its.model.series.names}:
            known = _public_values(series, header, known_until)
            if stated.get(series, {}) != known:
                violation("wrong input", series, stated.get(series), "but known was", known)

    def check_tile(self, new: reference.Head) -> None:
        """Check the rows of a release."""
        header, has_states = new.header, new.header["row"] != reference.LAYOUT
        terms = {row["zone"]: samples.PLAN_BY_DIGEST[row["plan"]].terms for row in new.table["zones"]}
        for zone, row in new.rows.items():
            facts = f"{zone} in {header['shard']}/{header['seq']}: {row}"
            if has_states:
                self._check_row(new, terms[zone], row, self._before(header["prev"], header["lead"], zone), facts)
            elif row.kind != reference.WITHHELD and terms[zone].prediction is not None:
                violation("not predicted", facts)

    def _before(self, tile_hash: str, lead: int, zone: str) -> _Before:
        row = self._rows[tile_hash].get(zone)
        states, due = (0,) * prediction.STATES, [prediction.NO_PRICE] * lead
        if row is not None:
            last = row.price_ticks if row.kind != reference.WITHHELD else prediction.NO_PRICE
            states, due = row.states or states, [*(row.due or due[1:]), last] if lead else []
        return _Before(states, due)

    def _check_row(
        self, new: reference.Head, terms: ReleaseTerms, row: reference.Row, before: _Before, facts: str
    ) -> None:
        interval, lead, inputs, zone = (
            new.header["interval"],
            new.header["lead"],
            _inputs(new.header),
            terms.prediction,
        )
        if row.due != tuple(before.due[1:]):
            violation("wrong prices due", facts, "but decided were", before.due)
        expected = before.states if row.kind == reference.WITHHELD else (0,) * prediction.STATES
        if row.kind != reference.WITHHELD and zone is not None:
            noisy_wh = row.noisy_wh if row.kind == reference.MEASURED else None
            if zone.read_meters:
                expected = prediction.next_states(zone, before.states, noisy_wh, before.paid, interval, inputs)
            price = prediction.price_of(terms, expected, interval, lead, inputs)
            if row.price_ticks != price:
                violation("wrong prediction", facts, "but the price is", price)
        if row.states != expected:
            violation("wrong states", facts, "but they are", expected)


def _inputs(header: reference.Header) -> prediction.Inputs:
    stated: prediction.Inputs = header["extensions"].get("inputs", {})
    return stated


def _public_values(series: str, header: reference.Header, known_until: int) -> dict[str, int]:
    at = {"now": header["interval"], "ahead": header["interval"] + header["lead"]}
    values = {moment: samples.public_value(series, interval, known_until) for moment, interval in at.items()}
    return {moment: value for moment, value in values.items() if value is not None}
