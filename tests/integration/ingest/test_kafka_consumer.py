"""Readings from Kafka, on librdkafka's mock cluster, which is no real broker: what is committed is on disk."""

from __future__ import annotations

import json
import sys

import pytest
from confluent_kafka import Consumer
from tests.chaos.kafka_kills import COMMIT_FIRST, START_S, STEP_S, TOPIC, KafkaFeed, play
from tests.support.recorded_log import recorded_log
from tests.support.waiting import wait_until

from murmurate.errors import MissingExtraError, MurmurateError
from murmurate.service.ingest import message_ingest
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.kafka_consumer import KafkaConsumer
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.settings import KafkaCluster, load_settings
from murmurate.service.supervisor import run_all_processes

METERS = 20


class OneConsumer:
    """A feed, and consumers of it in this process."""

    def __init__(self, folder):
        self.feed, self.is_broken, self.logged, self.started = KafkaFeed(folder, METERS), False, [], []
        registry = MeterRegistry.from_meter_table(folder / "meters.csv")
        self.ingestor = ReadingIngestor(
            landing=self.feed.landing, registry=registry, now=lambda: START_S + STEP_S + 1, grace_s=3600
        )

    def current_ingestor(self):
        if self.is_broken:
            raise OSError("the disk is full")
        return self.ingestor

    def new_consumer(self):
        return KafkaConsumer(
            cluster=KafkaCluster(servers=self.feed.servers, topics=[TOPIC]),
            client_id="test",
            landing=self.feed.landing,
            current_ingestor=self.current_ingestor,
            store=IngestStore("postgresql://"),
            now=lambda: START_S + STEP_S + 1,
        )

    def start(self):
        consumer = self.new_consumer()
        self.started.append((consumer, consumer.start()))
        return consumer

    def send(self, payload, partition=0):
        self.feed.producer.produce(TOPIC, payload, partition=partition)
        self.feed.producer.flush(60)

    def stop(self):
        for consumer, thread in self.started:
            consumer.stop()
            thread.join(120)
        self.started.clear()

    def until(self, holds):
        assert wait_until(holds, 120, pause_s=0.05), (self.ingestor.counts, self.feed.committed(), self.logged)

    def committed(self):
        return sum(self.feed.committed().values())


@pytest.fixture
def one(tmp_path):
    made = OneConsumer(tmp_path)
    with recorded_log(made.logged):
        yield made
    made.stop()
    made.feed.close()


def reading(meter):
    return json.dumps({"meter": f"m{meter}", "interval_start": START_S, "energy_wh": 7}).encode()


def test_what_cannot_be_read_is_counted_and_delays_no_other_message(one):
    for payload in (b"", b"\xff\xfe", b"[]", b"PAR1 and nothing else", b"{" * 5000, None, reading(METERS + 99)):
        one.send(payload)
    one.send(reading(1) + b"\n" + reading(2), partition=1)
    consumer = one.start()
    one.until(lambda: one.committed() == 8)
    assert sorted(one.feed.stored()) == [1, 2]
    assert one.ingestor.counts["accepted"] == 2
    assert one.ingestor.counts["refused"] >= 5
    one.until(lambda: consumer.is_connected and consumer.lag_messages == 0)


def test_while_the_disk_is_full_nothing_is_committed_and_then_it_is_stored_once(one, monkeypatch):
    monkeypatch.setattr(message_ingest, "_INGEST_RETRY_S", 0.05)
    one.is_broken = True
    one.send(reading(1))
    one.start()
    one.until(lambda: ("failing", {"consumer": "kafka", "reason": "OSError"}) in one.logged)
    assert one.committed() == 0
    one.stop()  # not stored, so not committed
    assert one.committed() == 0
    one.is_broken = False
    one.start()
    one.until(lambda: one.committed() == 1)
    assert one.feed.stored() == [1]


def test_a_consumer_that_starts_again_goes_on_behind_what_was_stored(one):
    for meter in range(5):
        one.send(reading(meter), partition=meter % 4)
    one.start()
    one.until(lambda: one.committed() == 5)
    one.stop()
    one.send(reading(5))
    one.start()
    one.until(lambda: one.committed() == 6)
    assert sorted(one.feed.stored()) == [*range(6)]


def test_whichever_consumers_are_killed_no_offset_is_ahead_of_the_disk_and_nothing_is_lost(tmp_path):
    seen = play(tmp_path, kills=4)
    assert seen.ahead == 0
    assert seen.stored == seen.committed == seen.messages
    assert seen.moved >= 3, "offsets were committed between the kills"


def test_offsets_that_are_committed_before_the_readings_are_stored_are_found(tmp_path):
    assert play(tmp_path, kills=20, broken=COMMIT_FIRST).ahead > 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('topics = ["readings"]', r"servers in \[kafka\] is .*: must be a list such as"),
        ('servers = ["a:9092"]', r"topics in \[kafka\] is .*: must be a list such as"),
        ('servers = ["a"]\ntopics = ["readings"]', "must be an address such as"),
        ('servers = ["a:9092"]\ntopics = ["a,b"]', r"topics in \[kafka\]"),
        ('servers = ["a:9092"]\ntopics = ["readings"]\ngroup = ""', "must be a name, such as murmurate"),
        ('servers = ["a:9092"]\ntopics = ["readings"]\nmechanism = "MD5"', "must be one of SCRAM-SHA-512"),
        ('servers = "a:9092"', "must be a list"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(tmp_path, lines, message):
    file = tmp_path / "service.toml"
    file.write_text(f"[kafka]\n{lines}\n")
    with pytest.raises(MurmurateError, match=message):
        load_settings(file)


def test_without_the_extra_a_service_does_not_start_and_names_it(tmp_path, monkeypatch):
    file = tmp_path / "service.toml"
    file.write_text('[kafka]\nservers = ["127.0.0.1:9092"]\ntopics = ["readings"]\n')
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setattr("murmurate.extras.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"confluent_kafka is not installed: run pip install .*\[kafka\]"):
        run_all_processes(file, load_settings(file), "postgresql://", "postgresql://")


@pytest.mark.parametrize(("user", "tls", "protocol"), [("", False, "PLAINTEXT"), ("m", True, "SASL_SSL")])
def test_the_client_accepts_our_settings_and_the_password_is_not_in_the_file(
    tmp_path, monkeypatch, user, tls, protocol
):
    monkeypatch.setenv("MURMURATE_KAFKA_PASSWORD", "secret")
    made = OneConsumer(tmp_path)
    cluster = KafkaCluster(servers=["127.0.0.1:1"], topics=[TOPIC], user=user, tls=tls)
    consumer = made.new_consumer()
    consumer._cluster = cluster
    settings = consumer._client_settings()
    assert settings["security.protocol"] == protocol
    Consumer(settings).close()
    made.feed.close()
