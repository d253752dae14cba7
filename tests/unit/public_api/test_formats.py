"""The same prices in every format: each of them shows what is in the log."""

import csv
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from fractions import Fraction
from io import BytesIO
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.zone_views import event_documents, seconds, view_of, views

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.zone_view import Price, PriceKind, ZoneView, format_rfc3339
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day, is_day_complete, recent_days
from murmurate.service.public_api.openadr import programs_of_zone
from murmurate.service.public_api.price_formats import (
    HISTORY_COLUMNS,
    csv_bytes,
    current_price_document,
    day_document,
    evcc_list,
    parquet_bytes,
    prices_document,
    shard_prices_document,
    vse_tariffs,
)

MONEY = {"price", "next_price", "value"}
Rows = list[tuple[str, Any]]


def whole_days(view: ZoneView) -> list[dict[str, Any]]:
    days = [day for day in recent_days(view) if is_day_complete(view, day)]
    return [day_document(view, day) for day in days]


def from_day(view: ZoneView) -> Rows:
    return [(row["start"], row["price"]) for document in whole_days(view) for row in document["prices"]]


def from_prices(view: ZoneView) -> Rows:
    known = view.known_intervals
    rows: Any = prices_document(view, range(known.start, known.stop + 5), view.start_s(known.stop))["prices"]
    return [(row["start"], row["value"]) for row in rows if row["status"] == "final"]


def from_now(view: ZoneView) -> Rows:
    found = [
        current_price_document(view, view.start_s(at) + 0.5)
        for at in range(view.first_priced - 1, view.last_decided + 2)
    ]
    return [(row["start"], row["price"]) for row in found if row] + [
        (row["next_change"], row["next_price"]) for row in found if row and row["next_price"] is not None
    ]


def from_evcc(view: ZoneView) -> Rows:
    return [(row["start"], row["value"]) for row in evcc_list(view, 0)]


def from_vse(view: ZoneView) -> Rows:
    if view.currency != "CHF" or not view.prices:
        return []
    rows: Any = vse_tariffs(view, min(view.prices), view.last_decided)["prices"]
    return [(row["start_timestamp"], row["electricity"][0]["value"]) for row in rows]


def from_openadr(view: ZoneView) -> Rows:
    native = next(program.id for program in programs_of_zone(view) if program.is_native)
    own: list[Any] = [event for event in event_documents(view) if event["programID"] == native]
    steps = [interval for event in own for interval in event["intervals"]]
    return [
        (step["intervalPeriod"]["start"], payload["values"][0])
        for step in steps
        for payload in step["payloads"]
        if payload["type"] == "PRICE"
    ]


def from_shard(view: ZoneView) -> Rows:
    documents: Any = [shard_prices_document(view.shard, interval) for interval in view.known_intervals]
    return [(document["start"], row["price"]) for document in documents for row in document["prices"]]


def from_csv(view: ZoneView) -> Rows:
    rows = csv.DictReader(csv_bytes(view.prices.values(), view.interval_s, view.currency).decode().splitlines())
    return [(row["start"], float(row["price"]) if row["price"] else None) for row in rows]


def from_parquet(view: ZoneView) -> Rows:
    table = pq.read_table(BytesIO(parquet_bytes(view.prices.values(), view.interval_s, view.currency)))
    return [(format_rfc3339(row["start"].timestamp()), row["price"]) for row in table.to_pylist()]


FORMATS = [from_day, from_prices, from_now, from_evcc, from_vse, from_openadr, from_shard, from_csv, from_parquet]


def by_start(view: ZoneView) -> dict[str, Price]:
    return {format_rfc3339(view.start_s(interval)): price for interval, price in view.prices.items()}


@pytest.mark.parametrize("rows", FORMATS)
@given(view=views())
def test_every_value_is_the_ticks_of_the_log(rows: Callable[[ZoneView], Rows], view: ZoneView) -> None:
    logged = by_start(view)
    for start, value in rows(view):
        price = logged[start]
        assert (None if value is None else round(Fraction(value) / price.tick)) == price.ticks


@pytest.mark.parametrize("rows", [from_prices, from_evcc, from_vse, from_shard, from_csv, from_parquet])
@given(view=views(currency="CHF"))
def test_no_price_of_the_view_is_lost(rows: Callable[[ZoneView], Rows], view: ZoneView) -> None:
    priced = {start for start, value in rows(view) if value is not None}
    assert priced == {start for start, price in by_start(view).items() if price.ticks is not None}


def amounts(found: object) -> Iterator[object]:
    """Every number in a document that is money."""
    if isinstance(found, dict):
        if found.get("type") in {"PRICE", "PRICE_FORECAST"}:
            yield from found["values"]
        for name, value in found.items():
            yield from [value] if name in MONEY else amounts(value)
    elif isinstance(found, list):
        for value in found:
            yield from amounts(value)


@given(views(currency="CHF"), st.integers(min_value=-3, max_value=300))
def test_a_price_is_never_a_whole_number_in_json(view: ZoneView, later: int) -> None:
    now_s = view.start_s(view.first_priced + later)
    documents: list[object] = [
        *whole_days(view),
        current_price_document(view, now_s),
        evcc_list(view, now_s, forecast=True),
        prices_document(view, range(view.known_intervals.start, view.last_decided + 9), now_s),
    ]
    documents += [vse_tariffs(view, view.last_decided, view.last_decided)] if view.prices else []
    for amount in amounts(json.loads(json.dumps([*documents, event_documents(view)]))):
        assert amount is None or type(amount) is float


@given(views(), st.integers(min_value=-9, max_value=9), st.integers(min_value=0, max_value=9))
def test_what_is_not_decided_is_expected_or_undecided_and_never_final(view: ZoneView, later: int, more: int) -> None:
    current = view.last_decided + later
    stretch = range(view.known_intervals.start, view.last_decided + 1 + more)
    rows: Any = prices_document(view, stretch, view.start_s(current) + 0.5)["prices"]
    assert [row["start"] for row in rows] == [format_rfc3339(view.start_s(n)) for n in stretch]
    assert all(before["end"] == after["start"] for before, after in pairwise(rows))
    for n, row in zip(stretch, rows, strict=True):
        status = "final" if n <= view.last_decided else "undecided" if n <= current else "expected"
        value = {"final": view.prices.get(n) and view.prices[n].value, "expected": view.expected_price(n)}.get(status)
        assert (row["status"], row["value"]) == (status, value)


@given(views())
def test_a_day_has_all_its_intervals_end_to_end(view: ZoneView) -> None:
    for document in whole_days(view):
        rows = document["prices"]
        assert len(rows) == len(intervals_of_day(view, date.fromisoformat(document["day"])))
        assert all(before["end"] == after["start"] for before, after in pairwise(rows))


@given(views(), st.integers(min_value=-4, max_value=4))
def test_a_day_is_written_if_and_only_if_it_is_whole_and_at_hand(view: ZoneView, later: int) -> None:
    day = day_of_interval(view, view.last_decided) + timedelta(days=later)
    if is_day_complete(view, day) and all(interval in view.prices for interval in intervals_of_day(view, day)):
        assert day_document(view, day)["day"] == day.isoformat()
    else:
        with pytest.raises(MurmurateError):
            day_document(view, day)


def test_a_day_that_is_not_whole_says_when_it_can_be() -> None:
    """Two intervals ahead: the price of 23:45 to 24:00 in Zurich is measured up to 23:30, which is 22:30 UTC."""
    view = view_of([1] * 95, begin_s=seconds(2026, 11, 13, 23), lead=2)
    with pytest.raises(MurmurateError, match="2026-11-14T22:30:00Z"):
        day_document(view, date(2026, 11, 14))
    with pytest.raises(MurmurateError, match="from 2026-11-13T23:00:00Z on"):
        day_document(view, date(2026, 11, 13))


def test_a_day_that_the_view_has_dropped_is_refused() -> None:
    view = view_of([1] * 200, begin_s=seconds(2026, 11, 13, 23), dropped=1)
    with pytest.raises(MurmurateError, match="at hand"):
        day_document(view, date(2026, 11, 14))


@given(views(), st.integers(min_value=-3, max_value=300))
def test_there_is_a_now_if_and_only_if_its_interval_has_a_price(view: ZoneView, later: int) -> None:
    interval = view.first_priced + later
    price = view.prices.get(interval)
    found = current_price_document(view, view.start_s(interval) + 0.5)
    assert (found is None) == (price is None or price.kind is PriceKind.WITHHELD)


@given(views(), st.integers(min_value=-300, max_value=300), st.booleans())
def test_evcc_reads_from_now_on_in_order_without_an_overlap(view: ZoneView, later: int, forecast: bool) -> None:
    current = view.first_priced + later
    rows: list[Any] = evcc_list(view, view.start_s(current) + 0.5, forecast=forecast)
    assert all(type(row["value"]) is float for row in rows)
    assert all(before["end"] <= after["start"] for before, after in pairwise(rows))
    assert all(format_rfc3339(view.start_s(current)) <= row["start"] < row["end"] for row in rows)
    final = format_rfc3339(view.start_s(view.last_decided + 1))
    assert forecast or all(row["end"] <= final for row in rows)
    for row in rows if forecast else ():
        interval = view.interval_at(datetime.fromisoformat(row["start"]).timestamp())
        assert interval <= view.last_decided or row["value"] == view.expected_price(interval)


def test_an_interval_that_began_without_a_price_is_no_forecast_for_evcc() -> None:
    view = view_of([8120] * 4)
    rows = evcc_list(view, view.start_s(view.last_decided + 3), forecast=True)
    assert rows[0]["start"] == format_rfc3339(view.start_s(view.last_decided + 4))


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 1), (-3, 0)])
def test_the_swiss_format_refuses_what_is_not_decided(before: int, after: int) -> None:
    view = view_of([1, 2])
    with pytest.raises(MurmurateError):
        vse_tariffs(view, view.first_priced - before, view.last_decided + after)
    with pytest.raises(MurmurateError, match="CHF"):
        vse_tariffs(view_of([1, 2], currency="EUR"), view.first_priced, view.last_decided)


_MOMENT = pa.timestamp("us", "UTC")
HISTORY_TYPES = (_MOMENT, _MOMENT, pa.float64(), pa.int64(), pa.string(), pa.string(), pa.string())


def test_history_has_the_same_columns_in_both_formats() -> None:
    view = view_of([8120, None])
    for prices in (view.prices.values(), ()):
        rows = list(csv.DictReader(csv_bytes(prices, 900, "CHF").decode().splitlines()))
        table = pq.read_table(BytesIO(parquet_bytes(prices, 900, "CHF")))
        assert table.schema.equals(pa.schema(list(zip(HISTORY_COLUMNS, HISTORY_TYPES, strict=True))))
        texts = [
            {name: "" if value is None else str(value) for name, value in row.items()} for row in table.to_pylist()
        ]
        for row in texts:
            row |= {name: format_rfc3339(datetime.fromisoformat(row[name]).timestamp()) for name in ("start", "end")}
        assert texts == rows
