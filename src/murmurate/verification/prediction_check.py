"""Compute predicted prices again: from the plan, the row before of each zone, the noised demand, and the pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.predicted_rows import Carried, Pool, PredictedZones, predicted_layout
from murmurate.public_log.tile import MAX_NUMBERS, RowKind, Rows, TileHeader
from murmurate.units import IntArray

RULE = "prediction"


def broken_predictions(
    header: TileHeader, rows: Rows, terms: Sequence[ReleaseTerms | None], carried: Carried | None
) -> Iterator[BrokenRow]:
    """Yield where states or a price are not what the plan predicts.

    Rows without terms are left out. `carried` is what follows from the rows before; None: they are not known, and only
    prices are checked.
    """
    known = [at for at, its in enumerate(terms) if its is not None and its.prediction is not None]
    if not known:
        return
    if header.lead > MAX_NUMBERS or header.row != predicted_layout(header.lead):
        yield from (BrokenRow(at, RULE, "the row does not hold what its price is predicted from") for at in known)
        return
    try:
        pool = Pool.from_header(header)
        predicted = PredictedZones.from_terms(rows, terms)
        numbers, price_ticks = predicted.numbers, predicted.price(rows["states"], header.interval, header.lead)
        follows = None if carried is None else _follow(header, rows, predicted, carried, pool)
    except (MurmurateError, ArithmeticError) as error:
        yield from (BrokenRow(at, RULE, f"the price cannot be computed: {error}") for at in known)
        return
    for number, stated, price in zip(numbers.tolist(), rows["price_ticks"][numbers], price_ticks, strict=True):
        if stated != price:
            yield BrokenRow(number, RULE, f"price_ticks is {stated}: the plan predicts {price}")
    if carried is None or follows is None:
        return
    all_known = all(its is not None for its, kind in zip(terms, rows["kind"], strict=True) if kind == RowKind.MEASURED)
    if len(rows) == header.count and all_known and follows.pool != pool:
        yield BrokenRow(None, RULE, f"pool is {tuple(pool)}: the rows add up to {tuple(follows.pool)}")
    yield from _broken_states(header, rows, known, carried, follows.states)


class BrokenRow(NamedTuple):
    """Where a tile does not say what the plans say."""

    number: int | None  # of the row; None: it is about all of them
    rule: str
    words: str


class _Following(NamedTuple):
    pool: Pool  # of these rows alone
    states: IntArray


def _follow(header: TileHeader, rows: Rows, predicted: PredictedZones, carried: Carried, pool: Pool) -> _Following:
    measures = predicted.measure(rows, carried, header.interval, header.lead)
    return _Following(predicted.pool(measures), predicted.step(rows, carried, header.interval, measures, pool))


def _broken_states(
    header: TileHeader, rows: Rows, known: Sequence[int], carried: Carried, states: IntArray
) -> Iterator[BrokenRow]:
    due_differs = (rows["due"] != carried.due[:, 1:]).any(axis=1) if header.lead > 1 else np.zeros(len(rows), np.bool_)
    states_differ = (rows["states"] != states).any(axis=1)
    for at in known:
        if due_differs[at]:
            yield BrokenRow(at, RULE, "due is not what was decided in the rows before")
        if states_differ[at]:
            stays = rows["kind"][at] == RowKind.WITHHELD
            yield BrokenRow(at, RULE, f"states are not {'those of' if stays else 'what follows from'} the row before")
