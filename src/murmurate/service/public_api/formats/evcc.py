"""The prices to come as evcc reads them, to charge a car."""

from __future__ import annotations

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.local_days import interval_start_end

EVCC_HORIZON_S = 48 * 3600  # as far as evcc plans


def evcc_list(view: ZoneView, now_s: float, *, forecast: bool = False) -> list[dict[str, object]]:
    """The final prices from this interval on; on demand, what the plan expects after them.

    The format has no word for "not final", so a forecast is given only on request.
    """
    rows = [_row(view, interval, value) for interval, value in _final_prices(view, now_s)]
    if forecast:
        rows += [_row(view, interval, view.expected_price(interval)) for interval in _undecided_intervals(view, now_s)]
    return rows


def _final_prices(view: ZoneView, now_s: float) -> list[tuple[int, float]]:
    """Without those withheld: a missing row is a gap to evcc, a price of null would be an error."""
    known = view.known_intervals
    to_come = range(max(view.interval_at(now_s), known.start), known.stop)
    values = ((interval, view.prices[interval].value) for interval in to_come)
    return [(interval, value) for interval, value in values if value is not None]


def _undecided_intervals(view: ZoneView, now_s: float) -> range:
    """The intervals that can still get a price: one that has begun without cannot, it will be withheld."""
    current = view.interval_at(now_s)
    if view.closed is not None:
        return range(0)
    return range(max(current, view.last_decided) + 1, current + EVCC_HORIZON_S // view.interval_s)


def _row(view: ZoneView, interval: int, value: float) -> dict[str, object]:
    return {**interval_start_end(view, interval), "value": value}
