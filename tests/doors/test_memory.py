"""What the doors remember of registers: it comes back as it was, the newer one stays, and old rows go on."""

from __future__ import annotations

from importlib.resources import files

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.service.conftest import database

from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.register import Point, Register

points = st.builds(Point, st.integers(0, 2**40), st.integers(-(2**53), 2**53))
registers = st.builds(Register, points, points)


@pytest.fixture
def memory(state_dsn):
    one = DoorMemory(state_dsn)
    yield one
    one.close()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.dictionaries(st.integers(0, 5), registers), max_size=4))
def test_a_register_comes_back_as_it_was_and_an_older_one_never_replaces_a_newer_one(memory, rounds):
    known = memory.registers(range(6))
    for some in rounds:
        memory.keep_registers(some)
        known |= {m: one for m, one in some.items() if m not in known or one.last.at_s > known[m].last.at_s}
        assert memory.registers(range(6)) == known


def test_a_register_from_before_first_points_were_kept_begins_again_at_its_last_point():
    scripts = files("murmurate.service") / "sql" / "state"
    with database("state") as dsn:
        with psycopg.connect(dsn) as connection:
            for name in ("0001_begin", "0002_largest_bound", "0003_doors"):
                connection.execute((scripts / f"{name}.sql").read_bytes())
            connection.execute("INSERT INTO confidential.register VALUES (7, 1000, 5000, 4990), (8, 1800, 20, NULL)")
            connection.execute((scripts / "0004_registers.sql").read_bytes())
        memory = DoorMemory(dsn)
        try:
            old, new = Point(1000, 5000), Point(1800, 20)
            assert memory.registers([7, 8, 9]) == {7: Register(old, old), 8: Register(new, new)}
        finally:
            memory.close()
