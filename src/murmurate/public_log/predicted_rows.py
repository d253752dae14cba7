"""Rows whose price is predicted: which further columns they have, and how each row follows from the one before.

    noisy_wh  the noised sum of the interval, in a measured row
    states    corrections of the forecast, and how wrong it was of late, in units of 1e-9
    due       prices that are decided and not paid yet, the next one first; NO_PRICE where there is none

States and price of a row follow from the plan, the row before of the same zone, `noisy_wh`, and the public `inputs` in
the header. So one zone can be checked without the others. Publisher and verifier call the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from murmurate.errors import ChainError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.corrections import STATES
from murmurate.prediction.public_inputs import Inputs
from murmurate.prediction.zone_prediction import (
    PredictionModel,
    ZonePrediction,
    advance_states,
    expect_sums,
    meeting_price,
    predict_zones,
    response_factor,
)
from murmurate.pricing.rate import RateCurve
from murmurate.public_log.tile import MAX_NUMBERS, ROW_LAYOUT, RowKind, Rows, TileHeader
from murmurate.units import FloatArray, IntArray

NO_PRICE = -(2**63)


def predicted_layout(lead: int) -> str:
    """Return the layout of rows with a predicted price that is paid `lead` intervals later."""
    if lead > MAX_NUMBERS:
        raise ChainError("lead", lead, f"must be at most {MAX_NUMBERS} where prices are predicted")
    due = f" due:i8x{lead - 1}" if lead > 1 else ""
    return f"{ROW_LAYOUT} noisy_wh:i8 states:i4x{STATES}{due}"


def has_predicted_columns(header: TileHeader) -> bool:
    """Whether rows have what their price is predicted from, each column with its type. They may have others as well."""
    if header.lead > MAX_NUMBERS:
        return False
    return set(predicted_layout(header.lead).split(" ")).issubset(header.row.split(" "))


@lru_cache(maxsize=256)  # zones of one make share a model
def check_predictable(model: PredictionModel, interval: int, lead: int) -> None:
    """Raise MurmurateError unless a price can be predicted: the lead is too long, or clocks do not know the time."""
    predicted_layout(lead)
    for at in (interval, interval + lead):
        model.locate(at)


class Carried(NamedTuple):
    """What the next rows take from the rows before."""

    states: IntArray  # [zone, state]
    due: IntArray  # [zone, lead] the first is paid in the interval that comes next


def carry_over(last_rows: Rows | None, count: int, lead: int) -> Carried:
    """Return what follows from the last row of each zone. A zone that enters begins without deviations and prices."""
    states = np.zeros((count, STATES), np.int64)
    due = np.full((count, lead), NO_PRICE, np.int64)
    if last_rows is None:
        return Carried(states, due)
    names, kind = last_rows.dtype.names or (), last_rows["kind"]
    if "states" in names and last_rows["states"].shape == states.shape:
        states = last_rows["states"].astype(np.int64)
    if lead > 0:
        priced = (kind > 0) & (kind != RowKind.WITHHELD)
        due[:, -1] = np.where(priced, last_rows["price_ticks"], NO_PRICE)
    if lead > 1 and "due" in names and last_rows["due"].shape == (count, lead - 1):
        due[:, :-1] = np.where((kind > 0)[:, None], last_rows["due"], NO_PRICE)
    return Carried(states, due)


class PredictedZones:
    """The rows of a release whose price is predicted: they are not withheld, and their terms predict."""

    def __init__(self, rows: Rows, terms: Sequence[ReleaseTerms | None], inputs: Inputs) -> None:
        elasticity, reference = np.zeros(len(rows)), np.ones(len(rows))
        self._reads_meters = np.ones(len(rows), np.bool_)  # [row]; the others have states of 0
        models: dict[int, tuple[list[int], list[ZonePrediction]]] = {}
        curves: dict[int, tuple[list[int], RateCurve]] = {}
        for at, (its, withheld) in enumerate(zip(terms, (rows["kind"] == RowKind.WITHHELD).tolist(), strict=True)):
            if its is None or its.prediction is None or withheld:
                continue
            zone = its.prediction
            numbers, zones = models.setdefault(id(zone.model), ([], []))
            numbers.append(at)
            zones.append(zone)
            curves.setdefault(id(its.curve), ([], its.curve))[0].append(at)
            self._reads_meters[at] = zone.read_meters
            elasticity[at], reference[at] = zone.price_response.elasticity, zone.price_response.reference_ticks
        self.numbers: IntArray = np.array(sorted(at for numbers, _ in models.values() for at in numbers), np.int64)
        self._models = [(np.array(numbers, np.int64), zones) for numbers, zones in models.values()]  # that share one
        self._curves = [(np.array(numbers, np.int64), curve) for numbers, curve in curves.values()]  # likewise
        self._elasticity, self._reference_ticks = elasticity, reference  # [row]; 0 where none is predicted
        self._inputs = inputs  # that the header of the tile states

    def expect(self, carried: Carried, interval: int, lead: int) -> FloatArray:
        """Return the sum that a measurement should show, from the rows before alone [Wh, row]; 0 if not predicted."""
        expected_wh = np.zeros(len(self._elasticity))
        for at, zones in self._models:
            expected_wh[at] = expect_sums(zones, carried.states[at], interval, self._inputs)
        return np.where(expected_wh < 0, expected_wh, expected_wh * self._paid_factor(carried, lead))

    def _paid_factor(self, carried: Carried, lead: int) -> FloatArray:
        """Return what the price that is paid in the interval does to the demand [row]."""
        paid = carried.due[:, 0] if lead > 0 else np.full(len(self._elasticity), NO_PRICE)
        answered = response_factor(self._elasticity, self._reference_ticks, paid.astype(np.float64))
        return np.where(paid == NO_PRICE, 1.0, answered)

    def step(self, rows: Rows, carried: Carried, interval: int, lead: int) -> IntArray:
        """Return the states of the rows, of which kind and `noisy_wh` are known [zone, state].

        A withheld row leaves the states as they are. They are 0 where a price is not predicted, or where the plan reads
        no meter: what was learnt under an earlier plan ends there.
        """
        states = np.where((rows["kind"] == RowKind.WITHHELD)[:, None], carried.states, 0)
        measured, noisy_wh = rows["kind"] == RowKind.MEASURED, rows["noisy_wh"]
        factor = self._paid_factor(carried, lead)
        for at, zones in self._models:
            states[at] = advance_states(
                zones, carried.states[at], interval, noisy_wh[at], measured[at], factor[at], self._inputs
            )
        return np.where(self._reads_meters[:, None], states, 0)

    def price(self, states: IntArray, interval: int, lead: int) -> IntArray:
        """Return the prices of the predicted rows [ticks], given the states of all rows."""
        demand_wh, price_ticks = np.zeros(len(states)), np.zeros(len(states), np.int64)
        states = np.where(self._reads_meters[:, None], states, 0)
        for at, zones in self._models:
            demand_wh[at] = predict_zones(zones, states[at], interval, lead, self._inputs)
        for at, curve in self._curves:
            price_ticks[at] = meeting_price(curve, demand_wh[at], self._elasticity[at], self._reference_ticks[at])
        return price_ticks[self.numbers]
