"""New prices over MQTT, as soon as the log has them: the price alone, and the event of OpenADR that it changes.

The price alone is 200 bytes. OpenADR's notices hold the whole event, as its clients read them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.plan_terms import PlanTerms
from murmurate.service.log_reader.zone_view import Price, ZoneView
from murmurate.service.log_reader.zone_views import MakeView
from murmurate.service.public_api.formats.new_price import new_price_json
from murmurate.service.public_api.formats.openadr_event import changed_events, notification_json
from murmurate.service.public_api.formats.openadr_program import notifier_topics, zone_slug

logger = logging.getLogger(__name__)

MAX_WAITING_INTERVALS = 8  # of a shard, while a broker is slow; fewer than a view may be behind
MAX_QUEUED_MESSAGES = 2000  # that the broker has not taken yet
_FULL_PAUSE_S = 0.02
_BROKER_POLL_S = 0.2  # while it is away
_STOP_TIMEOUT_S = 5.0


class MqttNotifier:
    """Publishes notices in a thread of its own. One that is lost does no harm: prices and events can be read.

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
            self._waiting[change.view.name] = change if earlier is None else self._merge(earlier, change)
            self._wake.notify()

    def _merge(self, earlier: ChangedShard, change: ChangedShard) -> ChangedShard:
        """What to publish of two changes of a shard. Where the broker is away that is the newest interval."""
        both = range(earlier.new_intervals.start, change.new_intervals.stop)
        max_intervals = MAX_WAITING_INTERVALS if self._client.is_connected() else 1
        kept = both[-max_intervals:]
        self.dropped_count += (len(both) - len(kept)) * len(change.view.table)
        return ChangedShard(change.view, kept)

    def _run(self, make_view: MakeView, plan_terms: PlanTerms) -> None:
        while (change := self._next_change()) is not None:
            try:
                self.publish_shard(change, make_view, plan_terms)
            except Exception as error:  # noqa: BLE001  a notice that fails must not end the others
                self.dropped_count += len(change.view.table)
                logger.warning("notices dropped", extra={"shard": change.view.name, "reason": type(error).__name__})

    def _next_change(self) -> ChangedShard | None:
        """Wait for a change and for the broker. None: it is stopped."""
        with self._wake:
            while not self._stopped.is_set():
                if self._waiting and self._client.is_connected():
                    return self._waiting.pop(next(iter(self._waiting)))
                self._wake.wait(_BROKER_POLL_S if self._waiting else None)
        return None

    def publish_shard(self, change: ChangedShard, make_view: MakeView, plan_terms: PlanTerms) -> None:
        """Publish the new prices of a shard: first all prices alone, then the events, which take longer."""
        views = [make_view(change.view, zone) for zone in change.view.table.zones_ever]
        for view in views:
            for price in new_prices(view, change.new_intervals):
                self._publish(price_topic(view.zone), new_price_json(view, price))
        if self._openadr:
            self._publish_events(change, views, plan_terms)

    def _publish_events(self, change: ChangedShard, views: list[ZoneView], plan_terms: PlanTerms) -> None:
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

    def _publish(self, topic: str, message: str) -> None:
        """Hand a message to the client. Where the broker is slow, wait; where it is away, drop it."""
        while self._client.publish(topic, message, qos=1).rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
            if not self._client.is_connected() or self._stopped.wait(_FULL_PAUSE_S):
                self.dropped_count += 1
                return

    def close(self) -> None:
        """Stop publishing. What is queued is dropped."""
        with self._wake:
            self._stopped.set()
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(_STOP_TIMEOUT_S)


def price_topic(zone: str) -> str:
    """Where the new prices of a zone are published.

    >>> price_topic("fish market")
    'murmurate/zones/fish_20market/price'
    """
    return f"murmurate/zones/{zone_slug(zone)}/price"


def new_prices(view: ZoneView, measured_intervals: Iterable[int]) -> list[Price]:
    """The prices of a zone that were measured in these intervals, as far as it was open then."""
    prices, lead = view.prices, view.lead_intervals
    return [prices[interval + lead] for interval in measured_intervals if interval + lead in prices]
