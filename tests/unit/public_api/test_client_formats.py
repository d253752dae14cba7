"""Formats of other projects: each shows the prices of the log, tick for tick, and calls nothing final that is not."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_schema_validator import OAS31Validator
from tests.support.zone_views import AWKWARD, seconds, view_of, views

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api.client_formats import (
    CLIENT_FORMATS,
    FormatQuery,
    cheapest_window,
    choose_rows,
    midas_rate_id,
)
from murmurate.service.public_api.price_formats import prices_document
from murmurate.service.public_api.query_params import _next_clock_time_s
from murmurate.service.web.responses import openapi_document

OPENAPI = openapi_document("murmurate.service.public_api")
URL = "https://prices.example/zones/harbour"
Row = tuple[int, int, Fraction]  # start and end [s of UTC], and the price [currency/kWh]


class PriceClient(NamedTuple):
    """How a client reads a format."""

    read: Callable[[Any], list[Row]]
    currency: str
    params: dict[str, str] = {}  # noqa: RUF012  never changed


def at_s(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def read_prices(answer: Any) -> list[Row]:
    rows = [row for row in answer["prices"] if row["status"] == "final" and row["value"] is not None]
    return [(at_s(row["start"]), at_s(row["end"]), Fraction(repr(row["value"]))) for row in rows]


def read_evcc(answer: Any) -> list[Row]:
    return [(at_s(row["start"]), at_s(row["end"]), Fraction(repr(row["value"]))) for row in answer["rates"]]


def read_octopus(answer: Any) -> list[Row]:
    assert answer["count"] == len(answer["results"])
    rows = [(row["valid_from"], row["valid_to"], row["value_inc_vat"]) for row in answer["results"][::-1]]
    return [(at_s(start), at_s(end), Fraction(repr(pence)) / 100) for start, end, pence in rows]


def read_awattar(answer: Any) -> list[Row]:
    rows = [(row["start_timestamp"], row["end_timestamp"], row["marketprice"]) for row in answer["data"]]
    return [(start // 1000, end // 1000, Fraction(repr(price)) / 1000) for start, end, price in rows]


def read_midas(answer: Any) -> list[Row]:
    rows = answer["ValueInformation"]
    edges = [[at_s(f"{row[f'Date{end}']}T{row[f'Time{end}']}Z") for end in ("Start", "End")] for row in rows]
    return [(start, last + 1, Fraction(repr(row["Value"]))) for (start, last), row in zip(edges, rows, strict=True)]


OCTOPUS = "/octopus/v1/products/murmurate/electricity-tariffs/murmurate-price/standard-unit-rates"
MIDAS = "/midas/api/ValueData"
CLIENTS = {
    "/prices": PriceClient(read_prices, "EUR"),
    "/evcc/api/tariff/grid": PriceClient(read_evcc, "CHF"),
    OCTOPUS: PriceClient(read_octopus, "GBP"),
    "/awattar/v1/marketdata": PriceClient(read_awattar, "EUR"),
    MIDAS: PriceClient(read_midas, "USD"),
}
LISTS = st.sampled_from(sorted(CLIENTS.keys() & CLIENT_FORMATS.keys()))


def written(view: ZoneView, path: str, *, forecast: bool = False, now: int | None = None) -> Any:
    """What a client gets for all prices of the view and a few intervals more."""
    now = view.last_decided if now is None else now
    document = prices_document(view, range(view.known_intervals.start, view.last_decided + 7), view.start_s(now))
    if path == "/prices":
        return json.loads(json.dumps(document))
    own = CLIENTS[path].params | ({"ID": midas_rate_id(view.zone)} if path == MIDAS else {})
    query = FormatQuery(URL + path, own, format_rfc3339(view.start_s(now)))
    answer = CLIENT_FORMATS[path].write(choose_rows(document, with_expected=forecast), query)
    return json.loads(json.dumps(answer, allow_nan=False))


def check_final_prices(path: str, view: ZoneView) -> None:
    """Raise AssertionError unless a client reads each final price of the log, and no other."""
    logged = {n: price.ticks * price.tick for n, price in view.prices.items() if price.ticks is not None}
    rows = CLIENTS[path].read(written(view, path))
    assert [start for start, _, _ in rows] == [view.start_s(n) for n in sorted(logged)]
    for start, end, price in rows:
        n = start // view.interval_s
        assert end == view.start_s(n + 1)
        assert round(price / view.tick) == logged[n] / view.tick


def test_each_format_has_a_client_here() -> None:
    assert CLIENTS.keys() | {"/cheapest"} == CLIENT_FORMATS.keys() | {"/prices"}


@pytest.mark.parametrize("path", CLIENTS)
@given(data=st.data())
def test_every_format_has_every_final_price_of_the_log_tick_for_tick(path: str, data: st.DataObject) -> None:
    check_final_prices(path, data.draw(views(currency=CLIENTS[path].currency)))


@pytest.mark.parametrize("path", CLIENTS)
def test_a_price_that_is_a_tick_off_is_found_in_every_format(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of([8120, None, 0, 12000, -350], currency=CLIENTS[path].currency)
    check_final_prices(path, view)
    right = Price.value.fget
    off = property(lambda price: None if price.ticks is None else float(Fraction(repr(right(price))) + price.tick))
    monkeypatch.setattr(Price, "value", off)
    with pytest.raises(AssertionError):
        check_final_prices(path, view)


@given(views(currency="EUR"), LISTS, st.integers(min_value=-6, max_value=6))
def test_what_is_expected_is_there_on_request_alone(view: ZoneView, path: str, later: int) -> None:
    now = view.last_decided + later
    read = CLIENTS[path].read
    final, both = (read(written(view, path, forecast=forecast, now=now)) for forecast in (False, True))
    expected = [n for n in range(view.last_decided + 1, view.last_decided + 7) if n > now]
    assert both[: len(final)] == final
    assert [start for start, _, _ in both[len(final) :]] == [view.start_s(n) for n in expected]
    for (_, _, price), n in zip(
        both[len(final) :], expected, strict=True
    ):  # it is no whole number of ticks: pence round it
        assert float(price) == pytest.approx(view.expected_price(n), rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("path", CLIENT_FORMATS)
@given(data=st.data())
def test_each_answer_is_of_the_schema_that_the_document_of_the_api_names(path: str, data: st.DataObject) -> None:
    view = data.draw(views(currency="EUR").filter(lambda one: len(one.prices) > 0))
    if path == "/cheapest":
        length = str(Fraction(view.interval_s, 3600).limit_denominator(10_000))
        answer: Any = cheapest_of(view, length) if "/" not in length else None
    else:
        answer = written(view, path, forecast=data.draw(st.booleans()))
    content = OPENAPI["paths"][f"/zones/{{zone}}{path}"]["get"]["responses"]["200"]["content"]
    schema = content["application/json"]["schema"] | {"components": OPENAPI["components"]}
    assert answer is None or [error.message for error in OAS31Validator(schema).iter_errors(answer)] == []


@given(views(), st.integers(min_value=1, max_value=20))
def test_pages_of_octopus_are_the_one_list_and_each_names_the_next(view: ZoneView, size: int) -> None:
    document = choose_rows(prices_document(view, view.known_intervals, 0), with_expected=False)
    write = CLIENT_FORMATS[OCTOPUS].write
    whole: Any = write(document, FormatQuery(URL, {}, ""))
    params, rows, count = {"page_size": str(size), "period_from": "2026-11-14"}, [], 0
    while params:
        page: Any = write(document, FormatQuery(URL, params, ""))
        rows, count = rows + page["results"], count + 1
        assert page["count"] == whole["count"]
        assert (page["previous"] is None) == (count == 1)
        params = dict(parse_qsl(urlsplit(page["next"] or "").query))
    assert rows == whole["results"]
    assert all(after["valid_to"] <= before["valid_from"] for before, after in pairwise(rows))


def cheapest_of(view: ZoneView, hours: str) -> Any:
    now = view.known_intervals.start
    document = prices_document(view, range(now, view.last_decided + 7), view.start_s(now))
    return cheapest_window(choose_rows(document, with_expected=True), FormatQuery(URL, {"hours": hours}, ""))


@given(views().filter(lambda view: view.interval_s in {900, 1800, 3600} and len(view.prices) > 0), st.integers(1, 9))
def test_the_cheapest_window_is_the_first_of_the_cheapest_by_brute_force(view: ZoneView, hours: int) -> None:
    count = hours * 3600 // view.interval_s
    stretch = range(view.known_intervals.start, view.last_decided + 7)
    final = {n: price.ticks * price.tick for n, price in view.prices.items() if price.ticks is not None}
    expected = {n: view.expected_ticks(n) * view.tick for n in stretch if n > view.last_decided}
    prices = final | expected
    windows = [range(n, n + count) for n in stretch if all(at in prices for at in range(n, n + count))]
    found = cheapest_of(view, str(hours))
    assert (found is None) == (not windows)
    if windows:
        best = min(sum(prices[at] for at in window) for window in windows) / count
        start = at_s(found["start"]) // view.interval_s
        mean = sum(prices[n] for n in range(start, start + count)) / count
        assert at_s(found["end"]) - at_s(found["start"]) == hours * 3600
        assert abs(mean - best) < Fraction(1, 10**12) * max(1, abs(best))  # expected prices were rounded to floats
        assert found["value"] == pytest.approx(float(best), rel=1e-12, abs=1e-12)
        assert found["status"] == ("final" if start + count - 1 <= view.last_decided else "expected")


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 28, 23), "23"), ((2026, 10, 24, 22), "25")])
def test_hours_are_elapsed_time_on_days_on_which_the_clock_changes(day: tuple[int, ...], hours: str) -> None:
    """A local day of Zurich, dear before and after it: its cheapest window is the whole day."""
    count = int(hours) * 4
    view = view_of([9, *[1] * count, 9, 9], begin_s=seconds(*day) - 900, timezone="Europe/Zurich", expected=[99])
    found = cheapest_of(view, hours)
    start, end = (
        datetime.fromisoformat(found[name]).astimezone(ZoneInfo("Europe/Zurich")) for name in ("start", "end")
    )
    assert (start.hour, end.hour, (end.date() - start.date()).days) == (0, 0, 1)


@pytest.mark.parametrize("hours", ["", "0", "-1", "x", "1e3", "0.1", "1/2", "9999", "³"])
def test_hours_that_are_not_whole_intervals_are_refused_with_what_is_allowed(hours: str) -> None:
    with pytest.raises(MurmurateError, match="must be hours of whole intervals of 900 s, such as 3"):
        cheapest_of(view_of([1, 2, 3]), hours)


@given(
    st.sampled_from(AWKWARD),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001  of UTC, below
    st.times().map(lambda time: time.replace(second=0, microsecond=0)),
)
def test_a_time_of_the_clock_is_the_next_one_that_it_shows(zone: str, now: datetime, clock: Any) -> None:
    timezone, now_s = ZoneInfo(zone), int(now.replace(tzinfo=UTC).timestamp())
    found = _next_clock_time_s(clock, timezone, now_s)
    minutes = range(now_s // 60 + 1, now_s // 60 + 2 * 1440 + 60)
    shown = (at * 60 for at in minutes if datetime.fromtimestamp(at * 60, timezone).time() == clock)
    assert found == next(shown)
