"""The door for brokers, with a real one: what is acknowledged is kept, what was not comes again."""

from __future__ import annotations

import io
import json
import time
from secrets import token_hex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion
from tests.road.town import end_session

from murmurate.service.doors.intake import Intake
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.mqtt import BATCHES, MqttDoor
from murmurate.service.doors.register import Point, Register
from murmurate.service.doors.roster import Roster
from murmurate.service.gathering.closing import close
from murmurate.service.gathering.job import gather
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin
from murmurate.service.settings import Broker

STEP_S = 900
START_S = 1_794_658_500
NOW_S = START_S + STEP_S + 20


class Street:
    """Ten meters whose names nobody else on this broker has, and doors for them."""

    def __init__(self, root, dsn):
        self.root, self.dsn, self.mark = root, dsn, token_hex(4)
        rows = [f"{meter},street,1000,100,{self.mark}-{meter}" for meter in range(10)]
        (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh,id", *rows]) + "\n")
        self.landing = Landing.create(root / "landing")
        self.said, self.broken, self.now_s = [], False, NOW_S
        roster = Roster.of(root / "meters.csv")
        self.intake = Intake(landing=self.landing, roster=roster, now=lambda: NOW_S, grace_s=3600)
        self.sender = Client(CallbackAPIVersion.VERSION2)
        self.sender.connect("127.0.0.1")
        self.sender.loop_start()

    def close(self):
        self.sender.disconnect()
        self.sender.loop_stop()
        end_session(f"test-{self.mark}")

    def take(self):
        if self.broken:
            raise OSError("the disk is full")
        return self.intake

    def door(self):
        return MqttDoor(
            broker=Broker(),
            name=f"test-{self.mark}",
            intake=self.take,
            memory=DoorMemory(self.dsn),
            now=lambda: self.now_s,
            say=lambda event, **facts: self.said.append((event, facts)),
        )

    def send(self, topic, payload):
        self.sender.publish(topic, payload, qos=1).wait_for_publish(10)

    def reading(self, meter, energy_wh):
        return json.dumps({"meter": f"{self.mark}-{meter}", "interval_start": START_S, "energy_wh": energy_wh})

    def register(self, meter, at_s, total_wh):
        self.send(f"smartmeter/{self.mark}-{meter}/ACTIVE_ENERGY_P", json.dumps({"timestamp": at_s, "value": total_wh}))

    def until(self, holds):
        end = time.monotonic() + 15
        while not holds():
            assert time.monotonic() < end, (self.intake.counts, self.said)
            time.sleep(0.02)

    def counted(self):
        table = pin(self.landing, self.root / "meters.csv")
        demand = gather(self.landing, table, [close(self.landing, START_S, table.version)])[0].demand
        return int(demand.energy_wh[0]), int(demand.reported[0])


@pytest.fixture
def street(tmp_path, state_dsn):
    made = Street(tmp_path, state_dsn)
    yield made
    made.close()


@pytest.fixture
def open_door(street):
    """An open door; it is closed after the test."""
    doors = []

    def start():
        door = street.door()
        doors.append((door, door.start()))
        street.until(lambda: ("broker listens", {"topics": 2}) in street.said)
        return door

    yield start
    for door, thread in doors:
        door.stop()
        thread.join(10)
        door.memory.close()


def test_batches_and_registers_make_one_demand(street, open_door):
    open_door()
    street.send(BATCHES, "\n".join(street.reading(meter, 100 + meter) for meter in range(3)))
    sink = io.BytesIO()
    start = pa.array(np.full(3, START_S * 10**6), pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"meter": [3, 4, 5], "interval_start": start, "energy_wh": [7, 8, 9]}), sink)
    street.send(BATCHES, sink.getvalue())
    street.register(6, START_S, 5_000)
    street.register(6, START_S + 400, 5_300)
    street.register(6, START_S + STEP_S, 5_333)
    street.until(lambda: street.intake.counts["accepted"] == 7)
    assert street.counted() == (100 + 101 + 102 + 7 + 8 + 9 + 333 + 3 * 100, 7)


@pytest.mark.parametrize("shown", [5_333, 4_000, -4_000, 5_333.9, 1e300, -1e300])
def test_whatever_a_register_shows_its_meter_is_heard(street, open_door, shown):
    open_door()
    street.register(6, START_S, 5_000)
    street.register(6, START_S + STEP_S, shown)
    street.until(lambda: street.intake.counts["accepted"] == 1)
    assert street.counted() == (int(min(max(shown - 5_000, 0), 1000)) + 9 * 100, 1)


def test_points_that_lie_too_close_together_leave_an_interval_silent_and_the_next_one_whole(street, open_door):
    open_door()
    street.register(6, START_S - 300, 4_000)  # half of the interval before has no point
    street.register(6, START_S, 5_000)
    street.register(6, START_S + STEP_S, 5_333)
    street.until(lambda: street.intake.counts["accepted"] == 1)
    assert street.counted() == (333 + 9 * 100, 1)


def test_what_cannot_be_read_is_counted_and_holds_nobody_up(street, open_door):
    open_door()
    for payload in (b"", b"\xff\xfe", b"[]", b'{"meter": 1}', b"PAR1 and nothing else", b"{" * 5000):
        street.send(BATCHES, payload)
    street.send(f"smartmeter/{street.mark}-1/ACTIVE_ENERGY_P", b"not a number")
    street.send(f"smartmeter/{street.mark}-77/ACTIVE_ENERGY_P", b"5")
    street.send(BATCHES, street.reading(1, 50))
    street.until(lambda: street.intake.counts["accepted"] == 1)
    assert street.intake.counts["refused"] >= 6


def test_while_the_disk_is_full_nothing_is_acknowledged_and_then_it_comes_again(street, open_door, monkeypatch):
    monkeypatch.setattr("murmurate.service.doors.mqtt._AGAIN_S", 0.05)
    street.broken = True
    first = open_door()
    street.send(BATCHES, street.reading(1, 50))
    street.until(lambda: any(event == "failing" for event, _ in street.said))
    first.stop()  # a crash: the message was never acknowledged
    time.sleep(0.6)
    assert street.intake.counts["accepted"] == 0
    street.broken = False
    street.said.clear()
    open_door()
    street.until(lambda: street.intake.counts["accepted"] == 1)
    assert street.counted() == (50 + 9 * 100, 1)


def test_a_register_goes_on_where_it_stood_before_a_restart(street, open_door):
    first = open_door()
    street.register(2, START_S, 1_000)
    street.register(2, START_S + 60, 1_010)
    memory = DoorMemory(street.dsn)
    known = Register(Point(START_S, 1_000), Point(START_S + 60, 1_010))
    street.until(lambda: memory.registers([2]) == {2: known})
    first.stop()
    time.sleep(0.6)
    street.said.clear()
    street.register(2, START_S + STEP_S, 1_444)  # while nobody listens: the broker keeps it
    open_door()
    street.until(lambda: street.intake.counts["accepted"] == 1)
    memory.close()
    assert street.counted() == (444 + 9 * 100, 1)


def test_a_register_whose_energy_was_kept_but_not_remembered_is_worked_out_again(street, open_door, monkeypatch):
    """The state fails after the energy is on disk. The messages are taken again, as old as when they came."""
    monkeypatch.setattr("murmurate.service.doors.mqtt._AGAIN_S", 0.05)
    keep, failures = DoorMemory.keep_registers, [1]

    def keep_at_the_second_try(*words):
        if failures:
            street.now_s += failures.pop()  # meanwhile time goes on
            raise OSError("the state is gone")
        keep(*words)

    monkeypatch.setattr(DoorMemory, "keep_registers", keep_at_the_second_try)
    street.now_s = START_S
    open_door()
    street.send(f"smartmeter/{street.mark}-2/ACTIVE_ENERGY_P", b"1000")  # without a time: it is that of its arrival
    memory = DoorMemory(street.dsn)
    street.until(lambda: 2 in memory.registers([2]))
    assert memory.registers([2])[2].last == Point(START_S, 1000)
    failures.append(1)
    street.register(2, START_S + STEP_S, 1_444)
    street.until(lambda: memory.registers([2])[2].last == Point(START_S + STEP_S, 1_444))
    memory.close()
    assert not failures
    assert street.counted() == (444 + 9 * 100, 1)


def test_a_door_that_breaks_says_so_and_is_missed(street, monkeypatch):
    monkeypatch.setattr(Intake, "take", lambda *_: 1 / 0)
    missed, door = [], street.door()
    thread = door.start(died=lambda: missed.append(True))
    street.until(lambda: ("broker listens", {"topics": 2}) in street.said)
    street.send(BATCHES, street.reading(1, 50))
    thread.join(10)
    assert missed
    assert ("broken", {"door": "mqtt", "why": "ZeroDivisionError"}) in street.said
    door.memory.close()
