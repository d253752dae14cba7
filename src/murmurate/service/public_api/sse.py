"""Prices as they become public, for subscribers (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable

from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.public_api.local_days import interval_start_end

KEEP_ALIVE_S = 15.0
MAX_QUEUED_PRICES = 64  # prices that a slow subscriber may be behind


_QueuedMessage = tuple[int, bytes] | None  # interval and message; None: close the connection


class PriceStream:
    """The subscribers of each zone. Everything happens in one event loop."""

    def __init__(self) -> None:
        self._subscribers: dict[str, set[asyncio.Queue[_QueuedMessage]]] = {}

    def __len__(self) -> int:
        return sum(len(subscribers) for subscribers in self._subscribers.values())

    def publish_prices(self, view: ZoneView, prices: Iterable[Price]) -> None:
        """Send prices to all subscribers of a zone. A slow one is disconnected; it may return for what it missed."""
        subscribers = self._subscribers.get(view.zone, set())
        if not subscribers:
            return
        for price in prices:
            message = sse_event(view, price)
            for queue in list(subscribers):
                if queue.full():
                    subscribers.discard(queue)
                    queue.get_nowait()
                    queue.put_nowait(None)
                else:
                    queue.put_nowait((price.interval, message))

    async def subscribe(self, current_view: Callable[[], ZoneView], after: int | None) -> AsyncIterator[bytes]:
        """Prices of intervals later than `after` that are known, then each new one. None: the last one known first.

        It subscribes before it reads the current view: a price that comes in between is sent, and sent once.
        """
        queue: asyncio.Queue[_QueuedMessage] = asyncio.Queue(MAX_QUEUED_PRICES)
        view = current_view()
        subscribers = self._subscribers.setdefault(view.zone, set())
        subscribers.add(queue)
        try:
            since = view.last_decided - 1 if after is None else after
            yield b"retry: 3000\n\n"
            for interval in sorted(interval for interval in view.prices if interval > since):
                yield sse_event(view, view.prices[interval])
            while True:
                try:
                    queued = await asyncio.wait_for(queue.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if queued is None:
                    return
                if queued[0] > since:  # it may have this one already
                    yield queued[1]
        finally:
            subscribers.discard(queue)


def sse_event(view: ZoneView, price: Price) -> bytes:
    """A price as an event. Its id is the interval, so that a subscriber that returns names the last one it has."""
    tick = f"{price.tick.numerator}/{price.tick.denominator}"
    document = {
        "zone": view.zone,
        **interval_start_end(view, price.interval),
        "price": price.value,
        "price_ticks": price.ticks,
    }
    document |= {"tick": tick, "currency": view.currency, "unit": "kWh", "kind": price.kind.value}
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"id: {price.interval}\nevent: price\ndata: {data}\n\n".encode()
