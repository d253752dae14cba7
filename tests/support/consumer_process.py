"""A process with a consumer of MQTT messages, on a clock that a test moves.

    python -m tests.support.consumer_process FACTS

The clock is a file of numbers of 8 bytes: the time [s of UTC]; when the last fence was sent that has returned; how many
bytes of messages are not stored yet. A consumer of a group has a name in FACTS, and makes a file accepted-NAME once it
has stored something.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
import threading
import time
from pathlib import Path
from struct import Struct

from murmurate.service.ingest import message_ingest, mqtt_consumer
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import MessageQueue
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import MqttBroker

TIME, PROGRESS = Struct("d"), Struct("dd")
CLOCK_SPEED = 1500.0  # a fence every 2 ms
QUEUE_BYTES = 400_000
_RETRY_S = 0.1


def main() -> None:
    """Take messages until SIGTERM, then print what was counted."""
    facts = json.loads(sys.argv[1])
    root = Path(facts["root"])
    with (root / "clock").open("r+b") as file:
        clock = mmap.mmap(file.fileno(), TIME.size + PROGRESS.size)

    def now() -> float:
        return float(TIME.unpack_from(clock)[0])

    message_ingest._INGEST_RETRY_S = _RETRY_S
    mqtt_consumer.MIN_GROUP_SESSION_S = 0  # sessions of a group last for the grace
    landing, registry = Landing.open(root / "landing"), MeterRegistry.from_meter_table(root / "meters.csv")
    ingestor = ReadingIngestor(landing=landing, registry=registry, now=now, grace_s=facts.get("grace_s", 10**6))
    consumer = mqtt_consumer.MqttConsumer(
        broker=MqttBroker(port=facts["port"], group=facts.get("group")),
        client_id=facts.get("client", "readings"),
        landing=landing,
        current_ingestor=lambda: ingestor,
        store=IngestStore(facts["dsn"]),
        now=now,
        clock_speed=CLOCK_SPEED,
        queue=MessageQueue(QUEUE_BYTES, QUEUE_BYTES // 2),
    )
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    thread = consumer.start()
    while not stopped.wait(0.001):
        if "client" in facts and ingestor.counts["accepted"]:
            (root / f"accepted-{facts['client']}").touch()
        PROGRESS.pack_into(clock, TIME.size, consumer.fence.returned_s, consumer.queue.held_bytes)
    while consumer.queue.held_bytes > 0:  # on a busy machine what has arrived may not be stored yet
        time.sleep(0.0002)
    consumer.stop()
    thread.join()
    sys.stdout.write(json.dumps(ingestor.counts))


if __name__ == "__main__":
    main()
