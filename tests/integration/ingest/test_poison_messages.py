"""Messages that would end the process that reads them, and floods of messages, with a real broker."""

import json
import subprocess
import sys
import time

from tests.support.forged_parquet import forged_parquet
from tests.support.mqtt_zone import NOW_S

from murmurate.service.ingest.message_ingest import MessageQueue
from murmurate.service.ingest.mqtt_consumer import BATCH_TOPIC

CONSUMER = """
import json, os, signal, sys, time
from pathlib import Path
from murmurate.service.ingest import message_ingest
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.ingest.mqtt_consumer import MqttConsumer
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import MqttBroker

facts = json.loads(sys.argv[1])
root = Path(facts["root"])
start = message_ingest.MessageIngest._start_body

def start_or_die(self, body):
    if b"poison" in body:
        os.kill(os.getpid(), signal.SIGKILL)  # as a kernel without memory would
    start(self, body)

message_ingest.MessageIngest._start_body = start_or_die
landing, registry = Landing.open(root / "landing"), MeterRegistry.from_meter_table(root / "meters.csv")
ingestor = ReadingIngestor(landing=landing, registry=registry, now=lambda: facts["now_s"], grace_s=3600)
consumer = MqttConsumer(
    broker=MqttBroker(), client_id=facts["client"], landing=landing, current_ingestor=lambda: ingestor,
    store=IngestStore(facts["dsn"]), now=lambda: facts["now_s"],
)
consumer.start()
end = time.monotonic() + 120
while time.monotonic() < end:
    if ingestor.counts["accepted"] >= facts["until_accepted"]:
        time.sleep(0.5)  # for its acknowledgements
        print(json.dumps(ingestor.counts))
        sys.exit(0)
    time.sleep(0.01)
"""


def run_consumer(zone, until_accepted):
    facts = {"root": str(zone.root), "dsn": zone.dsn, "client": f"test-{zone.mark}", "now_s": NOW_S}
    words = [sys.executable, "-c", CONSUMER, json.dumps(facts | {"until_accepted": until_accepted})]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def test_a_message_that_ends_the_process_is_set_aside_after_two_restarts(zone, start_consumer):
    start_consumer().stop()  # the broker knows the client and keeps its messages
    time.sleep(0.6)
    zone.send(BATCH_TOPIC, f"poison {zone.mark}")
    zone.send(BATCH_TOPIC, zone.reading(1, 50))
    assert run_consumer(zone, 1) == (-9, None, "")
    assert run_consumer(zone, 1) == (-9, None, "")
    status, counts, _ = run_consumer(zone, 1)
    assert (status, counts["accepted"], counts["mqtt_quarantined"]) == (0, 1, 1)
    zone.send(BATCH_TOPIC, zone.reading(2, 60))
    status, counts, _ = run_consumer(zone, 1)
    assert (status, counts["accepted"], counts["mqtt_quarantined"]) == (0, 1, 0), "it was acknowledged"
    assert not list(zone.landing.root.glob(".mqtt-attempts-*"))


def test_a_message_that_was_delivered_twice_and_does_no_harm_is_stored(zone, start_consumer, monkeypatch):
    """The disk fails, the process is restarted several times: nothing of that is the fault of the message."""
    monkeypatch.setattr("murmurate.service.ingest.message_ingest._INGEST_RETRY_S", 0.05)
    zone.broken = True
    for _ in range(3):
        consumer = start_consumer()
        if not any(event == "failing" for event, _ in zone.logged):
            zone.send(BATCH_TOPIC, zone.reading(1, 50))
        zone.until(lambda: any(event == "failing" for event, _ in zone.logged))
        consumer.stop()
        time.sleep(0.6)
        zone.logged[:] = [entry for entry in zone.logged if entry[0] == "failing"]
    zone.broken = False
    start_consumer()
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    assert zone.ingestor.counts["mqtt_quarantined"] == 0
    assert zone.counted() == (50 + 9 * 100, 1)


def test_a_forged_file_is_refused_and_acknowledged_and_delays_no_reading(zone, start_consumer):
    start_consumer()
    zone.send(BATCH_TOPIC, forged_parquet(1900))
    zone.send(BATCH_TOPIC, zone.reading(1, 50))
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    zone.until(lambda: zone.ingestor.counts["refused"] == 1)


def test_a_flood_at_qos_0_while_nothing_can_be_stored_is_bounded_and_then_goes_on(zone, start_consumer, monkeypatch):
    monkeypatch.setattr("murmurate.service.ingest.message_ingest._INGEST_RETRY_S", 0.05)
    bound, fences, flood, held = 100_000, 20_000, 300, []  # fences are at QoS 1
    zone.queue = MessageQueue(2 * bound, bound)
    zone.broken = True
    consumer = start_consumer()
    for number in range(flood):
        zone.send(BATCH_TOPIC, " " * 2000 + zone.reading(number % 9, 50), qos=0)
        held.append(consumer.queue.held_bytes)
    zone.until(lambda: consumer.dropped > 0)
    assert max(held) <= bound + fences
    zone.broken = False
    zone.send(BATCH_TOPIC, zone.reading(9, 70))
    zone.send(BATCH_TOPIC, "the last message, and no reading")
    zone.until(lambda: zone.ingestor.counts["refused"] == 1 and consumer.queue.held_bytes == 0)
    energy_wh, reported = zone.counted()
    assert reported > 1, "some of the flood was stored"
    assert energy_wh == (reported - 1) * 50 + 70 + (10 - reported) * 100


def test_at_qos_1_nothing_is_lost_by_the_bound(zone, start_consumer, monkeypatch):
    monkeypatch.setattr("murmurate.service.ingest.message_ingest._INGEST_RETRY_S", 0.05)
    bound, held = 20_000, []
    zone.queue = MessageQueue(bound)
    zone.broken = True
    consumer = start_consumer()
    for number in range(100):
        zone.send(BATCH_TOPIC, zone.reading(number % 10, 50))
        held.append(consumer.queue.held_bytes)
    zone.until(lambda: consumer.queue.held_bytes > bound // 2)
    assert max(held) <= bound
    zone.broken = False
    zone.until(lambda: zone.ingestor.counts["accepted"] == 100)
    assert consumer.dropped == 0
