"""What the ingest store keeps of registers: it comes back as it was, the newer one stays, and old rows go on."""

from __future__ import annotations

from importlib.resources import files

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.databases import database

from murmurate.service.ingest.cumulative_register import RegisterReading, RegisterState
from murmurate.service.ingest.ingest_store import IngestStore

points = st.builds(RegisterReading, st.integers(0, 2**40), st.integers(-(2**53), 2**53))
registers = st.builds(RegisterState, points, points)


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
        store.store_registers(some)
        known |= {m: one for m, one in some.items() if m not in known or one.last.at_s > known[m].last.at_s}
        assert store.load_registers(range(6)) == known


def test_a_register_from_before_first_points_were_kept_begins_again_at_its_last_point():
    scripts = files("murmurate.service.storage") / "sql" / "state"
    with database("state") as dsn:
        with psycopg.connect(dsn) as connection:
            for name in ("0001_begin", "0002_largest_bound", "0003_clients"):
                connection.execute((scripts / f"{name}.sql").read_bytes())
            connection.execute("INSERT INTO confidential.register VALUES (7, 1000, 5000, 4990), (8, 1800, 20, NULL)")
            connection.execute((scripts / "0004_registers.sql").read_bytes())
        store = IngestStore(dsn)
        try:
            old, new = RegisterReading(1000, 5000), RegisterReading(1800, 20)
            assert store.load_registers([7, 8, 9]) == {7: RegisterState(old, old), 8: RegisterState(new, new)}
        finally:
            store.close()
