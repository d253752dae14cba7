"""A meter with a register of import and one of export: an interval has their difference, or no reading.

A real state. Points of the two registers come in any order, in any groups, and again after a process that has ended.
"""

from __future__ import annotations

import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.mqtt_zone import START_S, STEP_S
from tests.unit.ingest.test_cumulative_register import energies

from murmurate.service.ingest.cumulative_register import RegisterReading
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.ingest.ingestor import ReadingIngestor
from murmurate.service.ingest.message_ingest import ingest_register_points
from murmurate.service.ingest.meter_registry import MeterRegistry
from murmurate.service.landing.layout import Landing

INTERVALS = 4
END_S = INTERVALS * STEP_S
METER = 6
moments = st.integers(0, END_S) | st.sampled_from(range(0, END_S + 1, STEP_S))
streams = st.lists(moments, unique=True, min_size=1, max_size=12).flatmap(
    lambda at: st.lists(st.integers(-(2**53), 2**53), min_size=len(at), max_size=len(at)).map(
        lambda shown: [RegisterReading(*point) for point in zip(sorted(at), shown, strict=True)]
    )
)


class CrashError(Exception):
    """The process ends between two steps."""


class CrashingStore(IngestStore):
    """Ends the process before the points are stored, while `crashes` is above 0."""

    crashes = 0

    def store_registers(self, registers, *, now_s):
        if self.crashes:
            self.crashes -= 1
            raise CrashError
        super().store_registers(registers, now_s=now_s)


@pytest.fixture
def store(state_dsn):
    one = CrashingStore(state_dsn)
    yield one
    one.close()


@pytest.fixture
def ingestor(tmp_path):
    """What it stores is in `stored`: by meter and begin of the interval, every energy that was stored."""
    (tmp_path / "meters.csv").write_text("meter,zone,bound_wh\n6,street,1000\n7,street,1000\n")
    stored = {}

    def append(start_s, readings):
        for meter, energy_wh in zip(readings.meter.tolist(), readings.energy_wh.tolist(), strict=True):
            stored.setdefault((meter, start_s), set()).add(energy_wh)
        return True

    made = ReadingIngestor(
        landing=Landing.create(tmp_path / "landing"),
        registry=MeterRegistry.from_meter_table(tmp_path / "meters.csv"),
        now=lambda: START_S + END_S,
        grace_s=10**6,
        append=append,
    )
    return made, stored


def at(point):
    return RegisterReading(START_S + point.at_s, point.total_wh)


def send(ingestor, store, group):
    """Ingest a group of (is of export, point)."""
    sides = [[(str(METER), at(point), START_S + END_S) for side, point in group if side is e] for e in (False, True)]
    if any(sides):
        ingest_register_points(ingestor, store, *sides)


def forget(store):
    with store._session.transaction() as connection:
        connection.execute("DELETE FROM confidential.register")
        connection.execute("DELETE FROM confidential.register_energy")


def by_definition(imported, exported):
    """The difference of the two energies of each interval that both registers have."""
    ways = [energies(points)[1] for points in (imported, exported)]
    return {start_s: ways[0][start_s] - ways[1][start_s] for start_s in ways[0].keys() & ways[1].keys()}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(imported=streams, exported=streams, data=st.data())
def test_in_any_order_and_after_any_crash_an_interval_has_the_difference_once_or_nothing(
    store, ingestor, imported, exported, data
):
    ingest, stored = ingestor
    forget(store)
    stored.clear()
    known = RegisterReading(exported[0].at_s - 10**6, 5)  # the service knows that the meter has both
    send(ingest, store, [(True, known)])
    left = {False: list(imported), True: list(exported)}
    while any(left.values()):
        group = []
        for _ in range(data.draw(st.integers(1, 8))):
            if any(left.values()):
                side = data.draw(st.sampled_from([side for side in left if left[side]]))
                group.append((side, left[side].pop(0)))
        store.crashes = data.draw(st.integers(0, 2))
        while True:
            try:
                send(ingest, store, group)
            except CrashError:
                continue
            break
    expected = {(METER, START_S + start_s): {wh} for start_s, wh in by_definition(imported, exported).items()}
    bound = 2**53 - 1
    assert stored == {key: {min(max(wh, -bound), bound) for wh in found} for key, found in expected.items()}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(imported=streams, exported=streams, data=st.data())
def test_which_intervals_have_a_net_energy_depends_on_the_times_of_points_alone(
    store, ingestor, imported, exported, data
):
    ingest, stored = ingestor
    found = []
    shown = st.integers(-(2**53), 2**53)
    other = [[RegisterReading(point.at_s, data.draw(shown)) for point in way] for way in (imported, exported)]
    for ways in ((imported, exported), other):
        forget(store)
        stored.clear()
        send(ingest, store, [(side, point) for side, way in zip((False, True), ways, strict=True) for point in way])
        found.append(set(stored))
    assert found[0] == found[1]


def test_a_meter_that_never_sent_export_has_its_import_and_one_that_did_waits_for_both(store, ingestor):
    ingest, stored = ingestor
    send(ingest, store, [(False, RegisterReading(0, 1000)), (False, RegisterReading(STEP_S, 1200))])
    assert stored == {(METER, START_S): {200}}
    send(ingest, store, [(True, RegisterReading(STEP_S, 50))])  # from here on it has both
    send(ingest, store, [(False, RegisterReading(2 * STEP_S, 1230))])
    assert set(stored) == {(METER, START_S)}
    send(ingest, store, [(True, RegisterReading(2 * STEP_S, 450))])
    assert stored == {(METER, START_S): {200}, (METER, START_S + STEP_S): {-370}}
    send(ingest, store, [(True, RegisterReading(4 * STEP_S, 500)), (False, RegisterReading(3 * STEP_S, 1231))])
    assert len(stored) == 2  # import alone


def test_a_register_of_export_that_is_silent_for_keep_days_is_forgotten(store, ingestor):
    ingest, stored = ingestor
    send(ingest, store, [(True, RegisterReading(0, 50)), (False, RegisterReading(STEP_S, 1000))])
    store.purge_registers(START_S + 1)
    send(ingest, store, [(False, RegisterReading(2 * STEP_S, 1010))])
    assert stored == {(METER, START_S + STEP_S): {10}}


def test_halves_that_two_processes_keep_at_once_are_paired_by_one_of_them(state_dsn):
    stores = [IngestStore(state_dsn) for _ in range(2)]
    for start_s in range(0, 40 * STEP_S, STEP_S):
        barrier, found = threading.Barrier(2), []

        def keep(store, register, energy_wh, start_s=start_s, barrier=barrier, found=found):
            barrier.wait()
            found += store.pair_energies([(register, start_s, energy_wh)])

        threads = [threading.Thread(target=keep, args=each) for each in ((stores[0], 3, 30), (stores[1], ~3, 70))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(found) == {(3, start_s, -40)}
    for store in stores:
        store.close()


def test_the_first_energy_of_a_register_stays(store):
    assert store.pair_energies([(3, 0, 30), (~3, 0, 10)]) == [(3, 0, 20)]
    assert store.pair_energies([(3, 0, 99)]) == [(3, 0, 20)]


def test_both_registers_come_by_mqtt(zone, start_consumer):
    start_consumer()
    for register, first, last in (("ACTIVE_ENERGY_N", 100, 350), ("ACTIVE_ENERGY_P", 5_000, 5_333)):
        zone.register(METER, START_S, first, register)
        zone.register(METER, START_S + STEP_S, last, register)
    zone.until(lambda: zone.ingestor.counts["accepted"] == 1)
    assert zone.counted() == (333 - 250 + 9 * 100, 1)
