"""Prices as they become public: to subscribers of a stream (server-sent events), and over MQTT.

Over MQTT a price alone is 200 bytes. OpenADR's notices hold the whole event, as its clients read them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from collections.abc import Set as AbstractSet

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode
from starlette.exceptions import HTTPException

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.zone_view import MakeView, PlanTerms, Price, ZoneView
from murmurate.service.public_api.openadr import changed_events, notification_json, notifier_topics, zone_slug
from murmurate.service.public_api.price_formats import new_price_json
from murmurate.service.public_api.worker_threads import WorkerThreads
from murmurate.service.web.address_counts import AddressCounts

logger = logging.getLogger(__name__)

MAX_WAITING_INTERVALS = 8  # of a shard, while a broker is slow; fewer than a view may be behind
MAX_QUEUED_MESSAGES = 2000  # that the broker has not taken yet
_FULL_PAUSE_S = 0.02
_BROKER_POLL_S = 0.2  # while it is away
_STOP_TIMEOUT_S = 5.0
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
        self.by_address = by_address or AddressCounts(max_streams)
        self._subscribers: dict[str, set[asyncio.Queue[_QueuedMessage]]] = {}
        self._events: dict[tuple[str, int], bytes] = {}  # by zone and interval; they never change

    def __len__(self) -> int:
        return sum(len(subscribers) for subscribers in self._subscribers.values())

    def check_room(self, address: str) -> None:
        """Raise HTTPException if a client may not have one stream more."""
        retry = {"retry-after": str(STREAM_RETRY_AFTER_S)}
        if self.by_address.is_full(address):
            raise HTTPException(429, "too many streams from this address; try again", retry)
        if len(self) >= self._max_streams:
            raise HTTPException(503, "too many streams; try again, or read the prices instead", retry)

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
                yield await self._threads.run_next_piece(b"".join, (self._event(view, interval) for interval in some))
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

    def _event(self, view: ZoneView, interval: int) -> bytes:
        """Return a price as an event. Its id is the interval: a subscriber that returns names the last one it has."""
        event = self._events.get((view.zone, interval))
        if event is None:
            if len(self._events) >= _MAX_KEPT_EVENTS:
                self._events.clear()
            data = new_price_json(view, view.prices[interval])
            event = f"id: {interval}\nevent: price\ndata: {data}\n\n".encode()
            self._events[view.zone, interval] = event
        return event


class MqttNotifier:
    """Publishes notices in its own thread. One that is lost does no harm: prices and events can be read.

    While the broker is away only the newest price of each zone waits. The client must bound its queue as well
    (`MAX_QUEUED_MESSAGES`): notices are many, and a slow broker must not fill memory.
    """

    def __init__(self, client: Client, *, openadr: bool = True) -> None:
        self._client, self._openadr = client, openadr
        self._waiting: dict[str, ChangedShard] = {}  # by shard: what was not published yet
        self._wake = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self.dropped_count = 0  # notices that are never published

    def start(self, make_view: MakeView, plan_terms: PlanTerms) -> None:
        """Begin to publish what `notify` hands in."""
        self._thread = threading.Thread(target=self._run, args=(make_view, plan_terms), name="notifier", daemon=True)
        self._thread.start()

    def notify(self, change: ChangedShard) -> None:
        """Have the new prices of a shard published. It never waits."""
        with self._wake:
            earlier = self._waiting.get(change.view.name)
            if earlier is not None:  # while the broker is away the newest interval is enough
                both = range(earlier.new_intervals.start, change.new_intervals.stop)
                kept = both[-(MAX_WAITING_INTERVALS if self._client.is_connected() else 1) :]
                self.dropped_count += (len(both) - len(kept)) * len(change.view.table)
                change = ChangedShard(change.view, kept)
            self._waiting[change.view.name] = change
            self._wake.notify()

    def _run(self, make_view: MakeView, plan_terms: PlanTerms) -> None:
        while True:
            with self._wake:
                while not self._stopped.is_set() and not (self._waiting and self._client.is_connected()):
                    self._wake.wait(_BROKER_POLL_S if self._waiting else None)
                if self._stopped.is_set():
                    return
                change = self._waiting.pop(next(iter(self._waiting)))
            try:
                self.publish_shard(change, make_view, plan_terms)
            except Exception as error:  # noqa: BLE001  a notice that fails must not end the others
                self.dropped_count += len(change.view.table)
                logger.warning("notices dropped", extra={"shard": change.view.name, "reason": type(error).__name__})

    def publish_shard(self, change: ChangedShard, make_view: MakeView, plan_terms: PlanTerms) -> None:
        """Publish the new prices of a shard: first all prices alone, then the events, which take longer."""
        views = [make_view(change.view, zone) for zone in change.view.table.zones_ever]
        for view in views:
            for price in new_prices(view, change.new_intervals):
                self._publish(zone_topic(view.zone, "price"), new_price_json(view, price), retain=True)
        if not self._openadr:
            return
        plan_terms.load(view.plan_digest for view in views)
        lead = change.view.lead_intervals
        new = range(change.new_intervals.start + lead, change.new_intervals.stop + lead)
        for view in views:
            try:
                events = changed_events(view, new)
            except MurmurateError as error:
                logger.warning("notices dropped", extra={"zone": view.zone, "reason": str(error)})
                continue
            for operation, event in events:
                topic = notifier_topics(event.program.id)["topics"][operation]
                self._publish(topic, notification_json(operation, event))

    def _publish(self, topic: str, message: str, *, retain: bool = False) -> None:
        self.dropped_count += not publish_message(self._client, topic, message, self._stopped, retain=retain)

    def close(self) -> None:
        """Stop publishing. What is queued is dropped."""
        with self._wake:
            self._stopped.set()
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)


def publish_message(client: Client, topic: str, message: str, stopped: threading.Event, *, retain: bool) -> bool:
    """Hand a message to a client. Where the broker is slow, wait; where it is away, drop it and return False."""
    while client.publish(topic, message, qos=1, retain=retain).rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
        if not client.is_connected() or stopped.wait(_FULL_PAUSE_S):
            return False
    return True


def zone_topic(zone: str, what: str) -> str:
    """Where something of a zone is published.

    >>> zone_topic("fish market", "price")
    'murmurate/zones/fish_20market/price'
    """
    return f"murmurate/zones/{zone_slug(zone)}/{what}"


def new_prices(view: ZoneView, measured_intervals: Iterable[int]) -> list[Price]:
    """The prices of a zone that were measured in these intervals, as far as it was open then."""
    prices, lead = view.prices, view.lead_intervals
    return [prices[interval + lead] for interval in measured_intervals if interval + lead in prices]
