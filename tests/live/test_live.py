"""Small versions of the real faults, and proof that the harness sees what it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from murmurate.publication.record import read, sign
from tests.live.checks import check, witness
from tests.live.cluster import installed
from tests.live.disk import disk_full
from tests.live.killing import database_kills, sigkills
from tests.live.leaks import forced_errors, look
from tests.live.network import lost_acknowledgements
from tests.live.pair import Room, Violation
from tests.live.replicas import restores
from tests.live.scenarios import BEFORE, STATE, room

pytestmark = pytest.mark.skipif(not installed(), reason="needs the programs of a PostgreSQL server")


@pytest.fixture(scope="module")
def place() -> Iterator[Room]:
    with room(seed=4) as place:
        yield place


def test_publishers_may_be_killed_anywhere(place):
    assert sigkills(place, 20, seed=1)["releases"] > 0


def test_databases_may_be_killed(place):
    assert database_kills(place, 2, seed=1)["releases"] > 0


def test_the_state_may_be_set_back(place):
    assert restores(place, 1, seed=1)["forgotten lines"] > 0


def test_acknowledgements_may_be_lost(place):
    assert lost_acknowledgements(place, 10, seed=1)["lost acknowledgements"] >= 10


def test_the_disk_may_be_full(place):
    assert disk_full(place, 1)["errors of it"] > 0


def test_killing_shows_two_values_where_one_publishes_before_the_commit(place):
    assert sigkills(place, 20, seed=1, protocol=BEFORE)["double values"] > 0


def test_a_restore_shows_two_values_where_the_state_alone_remembers(place):
    assert restores(place, 1, seed=1, protocol=STATE)["double values"] > 0


def test_the_check_sees_a_second_value(place):
    pair = place.pair("tampered")
    pair.extend(3)
    until = pair.heal()
    check(pair, until)
    zone = place.world.zones[0]
    last = read(pair.witnessed[zone][-1]).record
    other = replace(last, price_ticks=(last.price_ticks or 0) + 1)
    line = sign(other, place.world.signer).line
    pair.log.execute("ALTER TABLE public_log.entry DISABLE TRIGGER append_only")
    pair.log.execute("UPDATE public_log.entry SET line = %s WHERE zone = %s AND seq = %s", (line, zone, last.seq))
    with pytest.raises(Violation, match="is not what it was"):
        witness(pair)
    pair.end()


def test_no_demand_is_found_outside_its_table_and_the_search_is_not_blind(place):
    forced_errors(place)
    found, controls = look(place)
    assert found.files > 5
    assert found.hits == ()
    assert all(count > 0 for count in controls.values())
