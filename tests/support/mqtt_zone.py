"""Ten meters whose readings come over a real broker, and the consumers of their messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import MessageQueue
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.settings import MqttBroker
from tests.support.broker import end_session, start_client, stop_client
from tests.support.recorded_log import recorded_log
from tests.support.waiting import wait_until

STEP_S = 900
START_S = 1_794_658_500
NOW_S = START_S + STEP_S + 20


class MqttZone:
    """Ten meters with names that are unique on the broker, and consumers of their messages."""

    def __init__(self, root: Path, dsn: str) -> None:
        self.root, self.dsn, self.mark = root, dsn, token_hex(4)
        rows = [f"{meter},street,1000,100,{self.mark}-{meter}" for meter in range(10)]
        (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh,id", *rows]) + "\n")
        self.landing = Landing.create(root / "landing")
        self.logged: list[Any] = []
        self.broken, self.now_s = False, float(NOW_S)
        self.queue: MessageQueue | None = None
        registry = MeterRegistry.from_meter_table(root / "meters.csv")
        self.ingestor = ReadingIngestor(landing=self.landing, registry=registry, now=lambda: self.now_s, grace_s=3600)
        self.broker = MqttBroker()
        self.sender = start_client()

    def close(self) -> None:
        stop_client(self.sender)
        end_session(f"test-{self.mark}")

    def take(self) -> ReadingIngestor:
        if self.broken:
            raise OSError("the disk is full")
        return self.ingestor

    def new_consumer(self) -> MqttConsumer:
        return MqttConsumer(
            broker=self.broker,
            client_id=f"test-{self.mark}",
            landing=self.landing,
            current_ingestor=self.take,
            store=IngestStore(self.dsn),
            now=lambda: self.now_s,
            clock_speed=1000.0,
            queue=self.queue or MessageQueue(),
        )

    def send(self, topic: str, payload: str | bytes, qos: int = 1, retain: bool = False) -> None:
        self.sender.publish(topic, payload, qos=qos, retain=retain).wait_for_publish(120)

    def register_topic(self, meter: int, register: str = "ACTIVE_ENERGY_P") -> str:
        return f"smartmeter/{self.mark}-{meter}/{register}"

    def reading(self, meter: int, energy_wh: int) -> str:
        return json.dumps({"meter": f"{self.mark}-{meter}", "interval_start": START_S, "energy_wh": energy_wh})

    def register(self, meter: int, at_s: int, total_wh: int, register: str = "ACTIVE_ENERGY_P") -> None:
        self.send(self.register_topic(meter, register), json.dumps({"timestamp": at_s, "value": total_wh}))

    def until(self, holds: Callable[[], object]) -> None:
        assert wait_until(holds, pause_s=0.02), (self.ingestor.counts, self.logged)

    def let_fences_return(self, consumer: MqttConsumer) -> None:
        """Move the clock to where it is, from so far back that points without a time count."""
        now_s, fence = self.now_s, consumer.fence
        steps = int(fence.settle_s / fence.tolerance_s * 2)
        for step in range(steps, -1, -1):
            self.now_s = now_s - step * fence.tolerance_s / 2
            self.until(lambda: fence.returned_s == self.now_s)
        self.now_s = now_s

    def counted(self) -> tuple[int, int]:
        table = pin_table(self.landing, self.root / "meters.csv")
        manifest = close_interval(self.landing, START_S, table.version)
        demand = aggregate_landing(self.landing, table, [manifest])[START_S]
        return int(demand.energy_wh[0]), int(demand.reported[0])


@pytest.fixture
def zone(tmp_path: Path, state_dsn: str) -> Iterator[MqttZone]:
    made = MqttZone(tmp_path, state_dsn)
    with recorded_log(made.logged):
        yield made
    made.close()


@pytest.fixture
def start_consumer(zone: MqttZone) -> Iterator[Callable[[], MqttConsumer]]:
    """Start a consumer. It is stopped after the test."""
    consumers = []

    def start() -> MqttConsumer:
        consumer = zone.new_consumer()
        consumers.append((consumer, consumer.start()))
        zone.until(lambda: ("broker listens", {"topics": 4}) in zone.logged)
        return consumer

    yield start
    for consumer, thread in consumers:
        consumer.stop()
        thread.join(120)
        consumer.store.close()
