"""Kill consumers of a group at random moments: no committed offset may be ahead of the disk, no message may be lost.

    python -m tests.chaos.kafka_kills --kills 60 [--seed 1] [--break commit-first]

The cluster is the mock of librdkafka, which lives in this process: three brokers, one topic of four partitions. It is
no real broker; what it shows is the order of our own steps under real rebalances. Three processes consume. Each message
is the reading of another meter, so the landing shows which messages were stored. After each kill the offsets that the
group has committed are read, then the landing: what lies before an offset must be there. At the end all must be there.

An append takes up to a third of a second, as on a slow disk: most kills hit one. `--break commit-first` plants the bug
that this must find: offsets are committed before the readings are stored.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from murmurate.service.ingest import kafka_consumer
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.settings import KafkaCluster
from tests.support.waiting import wait_until

STEP_S, START_S = 900, 1_794_658_500
TOPIC, GROUP, PARTITIONS, CONSUMERS = "readings", "murmurate", 4, 3
MESSAGES_PER_KILL = 120
MAX_PAUSE_S = 1.2  # between two kills
MAX_APPEND_S = 0.3
SESSION_TIMEOUT_MS = 4_000  # of a killed consumer; the mock cluster waits 3 s for the first members of a group
JOIN_TIMEOUT_MS = 6_000  # the mock cluster may forget a member that waits to join on a busy machine; it asks again
TIMEOUT_S = 180.0
COMMIT_FIRST = "commit-first"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen."""

    messages: int
    stored: int  # messages whose reading is in the landing
    rows: int  # readings in the landing: more, where some were read again
    kills: int
    checks: int  # comparisons of committed offsets with the landing
    moved: int  # of them after which an offset had moved
    ahead: int  # offsets that were ahead of the landing
    committed: int  # messages before the offsets at the end


class KafkaFeed:
    """A mock cluster, a landing, and what was sent."""

    def __init__(self, folder: Path, messages: int, *, broken: str | None = None) -> None:
        self.folder, self.broken = folder, broken
        self.landing = Landing.create(folder / "landing")
        rows = [f"{meter},street,1000,m{meter}" for meter in range(messages + PARTITIONS)]
        (folder / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,id", *rows]) + "\n")
        self.cluster = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0})
        brokers = self.cluster.list_topics(timeout=60).brokers.values()
        self.servers = [f"{each.host}:{each.port}" for each in brokers]
        self.producer = Producer({"bootstrap.servers": ",".join(self.servers), "log_level": 0})
        self.observer = Consumer({"bootstrap.servers": ",".join(self.servers), "group.id": GROUP, "log_level": 0})
        self.sent: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}  # meters, by offset
        self._forks = multiprocessing.get_context("forkserver")  # from a process that has imported all, and no client
        self._forks.set_forkserver_preload(["tests.chaos.kafka_kills"])
        self.processes: dict[int, ForkServerProcess] = {}
        self._read_files: set[Path] = set()
        self._stored: list[int] = []

    def send(self, meter: int, partition: int) -> None:
        text = json.dumps({"meter": f"m{meter}", "interval_start": START_S, "energy_wh": meter % 900})
        self.producer.produce(TOPIC, text.encode(), partition=partition)
        self.sent[partition].append(meter)

    def start(self, number: int) -> None:
        self.processes[number] = self._forks.Process(
            target=consume, args=(self.folder, self.servers, number, self.broken), daemon=True
        )
        self.processes[number].start()

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.join()
        process.close()

    def committed(self) -> dict[int, int]:
        """How many messages of each partition the group calls stored."""
        partitions = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: max(0, each.offset) for each in self.observer.committed(partitions, timeout=60)}

    def stored(self) -> list[int]:
        """The meters whose readings are in the landing, as often as they are."""
        for path in self.landing.interval_folder(START_S).glob("**/*.parquet"):
            if path not in self._read_files:
                self._stored += pq.ParquetFile(path).read()["meter"].to_pylist()
                self._read_files.add(path)
        return self._stored

    def close(self) -> None:
        for number in [*self.processes]:
            self.kill(number)
        self.observer.close()


def play(folder: Path, *, kills: int, seed: int = 1, broken: str | None = None) -> Outcome:
    """Send, kill and compare. Ends at the first offset that is ahead of the landing."""
    rng = random.Random(seed)  # noqa: S311
    messages = (kills + 1) * MESSAGES_PER_KILL
    feed = KafkaFeed(folder, messages, broken=broken)
    done = checks = moved = ahead = 0
    before: dict[int, int] = {}

    def compare() -> None:
        nonlocal checks, moved, ahead, before
        committed = feed.committed()  # first: the landing only grows
        stored = set(feed.stored())
        ahead += sum(not stored.issuperset(feed.sent[each][:offset]) for each, offset in committed.items())
        checks, moved, before = checks + 1, moved + (committed != before), committed

    try:
        for partition in range(PARTITIONS):  # the topic is made by its first message
            feed.send(messages + partition, partition)
        feed.producer.flush(TIMEOUT_S)
        for number in range(CONSUMERS):
            feed.start(number)
        for meter in range(messages):
            feed.send(meter, rng.randrange(PARTITIONS))
            if meter % MESSAGES_PER_KILL or not meter:
                continue
            feed.producer.flush(TIMEOUT_S)
            until = len(feed.stored()) + MESSAGES_PER_KILL // 4
            wait_until(lambda until=until: len(feed.stored()) >= until, TIMEOUT_S, pause_s=0.05)  # the group is at work
            time.sleep(rng.uniform(0, MAX_PAUSE_S))
            number = rng.randrange(CONSUMERS)
            feed.kill(number)
            done += 1
            compare()
            if ahead:
                break
            feed.start(number)
        feed.producer.flush(TIMEOUT_S)
        if not ahead:
            wait_until(lambda: sum(feed.committed().values()) == messages + PARTITIONS, TIMEOUT_S, pause_s=0.2)
            compare()
        stored = feed.stored()
        total = sum(before.values())
        return Outcome(messages + PARTITIONS, len(set(stored)), len(stored), done, checks, moved, ahead, total)
    finally:
        feed.close()


def consume(folder: Path, servers: list[str], number: int, broken: str | None) -> None:
    """Be one consumer, until the process is killed."""
    logging.disable()
    pause = random.Random(number)  # noqa: S311
    landing, registry = Landing.open(folder / "landing"), MeterRegistry.from_meter_table(folder / "meters.csv")

    def append_slowly(start_s: int, readings: object) -> bool:
        time.sleep(pause.uniform(0, MAX_APPEND_S))
        return append_readings(landing, start_s, readings)

    now_s = float(START_S + STEP_S + 1)
    ingestor = ReadingIngestor(
        landing=landing, registry=registry, now=lambda: now_s, grace_s=3600, append=append_slowly
    )
    kafka_consumer.SESSION_TIMEOUT_MS = SESSION_TIMEOUT_MS
    kafka_consumer.MAX_POLLED_MESSAGES = MESSAGES_PER_KILL // 8
    consumer = kafka_consumer.KafkaConsumer(
        cluster=KafkaCluster(servers=servers, topics=[TOPIC], group=GROUP),
        client_id=f"consumer-{number}",
        landing=landing,
        current_ingestor=lambda: ingestor,
        store=IngestStore("postgresql://"),  # unsigned readings need no state
        now=lambda: now_s,
    )
    settings = consumer._client_settings() | {"max.poll.interval.ms": JOIN_TIMEOUT_MS}
    consumer._client_settings = lambda: settings
    if broken == COMMIT_FIRST:
        commit_first(consumer)
    consumer.start().join()


def commit_first(consumer: kafka_consumer.KafkaConsumer) -> None:
    """Plant a bug: offsets are committed as soon as messages have come."""
    take = consumer._take_messages

    def take_and_commit(client: Consumer) -> tuple[list[object], dict[tuple[str, int], int]]:
        received, behind = take(client)
        if behind:
            offsets = [TopicPartition(*partition, offset) for partition, offset in behind.items()]
            client.commit(offsets=offsets, asynchronous=False)
        return received, behind

    consumer._take_messages = take_and_commit


def main() -> int:
    """Print what was seen. Return 1 where an offset was ahead, or a message is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--break", dest="broken", choices=[COMMIT_FIRST])
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="murmurate-kafka-") as folder:
        seen = play(Path(folder), kills=options.kills, seed=options.seed, broken=options.broken)
    sys.stdout.write(
        f"{seen.kills} kills of {CONSUMERS} consumers on librdkafka's mock cluster, {time.monotonic() - begin:.0f} s\n"
        f"{seen.stored:,} of {seen.messages:,} messages stored, {seen.rows - seen.stored:,} of them again\n"
        f"{seen.committed:,} committed; {seen.ahead} offsets ahead of the disk in {seen.checks} comparisons\n"
    )
    found = bool(seen.ahead)
    if options.broken:
        return 0 if found else 1
    return 1 if found or seen.stored < seen.messages or seen.committed < seen.messages else 0


if __name__ == "__main__":
    sys.exit(main())
