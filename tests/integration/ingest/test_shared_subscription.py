"""Consumers of one group share what comes by MQTT: each message is stored once, also where one of them is killed, and
registers are right in the order in which two consumers have their points. Real brokers and a real state.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.ingest.test_net_registers import METER, forget, ingestor, store  # noqa: F401
from tests.support.broker import Broker, start_client, stop_client
from tests.support.consumer_process import PROGRESS, TIME
from tests.support.mqtt_zone import START_S, STEP_S
from tests.support.waiting import wait_until
from tests.unit.ingest.test_cumulative_register import admissible, by_definition, standings, times

from murmurate.service.ingest.cumulative_register import RegisterReading
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.message_ingest import BATCH_TOPIC, ingest_register_points
from murmurate.service.landing.layout import Landing

METERS = 600
TIMEOUT_S = 180.0
NOW_S = START_S + 6 * STEP_S  # when all points come
SHORT_GRACE_S = 3  # and so long the session of a consumer lasts


class SharedFeed:
    """A broker of its own, a landing, and consumers of one group, each in a process."""

    def __init__(self, root, dsn):
        self.root, self.dsn, self.processes = root, dsn, {}
        self.landing = Landing.create(root / "landing")
        rows = [f"{meter},street,1000,m{meter}" for meter in range(METERS)]
        (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,id", *rows]) + "\n")
        (root / "clock").write_bytes(TIME.pack(START_S + STEP_S + 1.0) + bytes(PROGRESS.size))
        self.broker = Broker(root / "broker", autosave=False)
        self.broker.start()
        self.sender = start_client(self.broker.port)
        self.counts = Counter()

    def start(self, client, grace_s=10**6):
        facts = {"root": str(self.root), "dsn": self.dsn, "port": self.broker.port}
        facts |= {"client": client, "group": "homes", "grace_s": grace_s}
        command = [sys.executable, "-m", "tests.support.consumer_process", json.dumps(facts)]
        self.processes[client] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def await_subscribed(self):
        """Wait until each consumer has stored something: messages are sent until then."""
        for client in self.processes:
            path = self.root / f"accepted-{client}"
            assert wait_until(lambda path=path: path.exists() or self.send([0]), TIMEOUT_S, pause_s=0.05), client

    def send(self, meters):
        for meter in meters:
            text = json.dumps({"meter": f"m{meter}", "interval_start": START_S, "energy_wh": meter % 900})
            self.sender.publish(BATCH_TOPIC, text, qos=1).wait_for_publish(TIMEOUT_S)

    def kill(self, client):
        process = self.processes.pop(client)
        process.kill()
        process.communicate()

    def stop(self, client):
        process = self.processes.pop(client)
        process.terminate()
        output, errors = process.communicate(timeout=TIMEOUT_S)
        assert output, errors[-2000:]
        self.counts.update(json.loads(output))

    def stored(self):
        """How often the reading of each meter is in the landing."""
        found = Counter()
        for path in self.landing.interval_folder(START_S).glob("**/*.parquet"):
            found.update(pq.ParquetFile(path).read()["meter"].to_pylist())
        return found

    def close(self):
        for client in [*self.processes]:
            self.kill(client)
        stop_client(self.sender)
        self.broker.kill()


@pytest.fixture
def feed(tmp_path, state_dsn):
    made = SharedFeed(tmp_path, state_dsn)
    yield made
    made.close()


def test_two_consumers_of_a_group_store_each_message_once_and_each_has_its_share(feed):
    feed.start("a")
    feed.start("b")
    feed.await_subscribed()
    feed.send(range(1, METERS))
    assert wait_until(lambda: len(feed.stored()) == METERS, TIMEOUT_S, pause_s=0.1)
    feed.stop("a")
    accepted_a = feed.counts["accepted"]
    feed.stop("b")
    stored = feed.stored()
    assert {stored[meter] for meter in range(1, METERS)} == {1}
    assert feed.counts["accepted"] == stored.total()
    assert METERS // 3 < accepted_a < stored.total() - METERS // 3


def test_what_a_killed_consumer_had_not_stored_comes_to_the_next_one_of_its_name(feed):
    feed.start("a")
    feed.start("b")
    feed.await_subscribed()
    for number in range(6):
        feed.send(range(100 * number, 100 * number + 50))
        client = "ab"[number % 2]
        feed.kill(client)  # some of it was delivered and not acknowledged
        feed.send(range(100 * number + 50, 100 * number + 100))  # a part of it waits for the one that is away
        feed.start(client)
    assert wait_until(lambda: len(feed.stored()) == METERS, TIMEOUT_S, pause_s=0.1), METERS - len(feed.stored())


def test_when_the_session_of_a_consumer_that_stays_away_has_ended_the_others_get_everything(feed):
    """As Mosquitto treats a member of a group that is away."""
    feed.start("a", SHORT_GRACE_S)
    feed.start("b", SHORT_GRACE_S)
    feed.await_subscribed()
    feed.kill("a")
    assert wait_until(lambda: all_are_stored(feed), TIMEOUT_S, pause_s=0.5)


def all_are_stored(feed):
    """Whether twenty messages that are sent now are stored."""
    before = feed.stored()
    feed.send(range(20))
    time.sleep(0.5)
    after = feed.stored()
    return all(after[meter] > before[meter] for meter in range(20))


def test_a_point_without_a_time_is_refused_in_a_group_and_one_with_its_time_counts(feed):
    feed.start("a")
    feed.await_subscribed()
    topic = "smartmeter/m6/ACTIVE_ENERGY_P"
    for payload in (
        b"5000",
        *(b'{"timestamp": %d, "value": %d}' % each for each in ((START_S, 1), (START_S + 900, 8))),
    ):
        feed.sender.publish(topic, payload, qos=1).wait_for_publish(TIMEOUT_S)
    assert wait_until(lambda: feed.stored()[6] == 1, TIMEOUT_S, pause_s=0.1)
    feed.stop("a")
    assert feed.counts["register_queued"] == 1


class PointConsumers:
    """Two consumers, each with a connection of its own to the state, that have their points at the same time."""

    def __init__(self, ingest, dsn):
        ingest.now = lambda: NOW_S
        self.ingest, self.stores = ingest, [IngestStore(dsn) for _ in range(2)]

    def ingest_at_once(self, *groups):
        barrier = threading.Barrier(len(groups))

        def ingest(own, points):
            barrier.wait()
            if points:
                ingest_register_points(self.ingest, own, [(str(METER), point, NOW_S) for point in points])

        threads = [threading.Thread(target=ingest, args=each) for each in zip(self.stores, groups, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.fixture
def consumers(ingestor, state_dsn):  # noqa: F811
    made = PointConsumers(ingestor[0], state_dsn)
    yield made
    for each in made.stores:
        each.close()


def test_the_two_edges_of_an_interval_that_two_consumers_have_at_once_give_its_energy(consumers, ingestor, store):  # noqa: F811
    stored = ingestor[1]
    for _ in range(40):
        forget(store)
        stored.clear()
        consumers.ingest_at_once([RegisterReading(START_S, 100)], [RegisterReading(START_S + STEP_S, 350)])
        assert stored == {(METER, START_S): {250}}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=times, data=st.data())
def test_however_points_are_divided_an_interval_has_one_right_energy_or_is_as_silent_as_without_a_group(
    consumers,
    ingestor,  # noqa: F811
    store,  # noqa: F811
    at,
    data,
):
    """A point comes less than an interval after a later one. Two consumers have what comes in half an interval."""
    stored, half_s = ingestor[1], STEP_S // 2
    forget(store)
    stored.clear()
    points = [RegisterReading(at_s, data.draw(standings)) for at_s in at]
    arrives = {point: point.at_s + data.draw(st.integers(0, half_s - 1)) for point in points}
    came = sorted(points, key=arrives.__getitem__)
    for step in sorted({arrives[point] // half_s for point in came}):
        groups = ([], [])
        for point in came:
            if arrives[point] // half_s == step:
                moved = RegisterReading(START_S + point.at_s, point.total_wh)
                groups[data.draw(st.integers(0, 1))].append(moved)
        consumers.ingest_at_once(*groups)
    allowed = admissible(points)
    assert {start_s - START_S for _, start_s in stored} == by_definition(points).keys()
    for (_, start_s), found in stored.items():
        assert len(found) == 1
        assert found <= {min(energy_wh, 2**53 - 1) for energy_wh in allowed[start_s - START_S]}


def test_a_point_that_comes_more_than_an_interval_late_is_counted(consumers, ingestor):  # noqa: F811
    made, stored = ingestor
    for at_s in (START_S + 1800, START_S + 899, START_S + 900):
        ingest_register_points(made, consumers.stores[0], [(str(METER), RegisterReading(at_s, at_s), NOW_S)])
    assert (made.counts["register_late"], made.counts["refused"]) == (1, 1)
    assert stored == {(METER, START_S + 900): {900}}
