"""Readings over MQTT: interval energy in batches, and registers of single meters. The broker decides who may publish
what; a meter with a key in the table must sign as well.

    murmurate/readings                  JSON lines or Parquet, as over HTTP
    smartmeter/<meter>/ACTIVE_ENERGY_P  the value of a register
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import psycopg
from paho.mqtt.client import MQTTMessage

from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.ingest.batch import ReadingBatch, Receipt
from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState, parse_register_reading
from murmurate.service.ingest.formats.parquet import parse_parquet
from murmurate.service.ingest.formats.text_lines import parse_json_lines
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import UNKNOWN_METER, ReadingIngestor
from murmurate.service.ingest.meter_registry import NOT_FOUND
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.settings import MqttBroker

logger = logging.getLogger(__name__)


BATCH_TOPIC = "murmurate/readings"
REGISTER_TOPIC_FILTER = "smartmeter/+/ACTIVE_ENERGY_P"
MAX_MESSAGES_PER_BATCH = 10_000
MAX_MESSAGE_BYTES = 32 * 2**20
_INGEST_RETRY_S = 5.0
_ReceivedMessage = tuple[MQTTMessage, int]  # a message, and when it came [s of UTC]


@dataclass(slots=True, kw_only=True)
class MqttConsumer:
    """Messages wait until a thread has kept what they carry; then they are acknowledged, as many at once as came."""

    broker: MqttBroker
    client_id: str
    current_ingestor: Callable[[], ReadingIngestor]
    store: IngestStore
    now: Callable[[], float]
    _received: queue.SimpleQueue[_ReceivedMessage] = field(default_factory=queue.SimpleQueue, init=False)
    _stopped: Event = field(default_factory=Event, init=False)

    def run(self) -> None:
        """Take messages until `stop`."""
        client = connect_mqtt(
            self.broker,
            self.client_id,
            topics=(BATCH_TOPIC, REGISTER_TOPIC_FILTER),
            on_message=self._receive_message,
        )
        try:
            while not self._stopped.is_set():
                if (messages := self._next_messages()) and self._ingest_until_stored(messages):
                    for message, _ in messages:
                        client.ack(message.mid, message.qos)
        finally:
            client.disconnect()
            client.loop_stop()

    def start(self, on_failure: Callable[[], None] = lambda: None) -> Thread:
        """Take messages in a thread of its own. `on_failure` is called if the thread ends by an error."""

        def run() -> None:
            try:
                self.run()
            except Exception as error:  # noqa: BLE001  whatever it is, readings no longer come in
                logger.warning("broken", extra={"consumer": "mqtt", "reason": type(error).__name__})
                on_failure()

        thread = Thread(target=run, name="mqtt", daemon=True)
        thread.start()
        return thread

    def stop(self) -> None:
        self._stopped.set()

    def _receive_message(self, message: MQTTMessage) -> None:
        """Note when a message came: it stays so old however often it must be tried."""
        self._received.put((message, int(self.now())))

    def _next_messages(self) -> list[_ReceivedMessage]:
        """All that wait, once one does."""
        messages: list[_ReceivedMessage] = []
        with suppress(queue.Empty):
            messages.append(self._received.get(timeout=0.2))
            while len(messages) < MAX_MESSAGES_PER_BATCH:
                messages.append(self._received.get_nowait())
        return messages

    def _ingest_until_stored(self, messages: list[_ReceivedMessage]) -> bool:
        """Keep what they carry; while the disk or the state fails, try again. What cannot be read is only counted."""
        while not self._stopped.is_set():
            try:
                self._ingest_messages(messages)
            except (OSError, psycopg.Error) as error:
                logger.warning("failing", extra={"consumer": "mqtt", "reason": type(error).__name__})
                time.sleep(_INGEST_RETRY_S)
            else:
                return True
        return False

    def _ingest_messages(self, messages: list[_ReceivedMessage]) -> None:
        ingestor, refused, points = self.current_ingestor(), 0, []
        for message, received_s in messages:
            try:
                if len(message.payload) > MAX_MESSAGE_BYTES:
                    raise ReadingError("message", "too large", f"must have at most {MAX_MESSAGE_BYTES:,} bytes")
                if message.topic == BATCH_TOPIC:
                    self._ingest_batch(ingestor, bytes(message.payload))
                else:
                    points.append(
                        (message.topic.split("/")[1], parse_register_reading(bytes(message.payload), received_s))
                    )
            except MurmurateError:
                refused += 1
        ingestor.counts["refused"] += refused
        if points:
            self._ingest_register_readings(ingestor, points)

    @staticmethod
    def _ingest_batch(ingestor: ReadingIngestor, payload: bytes) -> None:
        parse = parse_parquet if payload.startswith(b"PAR1") else parse_json_lines
        batch, refusals = parse(payload, interval_s=ingestor.landing.interval_s)
        ingestor.ingest_batch(batch, None, Receipt(refused=refusals))

    def _ingest_register_readings(
        self, ingestor: ReadingIngestor, register_readings: Iterable[tuple[str, RegisterReading]]
    ) -> None:
        """Registers become energy. Their values are stored after the energy is on disk: what is lost is computed again.

        Of two points of one second the first counts: the sort leaves them in the order in which they came.
        """
        by_row: dict[int, list[RegisterReading]] = {}
        named = list(register_readings)
        for row, (_, point) in zip(
            ingestor.registry.find_rows([name for name, _ in named]).tolist(), named, strict=True
        ):
            by_row.setdefault(row, []).append(point)
        unknown_meter = by_row.pop(NOT_FOUND, [])
        numbers = ingestor.registry.number
        known = self.store.load_registers(int(numbers[row]) for row in by_row)
        advanced: dict[int, RegisterState] = {}
        energy_rows = []
        for row, points in by_row.items():
            number = int(numbers[row])
            register: RegisterState | None = known.get(number)
            for point in sorted(points, key=lambda point: point.at_s):
                register, energies = RegisterState.start_or_advance(
                    register, point, interval_s=ingestor.landing.interval_s
                )
                energy_rows += [(number, start_s, energy_wh) for start_s, energy_wh in energies]
                advanced[number] = register
        ingestor.ingest_batch(
            ReadingBatch.from_numbered_rows(energy_rows),
            None,
            Receipt(refused=dict.fromkeys(range(-len(unknown_meter), 0), UNKNOWN_METER)),
        )
        self.store.store_registers(advanced)
