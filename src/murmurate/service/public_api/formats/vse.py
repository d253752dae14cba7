"""Dynamic tariffs as the Swiss grid operators agreed to publish them (VSE, version 1, GET /v1/tariffs)."""

from __future__ import annotations

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api.local_days import interval_start_end


def vse_tariffs(view: ZoneView, first: int, last: int) -> dict[str, object]:
    """The prices of the intervals from `first` to `last`, both included.

    The publication timestamp is when the log took the latest of them: two servers answer with the same bytes.
    Raises MurmurateError for another currency than CHF (the format has no other), and where one is not decided.
    """
    if view.currency != "CHF":
        raise MurmurateError("currency", view.currency, "must be CHF: the VSE format has no other")
    prices = [_decided_price(view, interval) for interval in range(first, last + 1)]
    if not prices:
        raise MurmurateError("last", last, f"must be at least the first, {first}")
    return {
        "publication_timestamp": format_rfc3339(max(price.logged_s for price in prices)),
        "prices": [_row(view, price) for price in prices if price.value is not None],
    }


def _decided_price(view: ZoneView, interval: int) -> Price:
    if interval not in view.prices:
        known = view.known_intervals or range(view.first_priced, view.first_priced)
        begin, end = (format_rfc3339(view.start_s(at)) for at in (known.start, view.last_decided + 1))
        when = format_rfc3339(view.start_s(interval))
        raise MurmurateError("interval", when, f"must have a decided price at hand: from {begin} to {end}")
    return view.prices[interval]


def _row(view: ZoneView, price: Price) -> dict[str, object]:
    when = interval_start_end(view, price.interval)
    electricity = [{"unit": "CHF_kWh", "value": price.value}]
    return {"start_timestamp": when["start"], "end_timestamp": when["end"], "electricity": electricity}
