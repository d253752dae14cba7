"""Prices as they become public, to whoever holds the line (server-sent events)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable

from murmurate.service.board.grid import span
from murmurate.service.board.view import Price, ZoneView

ALIVE_S = 15.0
MOST_WAITING = 64  # prices that a slow listener may be behind


_Told = tuple[int, bytes] | None  # interval and message; none: hang up


class Stream:
    """Who listens to which zone. Everything happens in one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Queue[_Told]]] = {}

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
                    queue.put_nowait((price.interval, message))

    async def listen(self, now: Callable[[], ZoneView], after: int | None) -> AsyncIterator[bytes]:
        """Prices of intervals later than `after` that are known, then each new one. None: the last one known first.

        It listens before it looks at what is known `now`: what comes in between is heard, and heard once.
        """
        queue: asyncio.Queue[_Told] = asyncio.Queue(MOST_WAITING)
        view = now()
        listeners = self._listeners.setdefault(view.zone, set())
        listeners.add(queue)
        try:
            since = view.decided - 1 if after is None else after
            yield b"retry: 3000\n\n"
            for interval in sorted(interval for interval in view.prices if interval > since):
                yield event(view, view.prices[interval])
            while True:
                try:
                    told = await asyncio.wait_for(queue.get(), ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if told is None:
                    return
                if told[0] > since:  # it may have heard this one elsewhere
                    yield told[1]
        finally:
            listeners.discard(queue)


def event(view: ZoneView, price: Price) -> bytes:
    """A price as an event. Its id is the interval, so that a listener who comes back names the last one it has."""
    tick = f"{price.tick.numerator}/{price.tick.denominator}"
    document = {"zone": view.zone, **span(view, price.interval), "price": price.value, "price_ticks": price.ticks}
    document |= {"tick": tick, "currency": view.currency, "unit": "kWh", "kind": price.kind.value}
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return f"id: {price.interval}\nevent: price\ndata: {data}\n\n".encode()
