"""Prices as they become public, for subscribers (server-sent events)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager

from starlette.exceptions import HTTPException

from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.public_api.formats.new_price import new_price_json
from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.web.address_counts import AddressCounts

KEEP_ALIVE_S = 15.0
MAX_QUEUED_PRICES = 64  # prices that a slow subscriber may be behind
MAX_STREAMS = 5_000
STREAM_RETRY_AFTER_S = 30  # for a client whose stream is refused
_EVENTS_AT_ONCE = 32  # of the past, in one piece
_MAX_KEPT_EVENTS = 20_000  # of 300 bytes: clients that return together ask for the same ones


_QueuedMessage = tuple[int, bytes] | None  # interval and message; None: close the connection


class PriceStream:
    """The subscribers of each zone. Everything happens in one event loop."""

    def __init__(
        self, threads: WorkerThreads, by_address: AddressCounts | None = None, max_streams: int = MAX_STREAMS
    ) -> None:
        self._threads, self._max_streams = threads, max_streams
        self._by_address = by_address or AddressCounts(max_streams)
        self._subscribers: dict[str, set[asyncio.Queue[_QueuedMessage]]] = {}
        self._events: dict[tuple[str, int], bytes] = {}  # by zone and interval; they never change

    def __len__(self) -> int:
        return sum(len(subscribers) for subscribers in self._subscribers.values())

    def check_room(self, address: str) -> None:
        """Raise HTTPException if a client may not have one stream more."""
        retry = {"retry-after": str(STREAM_RETRY_AFTER_S)}
        if self._by_address.is_full(address):
            raise HTTPException(429, "too many streams from this address; try again", retry)
        if len(self) >= self._max_streams:
            raise HTTPException(503, "too many streams; try again, or read the prices instead", retry)

    @asynccontextmanager
    async def held(self, address: str) -> AsyncIterator[None]:
        """Count a stream of an address while the block runs."""
        with self._by_address.held(address):
            yield

    @property
    def zones(self) -> AbstractSet[str]:
        """The zones that have a subscriber."""
        return self._subscribers.keys()

    def publish_prices(self, view: ZoneView, prices: Iterable[Price]) -> None:
        """Send prices to all subscribers of a zone. A slow one is disconnected; it may return for what it missed."""
        subscribers = self._subscribers.get(view.zone, set())
        if not subscribers:
            return
        for price in prices:
            message = self._event(view, price.interval)
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
            known = view.known_intervals
            for at in range(max(known.start, since + 1), known.stop, _EVENTS_AT_ONCE):
                some = range(at, min(known.stop, at + _EVENTS_AT_ONCE))
                yield await self._threads.run_next_piece(self._make_events, view, some)
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
            if not subscribers and self._subscribers.get(view.zone) is subscribers:
                del self._subscribers[view.zone]

    def _make_events(self, view: ZoneView, intervals: range) -> bytes:
        return b"".join(self._event(view, interval) for interval in intervals)

    def _event(self, view: ZoneView, interval: int) -> bytes:
        event = self._events.get((view.zone, interval))
        if event is None:
            if len(self._events) >= _MAX_KEPT_EVENTS:
                self._events.clear()
            event = self._events[view.zone, interval] = sse_event(view, view.prices[interval])
        return event


def sse_event(view: ZoneView, price: Price) -> bytes:
    """A price as an event. Its id is the interval, so that a subscriber that returns names the last one it has."""
    return f"id: {price.interval}\nevent: price\ndata: {new_price_json(view, price)}\n\n".encode()
