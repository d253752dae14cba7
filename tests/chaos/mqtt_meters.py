"""Meters that publish by MQTT, and a message that shows that all messages before it are stored.

A service takes messages in their order and stores the value of a register after everything that came before it. So when
the state has the last value of the fence, every message that was published before it is stored, if the broker has not
been killed since. Stored in time, if the deadline of its interval has not passed then and the clock of no service was
wrong meanwhile: a service that is behind calls a reading late, whether the interval is closed by then or not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from paho.mqtt.client import MQTTMessageInfo

from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import (
    BATCHED,
    EXPORTING,
    FENCE,
    GRACE_INTERVALS,
    REGISTERS,
    STEP_S,
    TrueEnergy,
    json_body,
    register_message,
    register_points,
    registers_of,
)
from tests.chaos.senders import Acknowledged
from tests.support.broker import Broker, start_client, stop_client
from tests.support.running_service import ServiceOperator
from tests.support.waiting import wait_until

BATCH_TOPIC = "murmurate/readings"


@dataclass
class _Published:
    """When an interval was published for the last time, and how often the broker had been killed before."""

    epoch: int
    at_s: float
    messages: list[MQTTMessageInfo] = field(default_factory=list)


class MqttMeters:
    """Publishes at QoS 1. `wrong_clock_since(at_s)`: whether the clock of a service was wrong at some time since."""

    def __init__(
        self,
        operator: ServiceOperator,
        broker: Broker,
        truth: TrueEnergy,
        acknowledged: Acknowledged,
        read_state: Callable[[], psycopg.Connection[tuple[Any, ...]]],
        wrong_clock_since: Callable[[float], bool],
    ) -> None:
        self._operator, self._broker, self._truth, self._acknowledged = operator, broker, truth, acknowledged
        self._read_state, self._wrong_clock_since = read_state, wrong_clock_since
        self._lock = threading.Lock()
        self._batches: dict[int, _Published] = {}
        self._registers: dict[int, _Published] = {}
        self._fenced_s = 0
        self._client = start_client(broker.port, client_id="meters", clean_session=False)
        self._client.reconnect_delay_set(1, 2)
        self._announce_exports()

    def _announce_exports(self) -> None:
        """Have every register of export known before any fault: until then its meter is one of import alone."""
        _, shown = self._truth.register_wh(self._truth.first)
        at_s = min(self._truth.first * STEP_S - 1, int(self._operator.clock.now()))  # a later time would be refused
        for meter in EXPORTING:
            self._client.publish(*register_message(meter, at_s, int(shown[meter]), is_export=True), qos=1)
        assert wait_until(lambda: all(self._is_stored(at_s, ~meter) for meter in EXPORTING))

    def publish(self, interval: int) -> None:
        """Publish what the meters report for an interval that is over."""
        with self._lock:
            if interval == self._truth.first:
                for meter, is_export in [(one, each) for one in REGISTERS for each in registers_of(one)]:
                    total = int(self._truth.register_wh(interval)[is_export][meter])
                    point = register_message(meter, interval * STEP_S, total, is_export=is_export)
                    self._client.publish(*point, qos=1)
            self._publish_batches(interval)
            published = _Published(self._broker.epoch, time.time())
            for meter in REGISTERS:
                for topic, payload in register_points(self._truth, interval, meter):
                    published.messages.append(self._client.publish(topic, payload, qos=1))
            self._registers[interval] = published

    def publish_again(self, intervals: range) -> None:
        """Repeat the batches of intervals that are still open: the broker may have lost them."""
        with self._lock:
            for interval in intervals:
                if interval in self._batches:
                    self._publish_batches(interval)

    def _publish_batches(self, interval: int) -> None:
        published = _Published(self._broker.epoch, time.time())
        energy = self._truth.energy_wh(interval)
        for part in (BATCHED[: len(BATCHED) // 2], BATCHED[len(BATCHED) // 2 :]):
            meters = self._truth.reporting(interval, part)
            published.messages.append(self._client.publish(BATCH_TOPIC, json_body(interval, meters, energy), qos=1))
        self._batches[interval] = published

    def fence(self, timeout_s: float) -> bool:
        """Have everything stored that was published. Return whether it is known to be."""
        with self._lock:
            batches, registers = dict(self._batches), dict(self._registers)
        epoch, end = self._broker.epoch, time.monotonic() + timeout_s
        batches = {at: one for at, one in batches.items() if one.epoch == epoch}
        registers = {at: one for at, one in registers.items() if one.epoch == epoch}
        sent = [message for one in (*batches.values(), *registers.values()) for message in one.messages]
        # `is_published` raises for a message that had to wait
        if not wait_until(lambda: all(message._published for message in sent), timeout_s):
            return False
        at_s = max(int(self._operator.clock.now()), self._fenced_s + 1)
        self._client.publish(*register_message(FENCE, at_s, 0), qos=1)
        if not wait_until(lambda: self._is_stored(at_s, FENCE), max(0.0, end - time.monotonic())):
            return False
        self._fenced_s = at_s
        if self._broker.epoch == epoch:
            self._note_stored(batches, registers)
        return True

    def _is_stored(self, at_s: int, register: int) -> bool:
        try:
            with self._read_state() as connection:
                query = "SELECT 1 FROM confidential.register WHERE meter = %s AND at_s >= %s"
                return connection.execute(query, (register, at_s)).fetchone() is not None
        except psycopg.Error:
            return False

    def _note_stored(self, batches: dict[int, _Published], registers: dict[int, _Published]) -> None:
        for interval, one in batches.items():
            if not self._wrong_clock_since(one.at_s) and not self._may_be_late(interval):
                self._acknowledged.add("mqtt batches", interval, self._truth.reporting(interval, BATCHED))
        for interval, one in registers.items():  # needs the points of the interval before as well: its begin
            before = registers.get(interval - 1)
            begins = before.at_s if before else one.at_s
            whole = before is not None or interval == self._truth.first
            if whole and not self._wrong_clock_since(begins) and not self._may_be_late(interval):
                self._acknowledged.add("mqtt registers", interval, self._truth.reporting(interval, REGISTERS))

    def _may_be_late(self, interval: int) -> bool:
        """Whether a message that was stored by now may have been too late for its interval."""
        closed = self._operator.folder / "landing" / "_closed"
        name = interval_name(interval * STEP_S)
        is_closing = any((closed / f"{name}.{suffix}").exists() for suffix in ("closing", "json"))
        return is_closing or self._operator.clock.now() >= (interval + 1 + GRACE_INTERVALS) * STEP_S

    def close(self) -> None:
        stop_client(self._client)
