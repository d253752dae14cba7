"""Rows whose price is predicted: which further columns they have, and how each row follows from the one before.

    noisy_wh  the noised sum of the interval, in a measured row
    states    what is left of earlier deviations from the forecast, in units of 1e-9
    due       prices that are decided and not paid yet, the next one first; NO_PRICE where there is none

States and price of a row follow from the plan, the row before of the same zone, `noisy_wh`, and two extensions of the
header: the `pool`, which is what all rows of the tile show together, and the public `inputs`. So one zone can be
checked without the others. Publisher and verifier call the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from murmurate.errors import ChainError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.prediction.public_inputs import Inputs
from murmurate.prediction.structural_filter import STATES
from murmurate.prediction.zone_prediction import (
    PredictionModel,
    ZoneMeasures,
    ZonePrediction,
    advance_states,
    expect_sums,
    measure_zones,
    meeting_price,
    predict_zones,
    response_factor,
)
from murmurate.pricing.rate import RateCurve
from murmurate.public_log.tile import MAX_NUMBERS, ROW_LAYOUT, RowKind, Rows, TileHeader
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.units import FloatArray, IntArray

NO_PRICE = -(2**63)
POOL = "pool"  # among the extensions of a header
_MAX_SHARE_WH = 2**42  # of one row; the sum of a tile is exact as a floating-point number


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
        priced = (kind == RowKind.MEASURED) | (kind == RowKind.FALLBACK)
        due[:, -1] = np.where(priced, last_rows["price_ticks"], NO_PRICE)
    if lead > 1 and "due" in names and last_rows["due"].shape == (count, lead - 1):
        due[:, :-1] = np.where((kind > 0)[:, None], last_rows["due"], NO_PRICE)
    return Carried(states, due)


class Pool(NamedTuple):
    """What the measured rows of a tile with a predicted price show together. Zones are disjoint: it costs nothing."""

    homes: int = 0
    residual_wh: int = 0  # sum of what is above the forecast
    weight_wh: int = 0  # what it would be if all demand were twice the forecast

    def to_extensions(self) -> dict[str, Any]:
        """Return the pool as it stands in a header."""
        return {POOL: self._asdict()}

    @classmethod
    def from_header(cls, header: TileHeader) -> Pool:
        """Return the pool in a header. Raises ChainError unless there is one."""
        members = header.extensions.get(POOL)
        fields, limit = list(cls._fields), MAX_ZONES * _MAX_SHARE_WH
        if not isinstance(members, dict) or sorted(members) != sorted(fields):
            raise ChainError(POOL, "missing", f"must state {', '.join(fields)} where prices are predicted")
        if any(type(number) is not int or abs(number) > limit for number in members.values()):
            raise ChainError(POOL, members, "must be whole numbers that rows can add up to")
        return cls(**members)


class PredictedZones:
    """The rows of a release whose price is predicted: they are not withheld, and their terms predict."""

    def __init__(self, rows: Rows, terms: Sequence[ReleaseTerms | None], inputs: Inputs) -> None:
        elasticity, reference = np.zeros(len(rows)), np.ones(len(rows))
        homes, pool_homes = np.zeros(len(rows)), np.zeros(len(rows), np.int64)
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
            elasticity[at], reference[at] = zone.price_response.elasticity, zone.price_response.reference_ticks
            homes[at], pool_homes[at] = zone.scale, zone.pool_homes
        self.numbers: IntArray = np.array(sorted(at for numbers, _ in models.values() for at in numbers), np.int64)
        self._models = [(np.array(numbers, np.int64), zones) for numbers, zones in models.values()]  # that share one
        self._curves = [(np.array(numbers, np.int64), curve) for numbers, curve in curves.values()]  # likewise
        self._elasticity, self._reference_ticks = elasticity, reference  # [row]; 0 where none is predicted
        self._homes = homes  # [row] that it counts in the pool
        self._inputs = inputs  # that the header of the tile states
        self._pool_homes = pool_homes  # [row] that its plan takes the other zones to have

    def measure(self, rows: Rows, carried: Carried, interval: int, lead: int) -> ZoneMeasures:
        """Return what the rows show, of which kind and `noisy_wh` are known [row]."""
        residual, weight = np.zeros(len(rows)), np.ones(len(rows))
        measured, noisy_wh = rows["kind"] == RowKind.MEASURED, rows["noisy_wh"]
        factor = self._paid_factor(carried, lead)
        for at, zones in self._models:
            shown = measure_zones(zones, interval, noisy_wh[at], measured[at], factor[at], self._inputs)
            residual[at], weight[at] = shown.residual_wh, shown.weight_wh
        usable = np.zeros(len(rows), np.bool_)
        usable[self.numbers] = measured[self.numbers]
        return ZoneMeasures(residual, weight, usable)

    def expect(self, carried: Carried, interval: int, lead: int) -> FloatArray:
        """Return the sum that a measurement should show, from the rows before alone [Wh, row]; 0 if not predicted."""
        expected_wh, factor = np.zeros(len(self._homes)), self._paid_factor(carried, lead)
        for at, zones in self._models:
            expected_wh[at] = expect_sums(zones, carried.states[at], interval, self._inputs) * factor[at]
        return expected_wh

    def _paid_factor(self, carried: Carried, lead: int) -> FloatArray:
        """Return what the price that is paid in the interval does to the demand [row]."""
        paid = carried.due[:, 0] if lead > 0 else np.full(len(self._homes), NO_PRICE)
        answered = response_factor(self._elasticity, self._reference_ticks, paid.astype(np.float64))
        return np.where(paid == NO_PRICE, 1.0, answered)

    def _shares(self, measures: ZoneMeasures) -> IntArray:
        """Return what each row adds to the pool [row, member of the pool]."""
        columns = np.stack([self._homes, measures.residual_wh, measures.weight_wh], axis=1)
        rounded = np.rint(np.clip(columns, -_MAX_SHARE_WH, _MAX_SHARE_WH)).astype(np.int64)
        return np.where(measures.usable[:, None], rounded, 0)

    def pool(self, measures: ZoneMeasures) -> Pool:
        """Return what all rows show together."""
        return Pool(*self._shares(measures).sum(axis=0).tolist())

    def step(self, rows: Rows, carried: Carried, interval: int, measures: ZoneMeasures, pool: Pool) -> IntArray:
        """Return the states of the rows [zone, state]. `measures` is what they show, `pool` what all show together.

        A withheld row leaves the states as they are. A zone whose prices are not predicted has none.
        """
        states = np.where((rows["kind"] == RowKind.WITHHELD)[:, None], carried.states, 0)
        homes, residual_wh, weight_wh = (np.array(pool) - self._shares(measures)).T
        deviation = residual_wh / np.maximum(weight_wh, 1)
        enough = (self._pool_homes > 0) & (2 * homes >= self._pool_homes)
        for at, zones in self._models:
            own = (measures.residual_wh[at], measures.weight_wh[at], measures.usable[at])
            shown = ZoneMeasures(*own, deviation[at], enough[at])
            states[at] = advance_states(zones, carried.states[at], interval, shown, self._inputs)
        return states

    def price(self, states: IntArray, interval: int, lead: int) -> IntArray:
        """Return the prices of the predicted rows [ticks], given the states of all rows."""
        demand_wh, price_ticks = np.zeros(len(states)), np.zeros(len(states), np.int64)
        for at, zones in self._models:
            demand_wh[at] = predict_zones(zones, states[at], interval, lead, self._inputs)
        for at, curve in self._curves:
            price_ticks[at] = meeting_price(curve, demand_wh[at], self._elasticity[at], self._reference_ticks[at])
        return price_ticks[self.numbers]
