"""Single readings over MQTT: how many a second are stored and acknowledged, beside a client that stores nothing.

    python -m benchmarks.mqtt_readings [--readings 100000] [--quick]

A process publishes single readings as JSON at QoS 1, each in a message, to the broker on 127.0.0.1:1883; it never has
more than some hundred messages ahead of the consumer, because a broker drops what exceeds its queue. The consumer of
the service stores them in a landing and acknowledges them. A bare client of the same library, which acknowledges at
once and does nothing else, is the measure: both run in the same minute, on the same cores, with the same sender. No
reading may be lost.
"""

from __future__ import annotations

import multiprocessing
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from paho.mqtt.client import Client
from tests.support.broker import end_session, stop_client
from tests.support.waiting import wait_until

from benchmarks.goals import Goals, read_options
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import BATCH_TOPIC, MAX_MESSAGE_BYTES
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.append import MergingAppender
from murmurate.service.landing.layout import Landing
from murmurate.service.mqtt_client import connect_mqtt
from murmurate.service.settings import MqttBroker

GOAL_PER_S = 5000
MIN_SHARE = 1 / 3  # of the bare client's rate
MAX_AHEAD = 900  # messages; a broker keeps 1,000 in its queue unless it is told otherwise
START_S = 1_794_657_600
NOW_S = START_S + 910
TIMEOUT_S = 600.0
SUBSCRIBED_AFTER_S = 0.5  # after a client is connected


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages a second, and the CPU time of the receiving process for each [s]."""

    per_s: float
    core_s: float


def publish_readings(mark: str, count: int, done: Any) -> None:
    """Publish the readings of meters 0, 1, .. at QoS 1, without a library: the sender must not be the limit."""
    line = socket.create_connection(("127.0.0.1", 1883))
    name = f"{mark}-sender".encode()
    head = b"\0\4MQTT\4\2\0\0" + len(name).to_bytes(2, "big") + name
    line.sendall(bytes([0x10, len(head)]) + head)
    line.recv(4)
    threading.Thread(target=_discard, args=(line,), daemon=True).start()
    topic = len(BATCH_TOPIC).to_bytes(2, "big") + BATCH_TOPIC.encode()
    sent = 0
    while sent < count:
        while sent - done.value > MAX_AHEAD - 100:
            time.sleep(0.001)
        packets = bytearray()
        for meter in range(sent, min(sent + 100, count)):
            text = f'{{"meter":"{mark}-{meter}","interval_start":{START_S},"energy_wh":{meter % 900}}}'.encode()
            body = topic + (meter % 65_535 + 1).to_bytes(2, "big") + text
            packets += bytes([0x32, len(body)]) + body
        line.sendall(packets)
        sent = min(sent + 100, count)
    while done.value < count:
        time.sleep(0.01)
    line.sendall(b"\xe0\0")
    line.close()


def _discard(line: socket.socket) -> None:
    with suppress(OSError):
        while line.recv(65_536):
            pass


def measure(mark: str, count: int, received: Callable[[], int]) -> Rate:
    """Have readings published and wait until `received` says that all are there."""
    done = multiprocessing.get_context("spawn").Value("q", 0, lock=False)
    sender = multiprocessing.get_context("spawn").Process(target=publish_readings, args=(mark, count, done))
    sender.start()
    while not received():
        time.sleep(0.001)
    begin, cpu = time.perf_counter(), time.process_time()
    end = begin + TIMEOUT_S
    while (here := received()) < count and time.perf_counter() < end:
        done.value = here
        time.sleep(0.002)
    wall_s, core_s = time.perf_counter() - begin, time.process_time() - cpu
    done.value = count
    sender.join()
    assert received() == count, f"{received():,} of {count:,} readings arrived"
    return Rate(count / wall_s, core_s / count)


def measure_bare_client(mark: str, count: int) -> Rate:
    """The rate of a client that acknowledges each message and does nothing else."""
    seen = [0]

    def acknowledge(client: Client, message: Any) -> None:
        client.ack(message.mid, message.qos)
        seen[0] += 1

    client = connect_mqtt(
        MqttBroker(),
        f"{mark}-bare",
        topics=(BATCH_TOPIC,),
        on_message=lambda message: acknowledge(client, message),
        max_message_bytes=MAX_MESSAGE_BYTES,
    )
    try:
        assert wait_until(client.is_connected)
        time.sleep(SUBSCRIBED_AFTER_S)
        return measure(mark, count, lambda: seen[0])
    finally:
        stop_client(client)
        end_session(f"{mark}-bare")


def measure_consumer(mark: str, count: int, folder: Path) -> Rate:
    """The rate of the service's consumer: readings on disk, then acknowledged."""
    rows = [f"{meter},street,1000,{mark}-{meter}" for meter in range(count)]
    (folder / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,id", *rows]) + "\n")
    landing = Landing.create(folder / "landing")
    ingestor = ReadingIngestor(
        landing=landing,
        registry=MeterRegistry.from_meter_table(folder / "meters.csv"),
        now=lambda: NOW_S,
        grace_s=3600,
        append=MergingAppender(landing, lambda: NOW_S, 3600).append,
    )
    consumer = MqttConsumer(
        broker=MqttBroker(),
        client_id=f"{mark}-consumer",
        landing=landing,
        current_ingestor=lambda: ingestor,
        store=IngestStore("postgresql://"),  # unsigned readings need no state
        now=lambda: NOW_S,
    )
    thread = consumer.start()
    try:
        assert wait_until(lambda: consumer.is_connected)
        time.sleep(SUBSCRIBED_AFTER_S)
        return measure(mark, count, lambda: ingestor.counts["accepted"])
    finally:
        consumer.stop()
        thread.join()
        end_session(f"{mark}-consumer")


def main() -> int:
    """Print both rates. Return 1 where one misses its goal."""
    options = read_options(__doc__, readings=100_000, quick=False)
    count = 15_000 if options.quick else options.readings
    mark = f"bench{token_hex(4)}"
    bare = measure_bare_client(mark, count)
    with TemporaryDirectory(prefix="murmurate-mqtt-") as folder:
        stored = measure_consumer(mark, count, Path(folder))
        files = len(list(Path(folder).glob("landing/interval=*/shard=*/*.parquet")))
    goals = Goals()
    print(f"{count:,} single readings over MQTT, {files:,} files")
    goals.print_figure("a bare client receives", bare.per_s, "a second")
    goals.print_figure("stored", stored.per_s, "a second", at_least=GOAL_PER_S)
    goals.print_figure("stored: core time of a reading", 1e6 * stored.core_s, "us")
    goals.print_figure("stored / received by the bare client", stored.per_s / bare.per_s, at_least=MIN_SHARE)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
