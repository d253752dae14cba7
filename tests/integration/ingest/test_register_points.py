"""Register points that do not belong to now: from the future, or of an unknown age. A real broker, a real state.

What the state keeps of registers comes back as it was, and the newer one stays.
"""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.mqtt_zone import NOW_S, START_S, STEP_S

from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.ingest.ingest_store import IngestStore

A_DAY_S = 86_400


def loaded(zone, meter):
    store = IngestStore(zone.dsn)
    try:
        return store.load_registers([meter]).get(meter)
    finally:
        store.close()


def test_a_point_from_the_future_is_refused_and_counted_and_silences_nothing(zone, start_consumer):
    start_consumer()
    zone.register(6, START_S, 5_000)
    for ahead_s in (31, A_DAY_S, 74 * 365 * A_DAY_S):
        zone.register(6, NOW_S + ahead_s, 9_999)
    zone.register(6, START_S + STEP_S, 5_333)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    zone.until(lambda: zone.ingestor.counts["register_future"] == 3)
    assert zone.counted() == (333 + 9 * 100, 1)


def test_a_clock_that_is_a_little_ahead_is_accepted(zone, start_consumer):
    start_consumer()
    zone.register(6, NOW_S + 29, 5_000)
    zone.until(lambda: loaded(zone, 6) is not None)
    assert zone.ingestor.counts["register_future"] == 0


def test_a_register_that_was_stored_in_the_future_comes_back_with_its_next_interval(zone, start_consumer):
    store, far = IngestStore(zone.dsn), RegisterReading(NOW_S + A_DAY_S, 9_999)
    store.store_registers({6: RegisterState(far, far)}, now_s=NOW_S + A_DAY_S)
    store.close()
    start_consumer()
    zone.register(6, START_S, 5_000)
    zone.register(6, START_S + STEP_S, 5_333)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    zone.until(lambda: loaded(zone, 6).last == RegisterReading(START_S + STEP_S, 5_333))
    assert zone.counted() == (333 + 9 * 100, 1)


def test_a_retained_bare_number_moves_no_energy_after_a_reconnect(zone, start_consumer):
    """The broker delivers it once more to each new subscription, however old it is."""
    topic = zone.register_topic(6)
    try:
        zone.now_s = START_S
        first = start_consumer()
        zone.let_fences_return(first)
        zone.send(topic, b"5000", retain=True)  # as it is published it is as old as it seems
        known = RegisterReading(START_S, 5_000)
        zone.until(lambda: loaded(zone, 6) == RegisterState(known, known, (known, known)))
        first.stop()
        time.sleep(0.6)
        zone.now_s = START_S + STEP_S - 30
        zone.logged.clear()
        second = start_consumer()
        zone.until(lambda: zone.ingestor.counts["register_retained"] == 1)
        zone.now_s = START_S + STEP_S
        zone.let_fences_return(second)
        zone.send(topic, b"5333", retain=True)
        zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
        assert zone.counted() == (333 + 9 * 100, 1)
    finally:
        zone.send(topic, b"", retain=True)  # the broker forgets it


def test_a_bare_number_counts_only_while_fences_return(zone, start_consumer):
    consumer = start_consumer()
    zone.send(zone.register_topic(6), b"5000")
    zone.until(lambda: zone.ingestor.counts["register_queued"] == 1)
    zone.let_fences_return(consumer)
    zone.send(zone.register_topic(6), b"5001")
    zone.until(lambda: loaded(zone, 6) == RegisterState(*[RegisterReading(NOW_S, 5_001)] * 2))
    assert zone.ingestor.counts["refused"] == 1


def test_a_retained_point_with_its_time_counts_for_that_time(zone, start_consumer):
    topic = zone.register_topic(6)
    try:
        zone.send(topic, b'{"timestamp": %d, "value": 5000}' % START_S, retain=True)
        start_consumer()
        zone.register(6, START_S + STEP_S, 5_333)
        zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
        assert zone.counted() == (333 + 9 * 100, 1)
    finally:
        zone.send(topic, b"", retain=True)


points = st.builds(RegisterReading, st.integers(0, 2**40), st.integers(-(2**53), 2**53))
registers = st.builds(RegisterState, points, points, st.none() | st.tuples(points, points))


@pytest.fixture
def store(state_dsn):
    one = IngestStore(state_dsn)
    yield one
    one.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.dictionaries(st.integers(0, 5), registers), max_size=4))
def test_a_register_comes_back_as_it_was_and_an_older_one_never_replaces_a_newer_one(store, rounds):
    known = store.load_registers(range(6))
    for some in rounds:
        store.store_registers(some, now_s=2**40)
        known |= {m: one for m, one in some.items() if m not in known or one.last.at_s >= known[m].last.at_s}
        assert store.load_registers(range(6)) == known
