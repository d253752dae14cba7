"""Formats of other projects: each is a function of the document of `/zones/{zone}/prices`.

To add one, write the function and its line in `CLIENT_FORMATS`. It has no prices, clock or database but the document.
Rows are chosen before: one without a price is left out, and so is an expected one, unless the client asks for
`forecast=true` or the format has a word for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import urlencode

from murmurate.errors import MurmurateError

MAX_OCTOPUS_ROWS = 1500  # of Octopus
_SECONDS_PER_HOUR = 3600
_HOURS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,4})?")
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
Document = Mapping[str, Any]  # of /zones/{zone}/prices


class FormatQuery(NamedTuple):
    """What a client has asked for."""

    url: str  # without the query
    params: Mapping[str, str]
    interval_start: str  # of the current interval, as in the document


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFormat:
    """A format: a function that writes a document of prices, and how clients ask for it.

    `write` returns what is sent as JSON, or None where the prices do not hold what is asked for. It raises
    MurmurateError for a parameter that is wrong.
    """

    write: Callable[[Document, FormatQuery], object]
    start: str | None = None  # the query parameters of the stretch; None: it has none
    end: str | None = None
    params: tuple[str, ...] = ()  # other query parameters
    currency: str | None = None  # the only one that the format has
    begins_now: bool = False  # not with the local day, and only intervals that are over by its end
    names_expected: bool = False  # rows that are expected are named so, and always there

    @property
    def query_params(self) -> tuple[str, ...]:
        stretch = tuple(name for name in (self.start, self.end) if name is not None)
        return (*stretch, *self.params, *(() if self.names_expected else ("forecast",)))


def choose_rows(document: Document, *, with_expected: bool) -> dict[str, Any]:
    """Return a document with the rows alone that have a price, final or, if that is wanted, expected."""
    shown = {"final", "expected"} if with_expected else {"final"}
    rows = [row for row in document["prices"] if row["value"] is not None and row["status"] in shown]
    return {**document, "prices": rows}


def evcc_rates(document: Document, _: FormatQuery) -> dict[str, object]:
    """Return prices as evcc serves those of its own tariff, for programs that read them there."""
    return {"rates": [{name: row[name] for name in ("start", "end", "value")} for row in document["prices"]]}


def octopus_unit_rates(document: Document, query: FormatQuery) -> dict[str, object]:
    """Return prices as Octopus Energy serves the unit rates of a tariff: in pence or cents, the newest first.

    The price is what is paid; the operator decides whether tax is part of it. So both values are the same.
    """
    size, page = (
        _whole_number(query, name, default, limit)
        for name, default, limit in (("page_size", MAX_OCTOPUS_ROWS, MAX_OCTOPUS_ROWS), ("page", 1, 1_000_000))
    )
    rows, first = document["prices"][::-1], size * (page - 1)

    def link(number: int) -> str:
        return f"{query.url}?{urlencode({**query.params, 'page': number})}"

    return {
        "count": len(rows),
        "next": link(page + 1) if first + size < len(rows) else None,
        "previous": link(page - 1) if page > 1 else None,
        "results": [
            {
                "value_exc_vat": multiply_price(row["value"], 100),
                "value_inc_vat": multiply_price(row["value"], 100),
                "valid_from": row["start"],
                "valid_to": row["end"],
                "payment_method": None,
            }
            for row in rows[first : first + size]
        ],
    }


def awattar_market_data(document: Document, query: FormatQuery) -> dict[str, object]:
    """Return prices as aWATTar serves those of the market: in euros per megawatt-hour, times in milliseconds."""
    data = [
        {
            "start_timestamp": int(_parse_time(row["start"]).timestamp()) * 1000,
            "end_timestamp": int(_parse_time(row["end"]).timestamp()) * 1000,
            "marketprice": multiply_price(row["value"], 1000),
            "unit": "Eur/MWh",
        }
        for row in document["prices"]
    ]
    return {"object": "list", "data": data, "url": query.url}


def midas_values(document: Document, query: FormatQuery) -> dict[str, object]:
    """Return prices as MIDAS 2.0 of the California Energy Commission does: its list of rates, or the one rate there is.

    Times are UTC, and an interval ends with its last second.
    """
    rate, now = midas_rate_id(document["zone"]), query.interval_start
    common = {"RateID": rate, "SignalType": "Electricity Rates", "Description": f"Price in {document['zone']}"}
    if "ID" not in query.params:
        signal = query.params.get("SignalType", "missing")
        if signal not in {"0", "1", "2", "3"}:
            raise MurmurateError("SignalType", signal[:40], "must be from 0 to 3, unless there is an ID")
        return {"Rates": [{**common, "LastUpdated": now.replace("Z", "+0000")}] if signal in {"0", "1"} else []}
    if query.params["ID"] != rate:
        raise MurmurateError("ID", query.params["ID"][:40], f"must be {rate}, the only rate at this address")
    if (kind := query.params.get("QueryType", "alldata")) not in {"alldata", "realtime"}:
        raise MurmurateError("QueryType", kind[:40], "must be alldata or realtime")
    values = []
    for row in document["prices"]:
        start, last = _parse_time(row["start"]), _parse_time(row["end"]) - timedelta(seconds=1)
        value = {"ValueName": row["status"], "Value": row["value"], "Unit": "$/kWh"}
        for name, at in (("Start", start), ("End", last)):
            value |= {
                f"Date{name}": f"{at:%Y-%m-%d}",
                f"Day{name}": _WEEKDAYS[at.weekday()],
                f"Time{name}": f"{at:%H:%M:%S}",
            }
        if kind == "alldata" or row["start"] == now:
            values.append(value)
    unknown = dict.fromkeys(("EndUse", "API_Url", "RatePlan_Url", "AltRateName1", "AltRateName2", "SignupCloseDate"))
    about = {"SystemTime_UTC": now, "RateName": document["zone"], "RateType": "RTP", "Sector": "All"}
    return {**common, **about, **unknown, "ValueInformation": values}


def midas_rate_id(zone: str) -> str:
    """Return the rate identification number of a zone, in the form of MIDAS. None of its registered states is XXXX.

    >>> midas_rate_id("harbour")
    'XXXX-MURM-RATE-AA74F6FD03'
    """
    return f"XXXX-MURM-RATE-{sha256(zone.encode()).hexdigest()[:10].upper()}"


def cheapest_window(document: Document, query: FormatQuery) -> dict[str, object] | None:
    """Return the cheapest successive intervals that last the hours asked for, by their mean; of equal ones the first.

    Hours are elapsed time, also where the clock changes.
    """
    text, step_s = query.params.get("hours", ""), document["interval_s"]
    length_s = Fraction(text) * _SECONDS_PER_HOUR if _HOURS.fullmatch(text) else 0
    if not length_s or length_s % step_s:
        raise MurmurateError(
            "hours", text[:40] or "missing", f"must be hours of whole intervals of {step_s} s, such as 3"
        )
    rows, count = document["prices"], int(length_s // step_s)
    totals = [Fraction(0), *accumulate(_exact(row["value"]) for row in rows)]
    length = timedelta(seconds=int(length_s))
    whole = [
        first
        for first in range(len(rows) - count + 1)
        if _parse_time(rows[first + count - 1]["end"]) - _parse_time(rows[first]["start"]) == length  # without a gap
    ]
    if not whole:
        return None
    first = min(whole, key=lambda at: totals[at + count] - totals[at])
    chosen = rows[first : first + count]
    return {
        **{name: document[name] for name in ("zone", "currency", "unit", "timezone")},
        "start": chosen[0]["start"],
        "end": chosen[-1]["end"],
        "value": float((totals[first + count] - totals[first]) / count),
        "status": "final" if all(row["status"] == "final" for row in chosen) else "expected",
    }


CLIENT_FORMATS = {  # by the path below that of the zone
    "/cheapest": ClientFormat(
        write=cheapest_window, end="before", params=("hours",), begins_now=True, names_expected=True
    ),
    "/evcc/api/tariff/grid": ClientFormat(write=evcc_rates),
    "/octopus/v1/products/murmurate/electricity-tariffs/murmurate-price/standard-unit-rates": ClientFormat(
        write=octopus_unit_rates, start="period_from", end="period_to", params=("page", "page_size")
    ),
    "/awattar/v1/marketdata": ClientFormat(
        write=awattar_market_data, start="start", end="end", currency="EUR", begins_now=True
    ),
    "/midas/api/ValueData": ClientFormat(write=midas_values, params=("ID", "QueryType", "SignalType"), currency="USD"),
}


def multiply_price(value: float, factor: int) -> float:
    """Return a price in a smaller unit of money or for more energy, without a digit that it did not have.

    >>> multiply_price(0.07, 100), 0.07 * 100
    (7.0, 7.000000000000001)
    """
    return float(_exact(value) * factor)


def _exact(value: float) -> Fraction:
    """The shortest decimal that is this double: the price of the log, wherever its step is a decimal."""
    return Fraction(repr(value))


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _whole_number(query: FormatQuery, name: str, default: int, max_value: int) -> int:
    text = query.params.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= max_value):
        raise MurmurateError(name, text[:40], f"must be a whole number from 1 to {max_value}")
    return int(text)
