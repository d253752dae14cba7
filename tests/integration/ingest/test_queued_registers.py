"""Bare numbers of registers that waited somewhere: no energy is stored for an interval in which it was not drawn.

A real broker, a real state, and a consumer in another process, which is ended, stopped and cut off. Ten meters
send a bare number each minute of the clock.
"""

import signal

import psycopg
import pytest
from tests.support.bare_registers import METERS, STEP_S, BareRegisters

pytestmark = pytest.mark.slow


@pytest.fixture
def registers(tmp_path, state_dsn):
    made = BareRegisters(tmp_path, state_dsn)
    yield made
    made.close()


def play_whole_intervals(registers, count=3):
    """Play on until intervals that have begun since are measured. Return their numbers."""
    first = int(registers.now_s - registers.interval_start(0) + STEP_S // 6) // STEP_S + 1
    registers.play(registers.interval_start(first + count) + 60)
    return range(first, first + count)


def check(registers, *whole):
    """Nothing is wrong, and each group of intervals has one that all meters have reported.

    Groups have three intervals: on a busy machine a connection that is new may be lost once more.
    """
    registers.stop()
    assert registers.wrong_intervals() == []
    assert [max(map(registers.reported, numbers)) for numbers in whole] == [METERS] * len(whole)
    assert registers.counts["register_queued"] > 0
    assert registers.counts["register_redelivered"] + registers.counts["register_queued"] <= registers.counts["refused"]


def test_restarts_at_ten_places_of_an_interval_store_no_wrong_energy(registers):
    registers.start()
    numbers = [*play_whole_intervals(registers, 1)]
    for tenth in range(10):
        registers.stop()
        number = int(registers.now_s - registers.interval_start(0)) // STEP_S + 4
        registers.play_unread(registers.interval_start(number) + 6 + tenth * STEP_S // 10)
        registers.start()
        numbers += play_whole_intervals(registers, 1)
    check(registers, play_whole_intervals(registers, 8))  # after so many restarts a busy machine needs more of them
    whole = [registers.reported(number) == METERS for number in numbers]
    assert sum(whole) > len(whole) // 2  # on a busy machine a connection that is new may be lost once more


def test_a_process_that_stood_still_stores_no_wrong_energy(registers):
    registers.start()
    before = play_whole_intervals(registers, 1)
    registers.play(registers.now_s + STEP_S // 4)
    registers.pause()
    registers.play_unread(registers.now_s + STEP_S * 11 // 4)
    registers.resume()
    registers.await_fence()
    check(registers, before, play_whole_intervals(registers))


def test_a_broker_that_was_away_brings_no_wrong_energy(registers):
    """The meters are back before the service, and send on."""
    registers.start()
    before = play_whole_intervals(registers, 1)
    registers.broker.stop()
    registers.now_s += 3 * STEP_S
    registers.pause()
    registers.broker.start()
    registers.await_sender()
    registers.play_unread(registers.now_s + 2 * STEP_S)
    registers.resume()
    registers.await_fence()
    check(registers, before, play_whole_intervals(registers))


def test_what_meters_kept_while_the_broker_was_away_brings_no_wrong_energy(registers):
    """They send it when the service is connected again: nothing else shows that it is old."""
    registers.start()
    before = play_whole_intervals(registers, 1)
    registers.broker.stop()
    away_s, registers.now_s = registers.now_s, registers.now_s + 3 * STEP_S
    registers.broker.start()
    registers.await_fence()
    registers.await_sender()
    for kept_s in range(int(away_s), int(registers.now_s), 300):
        registers.publish(kept_s)
    check(registers, before, play_whole_intervals(registers))


def test_a_broker_that_stood_still_brings_no_wrong_energy(registers):
    registers.start()
    before = play_whole_intervals(registers, 1)
    registers.broker.send_signal(signal.SIGSTOP)
    registers.play_unread(registers.now_s + 3 * STEP_S, confirm=False)
    registers.broker.send_signal(signal.SIGCONT)
    registers.await_fence()
    check(registers, before, play_whole_intervals(registers))


def test_a_state_that_was_away_beside_a_flood_brings_no_wrong_energy(registers):
    registers.start()
    before = play_whole_intervals(registers, 1)
    server, _, name = registers.dsn.rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        registers.flood(300, 4000)
        registers.play_unread(registers.now_s + STEP_S * 5 // 2)
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    registers.await_room()
    registers.await_fence()
    check(registers, before, play_whole_intervals(registers))
