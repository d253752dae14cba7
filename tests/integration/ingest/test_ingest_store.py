"""What the ingest store keeps of registers: it comes back as it was, and the newer one stays."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
        store.store_registers(some, now_s=2**40)
        known |= {m: one for m, one in some.items() if m not in known or one.last.at_s > known[m].last.at_s}
        assert store.load_registers(range(6)) == known
