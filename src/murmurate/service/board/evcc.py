"""The prices to come as evcc reads them, for whoever charges a car."""

from __future__ import annotations

from murmurate.service.board.grid import span
from murmurate.service.board.view import ZoneView

HORIZON_S = 48 * 3600  # as far as evcc plans


def evcc_list(view: ZoneView, now_s: float, *, forecast: bool = False) -> list[dict[str, object]]:
    """The final prices from this interval on; on demand, what the plan expects after them.

    The format has no word for "not final", so a forecast is only given to whoever asks for it.
    """
    rows = [_row(view, interval, value) for interval, value in _final(view, now_s)]
    if forecast:
        rows += [_row(view, interval, view.expected(interval)) for interval in _open(view, now_s)]
    return rows


def _final(view: ZoneView, now_s: float) -> list[tuple[int, float]]:
    """Without those withheld: a missing row is a gap to evcc, a price of null would be an error."""
    current = view.at(now_s)
    known = ((interval, view.prices[interval].value) for interval in sorted(view.prices) if interval >= current)
    return [(interval, value) for interval, value in known if value is not None]


def _open(view: ZoneView, now_s: float) -> range:
    """The intervals that can still get a price: one that has begun without cannot, it will be withheld."""
    current = view.at(now_s)
    return range(max(current, view.decided) + 1, current + HORIZON_S // view.interval_s)


def _row(view: ZoneView, interval: int, value: float) -> dict[str, object]:
    return {**span(view, interval), "value": value}
