"""A whole local day as one document that never changes: it may be kept for good by everybody on the way."""

from __future__ import annotations

from datetime import date

from murmurate.errors import MurmurateError
from murmurate.service.board.grid import intervals_of, is_whole, span
from murmurate.service.board.view import Price, ZoneView, rfc3339


def day_document(view: ZoneView, day: date) -> dict[str, object]:
    """The prices of a local day. Raises MurmurateError unless each of them is decided and known to the view."""
    intervals = intervals_of(view, day)
    if not is_whole(view, day):
        raise MurmurateError("day", day, _when_whole(view, intervals))
    if intervals[0] not in view.prices:
        raise MurmurateError("day", day, "must be among the days that are kept at hand")
    return {
        "zone": view.zone,
        "day": day.isoformat(),
        "timezone": view.sign.timezone.key,
        "currency": view.currency,
        "unit": "kWh",
        "interval_s": view.interval_s,
        "prices": [_row(view, view.prices[interval]) for interval in intervals],
    }


def _row(view: ZoneView, price: Price) -> dict[str, object]:
    """Ticks for whoever settles a bill, a double for whoever draws a curve."""
    return {
        **span(view, price.interval),
        "price": price.value,
        "price_ticks": price.ticks,
        "tick": str(price.tick),
        "kind": price.kind.value,
    }


def _when_whole(view: ZoneView, intervals: range) -> str:
    """A price is decided `lead` intervals ahead, at the earliest when the interval that it was measured in is over."""
    if not intervals:
        return f"must be a day of the calendar in {view.sign.timezone.key}"
    if intervals[0] < view.first:
        return f"must begin when there were prices, from {rfc3339(view.begin_s(view.first))} on"
    at = rfc3339(view.begin_s(intervals[-1] + 1 - view.lead))
    return f"must be whole: it can be from {at} on, when its last interval is decided"
