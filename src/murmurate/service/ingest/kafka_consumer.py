"""Readings from Kafka, as a member of a consumer group: each message is JSON lines or Parquet, as over HTTP.

The group remembers an offset for each partition: what lies before it was stored. It is committed when all messages
before it are on disk or were refused, never by a clock. A process that ends between the two has its last messages
read again, by itself or by another member; a reading that comes twice counts once.

    poll  ─▶  readings on disk  ─▶  commit the offsets of these messages  ─▶  poll

One thread does all of this in turn, so a partition that moves to another member while messages wait here does no harm:
an offset that is committed late lies behind the other member's, and its messages are read again. Only what librdkafka
has fetched ahead (`MAX_FETCHED_BYTES`) and one group of messages are in memory; the broker keeps the rest.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from threading import Event, Thread
from typing import TYPE_CHECKING, cast

from murmurate.extras import require_extra
from murmurate.files import read_secret
from murmurate.service.clock_comparison import ClockDifferenceError
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import (
    BATCH_TOPIC,
    MessageAttempts,
    ReceivedMessage,
    ingest_until_stored,
    start_consumer_thread,
)
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import KafkaCluster

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

logger = logging.getLogger(__name__)

MAX_POLLED_MESSAGES = 10_000
MAX_GROUP_BYTES = 32 * 2**20  # of messages that are stored together; one message may be larger
MAX_FETCHED_BYTES = 64 * 2**20  # of messages that are fetched ahead
SESSION_TIMEOUT_MS = 10_000  # after this the partitions of a process that was killed go to the others
STATISTICS_PERIOD_MS = 5_000
TOPIC_REFRESH_MS = 30_000  # a topic that is made later is found after this time
_POLL_TIMEOUT_S = 0.2


def require_kafka() -> None:
    """Raise MissingExtraError where the client of Kafka is not installed."""
    require_extra("kafka", "confluent_kafka")


class KafkaConsumer:
    """Stores what comes from the topics of a cluster, in its own thread."""

    def __init__(
        self,
        *,
        cluster: KafkaCluster,
        client_id: str,
        landing: Landing,
        current_ingestor: Callable[[], ReadingIngestor],
        store: IngestStore,
        now: Callable[[], float],
    ) -> None:
        require_kafka()
        self._cluster = cluster
        self._client_id = client_id
        self._current_ingestor = current_ingestor
        self._store = store
        self._now = now
        self._attempts = MessageAttempts(landing, client_id)
        self._stopped = Event()
        self.is_connected = False  # to at least one broker, at the last statistics
        self.lag_messages = 0  # messages of its partitions that are not committed yet, at the last statistics

    def run(self) -> None:
        """Take messages until `stop`."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415  an extra

        consumer = Consumer(self._client_settings())
        consumer.subscribe(
            list(self._cluster.topics),
            on_assign=lambda _, partitions: logger.info("partitions assigned", extra={"count": len(partitions)}),
            on_revoke=lambda _, partitions: logger.info("partitions revoked", extra={"count": len(partitions)}),
        )
        try:
            while not self._stopped.is_set():
                received, next_offsets = self._take_messages(consumer)
                if not received or not self._ingest_until_stored(received):
                    continue
                try:
                    behind = [TopicPartition(*partition, offset) for partition, offset in next_offsets.items()]
                    consumer.commit(offsets=behind, asynchronous=False)
                except KafkaException as error:  # what is not committed comes again
                    logger.warning("offsets not committed", extra={"reason": error.args[0].name()})
        finally:
            consumer.close()  # it leaves the group, so the others get its partitions at once

    def start(self, on_failure: Callable[[], None] = lambda: None) -> Thread:
        """Take messages in another thread. `on_failure` is called if the thread ends by an error."""
        return start_consumer_thread(self.run, "kafka", on_failure)

    def stop(self) -> None:
        self._stopped.set()

    def _client_settings(self) -> dict[str, object]:
        cluster = self._cluster
        settings: dict[str, object] = {
            "bootstrap.servers": ",".join(cluster.servers),
            "client.id": self._client_id,
            "group.id": cluster.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # of a new group: late readings are counted, none is passed over
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 3,
            "topic.metadata.refresh.interval.ms": TOPIC_REFRESH_MS,
            "queued.max.messages.kbytes": MAX_FETCHED_BYTES // 1024,
            "statistics.interval.ms": STATISTICS_PERIOD_MS,
            "stats_cb": self._note_statistics,
            "error_cb": lambda error: logger.warning("kafka", extra={"reason": error.name()}),
            "logger": logging.getLogger(f"{__name__}.client"),
            "log_level": 3,  # errors; its words name servers, never messages
            "security.protocol": ("SASL_" if cluster.user else "") + ("SSL" if cluster.tls else "PLAINTEXT"),
        }
        if cluster.user:
            settings["sasl.mechanism"] = cluster.mechanism
            settings["sasl.username"] = cluster.user
            settings["sasl.password"] = read_secret("MURMURATE_KAFKA_PASSWORD", os.environ)
        return settings

    def _take_messages(self, consumer: Consumer) -> tuple[list[ReceivedMessage], dict[tuple[str, int], int]]:
        """The messages that have come, and for each topic and partition the offset behind the last one."""
        received: list[ReceivedMessage] = []
        behind: dict[tuple[str, int], int] = {}
        size = 0
        message: Message | None = consumer.poll(_POLL_TIMEOUT_S)
        while message is not None:
            if (error := message.error()) is not None:
                logger.warning("kafka", extra={"reason": error.name()})
            else:
                payload = message.value() or b""
                received.append(ReceivedMessage(BATCH_TOPIC, payload, self._known_time()))
                place = cast(tuple[str, int, int], (message.topic(), message.partition(), message.offset()))
                behind[place[:2]] = place[2] + 1
                size += len(payload)
            if len(received) >= MAX_POLLED_MESSAGES or size >= MAX_GROUP_BYTES or self._stopped.is_set():
                break
            message = consumer.poll(0)
        return received, behind

    def _known_time(self) -> int | None:
        """The time of the service [s of UTC]; None while its clocks differ."""
        try:
            return int(self._now())
        except ClockDifferenceError:
            return None

    def _ingest_until_stored(self, received: list[ReceivedMessage]) -> bool:
        return ingest_until_stored(
            received,
            consumer="kafka",
            current_ingestor=self._current_ingestor,
            store=self._store,
            attempts=self._attempts,
            stopped=self._stopped,
        )

    def _note_statistics(self, text: str) -> None:
        statistics = json.loads(text)
        self.is_connected = any(each["state"] == "UP" for each in statistics["brokers"].values())
        partitions = [each for topic in statistics["topics"].values() for each in topic["partitions"].values()]
        self.lag_messages = sum(max(0, each["consumer_lag"]) for each in partitions)
