"""A whole local day as one document that never changes: it may be kept for good by everybody on the way."""

from __future__ import annotations

from datetime import date

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.zone_view import Price, ZoneView, format_rfc3339
from murmurate.service.public_api.local_days import interval_start_end, intervals_of_day, is_day_complete


def day_document(view: ZoneView, day: date) -> dict[str, object]:
    """The prices of a local day. Raises MurmurateError unless each of them is decided and known to the view."""
    intervals = intervals_of_day(view, day)
    if not is_day_complete(view, day):
        raise MurmurateError("day", day, _incomplete_day_reason(view, intervals))
    prices = view.prices
    if intervals[0] not in prices:
        raise MurmurateError("day", day, "must be among the days that are kept at hand")
    return {
        "zone": view.zone,
        "day": day.isoformat(),
        "timezone": view.display.timezone.key,
        "currency": view.currency,
        "unit": "kWh",
        "interval_s": view.interval_s,
        "prices": [_row(view, prices[interval]) for interval in intervals],
    }


def _row(view: ZoneView, price: Price) -> dict[str, object]:
    """Ticks for billing, a double for charts."""
    return {
        **interval_start_end(view, price.interval),
        "price": price.value,
        "price_ticks": price.ticks,
        "tick": str(price.tick),
        "kind": price.kind.value,
    }


def _incomplete_day_reason(view: ZoneView, intervals: range) -> str:
    """A price is decided `lead` intervals ahead, at the earliest when the interval that it was measured in is over."""
    if not intervals:
        return f"must be a day of the calendar in {view.display.timezone.key}"
    if intervals[0] < view.first_priced:
        return f"must begin when there were prices, from {format_rfc3339(view.start_s(view.first_priced))} on"
    if view.closed is not None:
        end = format_rfc3339(view.start_s(view.last_decided + 1))
        return f"must be whole: the zone is closed, and its last price ended at {end}"
    at = format_rfc3339(view.start_s(intervals[-1] + 1 - view.lead_intervals))
    return f"must be whole: it can be from {at} on, when its last interval is decided"
