"""Prices as they become public, to whoever holds the line (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

from murmurate.service.board.grid import span
from murmurate.service.board.view import Price, ZoneView

ALIVE_S = 15.0
MOST_WAITING = 64  # prices that a slow listener may be behind


class Stream:
    """Who listens to which zone. Everything happens in one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Queue[bytes | None]]] = {}

    def __len__(self) -> int:
        return sum(len(listeners) for listeners in self._listeners.values())

    def tell(self, view: ZoneView, prices: Iterable[Price]) -> None:
        """Tell all listeners of a zone. One that does not keep up is let go; it may come back for what it missed."""
        listeners = self._listeners.get(view.zone, set())
        if not listeners:
            return
        for price in prices:
            message = event(view, price)
            for queue in list(listeners):
                if queue.full():
                    listeners.discard(queue)
                    queue.get_nowait()
                    queue.put_nowait(None)
                else:
                    queue.put_nowait(message)

    async def listen(self, view: ZoneView, after: int | None) -> AsyncIterator[bytes]:
        """Prices of intervals later than `after` that are known, then each new one. None: the last one known first."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        listeners = self._listeners.setdefault(view.zone, set())
        listeners.add(queue)
        try:
            since = view.decided - 1 if after is None else after
            yield b"retry: 3000\n\n"
            for interval in sorted(interval for interval in view.prices if interval > since):
                yield event(view, view.prices[interval])
            while True:
                try:
                    message = await asyncio.wait_for(queue.get(), ALIVE_S)
                except TimeoutError:
                    message = b": still here\n\n"
                if message is None:
                    return
                yield message
        finally:
            listeners.discard(queue)


def event(view: ZoneView, price: Price) -> bytes:
    """A price as an event. Its id is the interval, so that a listener who comes back names the last one it has."""
    tick = f"{price.tick.numerator}/{price.tick.denominator}"
    document = {"zone": view.zone, **span(view, price.interval), "price": price.value, "price_ticks": price.ticks}
    document |= {"tick": tick, "currency": view.currency, "unit": "kWh", "kind": price.kind.value}
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"id: {price.interval}\nevent: price\ndata: {data}\n\n".encode()
