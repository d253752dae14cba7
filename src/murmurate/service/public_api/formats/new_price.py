"""A price that has just become public, as one small object: for server-sent events and MQTT."""

from __future__ import annotations

import json

from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.public_api.local_days import interval_start_end


def new_price_json(view: ZoneView, price: Price) -> str:
    """Return the price of one interval, about 200 bytes."""
    document = {
        "zone": view.zone,
        **interval_start_end(view, price.interval),
        "price": price.value,
        "price_ticks": price.ticks,
        "tick": f"{price.tick.numerator}/{price.tick.denominator}",
        "currency": view.currency,
        "unit": "kWh",
        "kind": price.kind.value,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
