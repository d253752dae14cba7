"""Readings over MQTT, with a real broker: what is acknowledged is kept, what was not comes again."""

from __future__ import annotations

import io
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.mqtt_zone import START_S, STEP_S

from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.mqtt_consumer import BATCH_TOPIC
from murmurate.service.settings import MqttBroker


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_batches_and_registers_make_one_demand(zone, start_consumer, protocol):
    zone.broker = MqttBroker(protocol=protocol)
    start_consumer()
    zone.send(BATCH_TOPIC, "\n".join(zone.reading(meter, 100 + meter) for meter in range(3)))
    sink = io.BytesIO()
    start = pa.array(np.full(3, START_S * 10**6), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"meter": [3, 4, 5], "interval_start": start, "energy_wh": [7, 8, 9]}), sink)
    zone.send(BATCH_TOPIC, sink.getvalue())
    zone.register(6, START_S, 5_000)
    zone.register(6, START_S + 400, 5_300)
    zone.register(6, START_S + STEP_S, 5_333)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 7)
    assert zone.counted() == (100 + 101 + 102 + 7 + 8 + 9 + 333 + 3 * 100, 7)


@pytest.mark.parametrize("shown", [5_333, 4_000, -4_000, 5_333.9, 1e300, -1e300])
def test_whatever_a_register_shows_its_meter_counts_as_reported(zone, start_consumer, shown):
    start_consumer()
    zone.register(6, START_S, 5_000)
    zone.register(6, START_S + STEP_S, shown)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    assert zone.counted() == (int(min(max(shown - 5_000, 0), 1000)) + 9 * 100, 1)


def test_points_that_lie_too_close_together_leave_an_interval_silent_and_the_next_one_whole(zone, start_consumer):
    start_consumer()
    zone.register(6, START_S - 300, 4_000)  # half of the interval before has no point
    zone.register(6, START_S, 5_000)
    zone.register(6, START_S + STEP_S, 5_333)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    assert zone.counted() == (333 + 9 * 100, 1)


def test_what_cannot_be_read_is_counted_and_delays_no_other_message(zone, start_consumer):
    start_consumer()
    for payload in (b"", b"\xff\xfe", b"[]", b'{"meter": 1}', b"PAR1 and nothing else", b"{" * 5000):
        zone.send(BATCH_TOPIC, payload)
    zone.send(f"smartmeter/{zone.mark}-1/ACTIVE_ENERGY_P", b"not a number")
    zone.send(f"smartmeter/{zone.mark}-77/ACTIVE_ENERGY_P", b"5")
    zone.send(BATCH_TOPIC, zone.reading(1, 50))
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    zone.until(lambda: zone.ingestor.counts["refused"] >= 7)


def test_while_the_disk_is_full_nothing_is_acknowledged_and_then_it_comes_again(zone, start_consumer, monkeypatch):
    monkeypatch.setattr("murmurate.service.ingest.message_ingest._INGEST_RETRY_S", 0.05)
    zone.broken = True
    first = start_consumer()
    zone.send(BATCH_TOPIC, zone.reading(1, 50))
    zone.until(lambda: any(event == "failing" for event, _ in zone.logged))
    first.stop()  # a crash: the message was never acknowledged
    time.sleep(0.6)
    assert zone.ingestor.counts["accepted"] == 0
    zone.broken = False
    zone.logged.clear()
    start_consumer()
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    assert zone.counted() == (50 + 9 * 100, 1)


def test_a_register_goes_on_where_it_stood_before_a_restart(zone, start_consumer):
    consumer = start_consumer()
    zone.register(2, START_S, 1_000)
    zone.register(2, START_S + 60, 1_010)
    store = IngestStore(zone.dsn)
    first = RegisterReading(START_S, 1_000)
    known = RegisterState(first, RegisterReading(START_S + 60, 1_010), (first, first))
    zone.until(lambda: store.load_registers([2]) == {2: known})
    consumer.stop()
    time.sleep(0.6)
    zone.logged.clear()
    zone.register(2, START_S + STEP_S, 1_444)  # while no consumer runs: the broker keeps it
    start_consumer()
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    store.close()
    assert zone.counted() == (444 + 9 * 100, 1)


def test_a_register_whose_energy_was_kept_but_not_remembered_is_worked_out_again(zone, start_consumer, monkeypatch):
    """The state fails after the energy is on disk. The messages are taken again, as old as when they came."""
    monkeypatch.setattr("murmurate.service.ingest.message_ingest._INGEST_RETRY_S", 0.05)
    keep, failures = IngestStore.store_registers, [1]

    def keep_at_the_second_try(*words, **options):
        if failures:
            zone.now_s += failures.pop()  # meanwhile time goes on
            raise OSError("the state is gone")
        keep(*words, **options)

    monkeypatch.setattr(IngestStore, "store_registers", keep_at_the_second_try)
    zone.now_s = START_S
    zone.let_fences_return(start_consumer())
    zone.send(f"smartmeter/{zone.mark}-2/ACTIVE_ENERGY_P", b"1000")  # without a time: it is that of its arrival
    store = IngestStore(zone.dsn)
    zone.until(lambda: 2 in store.load_registers([2]))
    assert store.load_registers([2])[2].last == RegisterReading(START_S, 1000)
    failures.append(1)
    zone.now_s = START_S + STEP_S
    zone.register(2, START_S + STEP_S, 1_444)
    zone.until(lambda: store.load_registers([2])[2].last == RegisterReading(START_S + STEP_S, 1_444))
    store.close()
    assert not failures
    assert zone.counted() == (444 + 9 * 100, 1)


def test_a_consumer_that_breaks_is_logged_and_reported(zone, monkeypatch):
    monkeypatch.setattr(ReadingIngestor, "start_batch", lambda *_: 1 / 0)
    missed, consumer = [], zone.new_consumer()
    thread = consumer.start(on_failure=lambda: missed.append(True))
    zone.until(lambda: ("broker listens", {"topics": 4}) in zone.logged)
    zone.send(BATCH_TOPIC, zone.reading(1, 50))
    thread.join(120)
    assert missed
    assert ("broken", {"consumer": "mqtt", "reason": "ZeroDivisionError"}) in zone.logged
    consumer.store.close()
