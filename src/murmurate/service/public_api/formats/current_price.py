"""The price of this moment as one flat object, as Home Assistant's own REST sensor reads it."""

from __future__ import annotations

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.local_days import interval_start_end


def current_price_document(view: ZoneView, now_s: float) -> dict[str, object] | None:
    """What a kilowatt-hour costs now, and until when. None: there is no price, which is not a price of nothing."""
    price = view.prices.get(view.interval_at(now_s))
    if price is None or price.value is None:
        return None
    following = view.prices.get(price.interval + 1)
    when = interval_start_end(view, price.interval)
    return {
        "zone": view.zone,
        "price": price.value,
        "currency": view.currency,
        "unit": "kWh",
        **when,
        "kind": price.kind.value,
        "next_price": None if following is None else following.value,
        "next_change": when["end"],
    }
