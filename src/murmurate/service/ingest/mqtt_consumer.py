"""Readings over MQTT: interval energy in batches, and registers of single meters. The broker decides who may publish
what; a meter with a key in the table must sign as well.

    murmurate/readings                  JSON lines or Parquet, as over HTTP
    smartmeter/<meter>/ACTIVE_ENERGY_P  the value of a register of import (OBIS 1.8.0)
    smartmeter/<meter>/ACTIVE_ENERGY_N  the value of a register of export (OBIS 2.8.0)
    murmurate/fence/<client>            what this client sends to itself

A fence shows whether the broker's messages arrive without delay: only then is a message that tells no time as old as
its arrival. A message may have waited: at the broker while this client was away, in a socket while this process stood
still, or until there was room in our queue. A broker delivers what it has for a client in the order in which it took
it, so what arrives after a fence was taken after the fence was sent.

    a fence is sent            it returns          a point arrives
    |------------------ less than `tolerance_s` ---|                the broker took the point within this time

While no fence returns, points are refused. Then senders may have kept points, and send them when the
broker is back. So fences must have returned for `settle_s` without a gap before points count again.

Consumers of one group share a subscription: each message goes to one of them. A broker may give a message that waited
for one consumer to another one, so fences show nothing, none is sent, and points that tell no time are refused.

A consumer that is away keeps its place in the group while its session lasts: Mosquitto gives it its share of new
messages as well. They come when it is back; when its session ends they are lost. So the session of a member lasts no
longer than a reading counts after it was sent, and the others then get everything.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from math import inf
from threading import Event, Lock, Thread

from paho.mqtt.client import Client, MQTTMessage

from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import (
    BATCH_TOPIC,
    EXPORT_REGISTER,
    MAX_MESSAGE_BYTES,
    MessageAttempts,
    MessageQueue,
    ReceivedMessage,
    ingest_until_stored,
    start_consumer_thread,
)
from murmurate.service.landing.layout import Landing
from murmurate.service.mqtt_client import REPEAT_FAILURE_S, SESSION_EXPIRY_S, connect_mqtt
from murmurate.service.settings import MqttBroker

logger = logging.getLogger(__name__)

REGISTER_TOPIC_FILTERS = ("smartmeter/+/ACTIVE_ENERGY_P", f"smartmeter/+/{EXPORT_REGISTER}")
FENCE_TOPIC = "murmurate/fence"
FENCE_REMEDY = (
    f"let the service's user publish and read {FENCE_TOPIC}/# at the broker, and see that state and landing can be "
    "written; until then points of registers without a time are refused"
)
TOLERANCE_SHARE = 1 / 60  # of an interval
SETTLE_SHARE = 1 / 6  # of an interval: 150 s of 15 minutes; common clients connect again within 120 s
FENCES_PER_TOLERANCE = 5
_TOKEN_BYTES = 16  # a fence of another client, or of an earlier process, is not known and does not count
MAX_MESSAGES_PER_GROUP = 10_000
_TAKE_TIMEOUT_S = 0.2
_MAX_LOST_FENCES = 2  # in a row, without a warning
MIN_GROUP_SESSION_S = 60  # of a consumer in a group: as long as a restart may take


class DeliveryFence:
    """The fences of one session. One thread sends them, another one receives.

    Times are those of the service's clock [s of UTC]. If it is set back or ahead, that is a gap.
    """

    def __init__(self, interval_s: float) -> None:
        self.tolerance_s = interval_s * TOLERANCE_SHARE
        self.settle_s = interval_s * SETTLE_SHARE
        self._lock = Lock()
        self._token = b""  # of the fence that is under way; none: it has returned
        self._sent_s = -inf  # the fence that is under way
        self.returned_s = -inf  # when the last fence that has returned was sent
        self.lost_in_row = 0  # fences that took too long
        self._since_s = inf  # when the first fence returned after the last gap

    def next_fence(self, now_s: float) -> bytes | None:
        """The payload of a fence to send now. None while another one is under way, and has not taken too long."""
        with self._lock:
            if self._token and self._is_recent(self._sent_s, now_s):
                return None
            self.lost_in_row += bool(self._token)
            self._token, self._sent_s = os.urandom(_TOKEN_BYTES), now_s
            return self._token

    def note_return(self, payload: bytes, now_s: float) -> None:
        """Note that a fence has returned."""
        with self._lock:
            if not self._token or payload != self._token:
                return
            if not self._is_recent(self.returned_s, now_s):
                self._since_s = now_s
            self._token, self.returned_s, self.lost_in_row = b"", self._sent_s, 0

    def is_open(self, now_s: float) -> bool:
        """Whether what arrives now has not waited."""
        with self._lock:
            return self._is_recent(self.returned_s, now_s) and now_s - self._since_s >= self.settle_s

    def _is_recent(self, sent_s: float, now_s: float) -> bool:
        return 0 <= now_s - sent_s < self.tolerance_s


class MqttConsumer:
    """Messages wait until a thread has stored what they carry; then they are acknowledged, as many at once as came.

    `clock_speed` is that of `now`, the time of the service, against the time of the machine.
    """

    def __init__(
        self,
        *,
        broker: MqttBroker,
        client_id: str,
        landing: Landing,
        current_ingestor: Callable[[], ReadingIngestor],
        store: IngestStore,
        now: Callable[[], float],
        clock_speed: float = 1.0,
        queue: MessageQueue | None = None,
    ) -> None:
        self._broker = broker
        self._client_id = client_id
        self._current_ingestor = current_ingestor
        self._now = now
        self._clock_speed = clock_speed
        self.store = store
        self.queue = queue or MessageQueue()
        self.dropped = 0  # messages at QoS 0 for which there was no room
        self.fence = DeliveryFence(landing.interval_s)
        self.fence_topic = f"{FENCE_TOPIC}/{client_id}"
        self._client: Client | None = None
        self._attempts = MessageAttempts(landing, client_id)
        self._stopped = Event()

    @property
    def is_connected(self) -> bool:
        return self._client is not None and self._client.is_connected()

    def run(self) -> None:
        """Take messages until `stop`."""
        group, topics = self._broker.group, (BATCH_TOPIC, *REGISTER_TOPIC_FILTERS)
        session_s = SESSION_EXPIRY_S
        if group is not None:
            session_s = max(MIN_GROUP_SESSION_S, self._current_ingestor().grace_s)
        client = self._client = connect_mqtt(
            self._broker,
            self._client_id,
            topics=(*topics, self.fence_topic) if group is None else tuple(f"$share/{group}/{each}" for each in topics),
            on_message=self._receive_message,
            max_message_bytes=MAX_MESSAGE_BYTES,
            session_expiry_s=session_s,
        )
        if group is None:
            Thread(target=self._send_fences, args=(client,), name="fences", daemon=True).start()
        try:
            while not self._stopped.is_set():
                messages = self.queue.take(MAX_MESSAGES_PER_GROUP, _TAKE_TIMEOUT_S)
                if messages and self._ingest_until_stored(messages):
                    for message in messages:
                        client.ack(message.mid, message.qos)
                    self.queue.release(messages)
        finally:
            self.queue.close()
            client.disconnect()
            client.loop_stop()

    def start(self, on_failure: Callable[[], None] = lambda: None) -> Thread:
        """Take messages in another thread. `on_failure` is called if the thread ends by an error."""
        return start_consumer_thread(self.run, "mqtt", on_failure)

    def stop(self) -> None:
        self._stopped.set()
        self.queue.close()

    def _receive_message(self, message: MQTTMessage) -> None:
        """Keep what is needed of a message. It is called by the thread of the client, which waits for room here.

        Fences wait with the others: a client must acknowledge messages in the order of their arrival.
        """
        now_s = self._known_time()
        if now_s is not None and message.topic == self.fence_topic:
            self.fence.note_return(bytes(message.payload), now_s)
        received = ReceivedMessage(
            message.topic,
            bytes(message.payload),
            None if now_s is None else int(now_s),
            message.qos,
            message.mid,
            message.dup,
            message.retain,
            now_s is None or not self.fence.is_open(now_s),
        )
        if not self.queue.put(received):
            self.dropped += 1

    def _known_time(self) -> float | None:
        """The time of the service [s of UTC]; None while its clocks differ."""
        try:
            return self._now()
        except ClockDifferenceError:
            return None

    def _send_fences(self, client: Client) -> None:
        """Send a fence whenever the last one has returned, or has taken too long."""
        pause_s, said_s = self.fence.tolerance_s / FENCES_PER_TOLERANCE / self._clock_speed, -inf
        while not self._stopped.wait(pause_s):
            now_s = self._known_time()
            if now_s is None or not client.is_connected():
                continue
            if (fence := self.fence.next_fence(now_s)) is not None:
                client.publish(self.fence_topic, fence, qos=1)
            if self.fence.lost_in_row >= _MAX_LOST_FENCES and time.monotonic() - said_s >= REPEAT_FAILURE_S:
                said_s = time.monotonic()
                logger.warning("messages delayed", extra={"consumer": "mqtt", "remedy": FENCE_REMEDY})

    def _ingest_until_stored(self, messages: list[ReceivedMessage]) -> bool:
        """Keep what they carry; while the disk or the state fails, try again. What cannot be read is only counted."""
        messages = [message for message in messages if message.topic != self.fence_topic]
        if not messages:
            return True
        return ingest_until_stored(
            messages,
            consumer="mqtt",
            current_ingestor=self._current_ingestor,
            store=self.store,
            attempts=self._attempts,
            stopped=self._stopped,
        )
