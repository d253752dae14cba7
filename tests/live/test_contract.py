"""The contract of the two stores, on a real server: who may lock what, and what the log takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import psycopg
import pytest

from murmurate.errors import MurmurateError
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Beyond, Known
from murmurate.publication.record import Entry, sign
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish, next_task
from murmurate.quantities import Demand
from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog
from murmurate.service.state import PostgresState
from tests.live.cluster import Cluster, clusters, installed
from tests.live.pair import closing_log
from tests.live.world import FIRST, World

pytestmark = pytest.mark.skipif(not installed(), reason="needs the programs of a PostgreSQL server")

_STRANGER = Ed25519Signer(bytes(32))
_NUMBERS = count()


class Office:
    """Both stores in one cluster, and a desk to write for them."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.world = World(1, ("harbour",))
        self.log: PostgresLog = stack.enter_context(closing_log(cluster.dsn))
        self.log.publish_plan(self.world.terms.plan, self.world.text)
        self.state().register(self.world.terms.plan, self.world.text)

    def state(self) -> PostgresState:
        state = PostgresState(self.cluster.dsn)
        self._stack.callback(state.rollback)
        return state

    def opening(self, first: int = FIRST) -> Opening:
        return Opening(plan=self.world.terms.plan, key=self.world.signer.public, first=first)

    def next(self, zone: str, head: Entry | None, first: int = FIRST) -> Entry:
        """What an honest publisher writes next."""
        signer = self.world.signer
        terms = {self.world.terms.plan: self.world.terms}.get
        desk = Desk(terms=terms, signers={signer.public: signer}, noise=SystemNoise())
        task = next_task(head, Wish(until=10**9, opening=self.opening(first)))
        drawn = Demand(
            zones=(zone,),
            energy_wh=np.array([200_000_000]),
            reported=np.array([800]),
            imputed=np.array([0]),
            bounds=({"": 1000},),
        )
        return desk.write({zone: (head, task)}, drawn).written[zone]

    def forge(self, entry: Entry, **changes: Any) -> Entry:
        """The same record with changes, signed by whom it names as far as we can."""
        record = replace(entry.record, **changes)
        signer = _STRANGER if record.key == _STRANGER.public else self.world.signer
        return sign(record, signer)

    def chain(self, length: int, first: int = FIRST) -> tuple[str, Entry]:
        """A new zone with so many entries in the log, and the last of them."""
        zone, head = f"quay-{next(_NUMBERS)}", None
        for _ in range(length):
            head = self.next(zone, head, first)
            self.log.append([head])
        assert self.length(zone) == length
        return zone, head

    def length(self, zone: str) -> int:
        return self.log.read({zone: -1})[zone].last_seq + 1


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    with clusters() as private, ExitStack() as stack:
        cluster = private.new("office").start()
        migrate(cluster.dsn, "state")
        migrate(cluster.dsn, "log")
        yield Office(cluster, stack)


def lock_when_free(state: PostgresState, zones: tuple[str, ...]) -> dict[str, Known]:
    """Lock all of these zones: a rollback hangs up, and the server lets go of the locks a moment after."""
    until = time.monotonic() + 10
    while (known := state.lock(zones)).keys() != set(zones) and time.monotonic() < until:
        time.sleep(0.01)
    return known


def test_a_zone_that_another_has_locked_is_passed_over(office):
    one, other = office.state(), office.state()
    one.open(dict.fromkeys(("a", "b", "c"), office.opening()))
    assert one.lock(("a", "b")).keys() == {"a", "b"}
    assert other.lock(("a", "b", "c")).keys() == {"c"}
    one.rollback()
    assert lock_when_free(other, ("a", "b")).keys() == {"a", "b"}


def test_a_lock_ends_with_its_save_and_not_before(office):
    one, other = office.state(), office.state()
    one.open({"d": office.opening()})
    one.lock(("d",))
    entry = office.next("d", None)
    assert not other.lock(("d",))
    one.save({}, {"d": entry})
    assert other.lock(("d",))["d"].pending == entry


def test_what_was_not_saved_is_forgotten(office):
    one, other = office.state(), office.state()
    one.open({"e": office.opening()})
    one.lock(("e",))
    one.rollback()
    assert lock_when_free(other, ("e",))["e"] == Known(None, None)


def test_the_log_takes_what_follows_and_once_only(office):
    zone, head = office.chain(3)
    entry = office.next(zone, head)
    office.log.append([entry])
    office.log.append([entry])
    assert office.log.read({zone: 2})[zone] == Beyond(3, (entry.line,), entry.hash)


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": 2},
        {"seq": 4},
        {"prev": "0" * 64},
        {"total_epsilon_micro": 0},
        {"total_rho_micro": 1},
        {"interval": FIRST + 1},
        {"interval": FIRST + 3},
        {"noise": "rehearsal of huber"},
        {"noise": "laplace"},
        {"core_wh": -1},
        {"plan": "f" * 64},
        {"key": _STRANGER.public},
        {"kind": "open"},
        {"interval_s": 300},
        {"applies": FIRST + 9},
        {"epsilon_micro": -1},
    ],
    ids=str,
)
def test_the_log_refuses_what_does_not_follow(office, changes):
    zone, head = office.chain(3)
    entry = office.next(zone, head)
    office.log.append([office.forge(entry, **changes)])
    assert office.length(zone) == 3
    office.log.append([entry])
    assert office.length(zone) == 4


def test_the_log_opens_no_chain_twice(office):
    zone, _ = office.chain(2)
    office.log.append([office.next(zone, None, FIRST + 5)])
    assert office.length(zone) == 2


def test_the_log_opens_no_chain_under_a_plan_that_it_does_not_show(office):
    zone = "unplanned"
    entry = office.next(zone, None)
    office.log.append([office.forge(entry, plan="f" * 64)])
    assert office.length(zone) == 0
    office.log.append([entry])
    assert office.length(zone) == 1


def test_the_log_takes_no_interval_before_it_is_over(office):
    now = int(time.time()) // office.world.terms.interval_s
    zone, head = office.chain(1, first=now + 1)
    office.log.append([office.next(zone, head)])
    assert office.length(zone) == 1


def test_of_two_zones_the_log_takes_the_one_that_follows(office):
    (good, head), (bad, other) = office.chain(2), office.chain(2)
    wrong = office.forge(office.next(bad, other), prev="0" * 64)
    office.log.append([wrong, office.next(good, head)])
    assert (office.length(good), office.length(bad)) == (3, 2)


def test_a_zone_that_another_appends_to_is_passed_over(office):
    (free, head), (taken, other) = office.chain(2), office.chain(2)
    with psycopg.connect(office.cluster.dsn) as holder:
        holder.execute("SELECT FROM public_log.head WHERE zone = %s FOR UPDATE", (taken,))
        office.log.append([office.next(taken, other), office.next(free, head)])
        assert (office.length(free), office.length(taken)) == (3, 2)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "huber"])
def test_the_log_takes_the_noise_of_every_law(office, noise):
    zone, head = office.chain(1)
    entry = office.next(zone, head)
    core_wh = entry.record.core_wh if noise == "huber" else 0
    office.log.append([office.forge(entry, noise=noise, core_wh=core_wh)])
    assert office.length(zone) == 2


@pytest.mark.parametrize("change", ["UPDATE public_log.entry SET line = ''", "DELETE FROM public_log.entry"])
def test_an_entry_can_neither_be_changed_nor_deleted(office, change):
    office.chain(1)
    for statement in (change, "TRUNCATE public_log.entry"):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            office.cluster.execute(statement)


@pytest.mark.parametrize("store", ["state", "log"])
def test_migrating_again_does_nothing_and_a_changed_migration_is_refused(office, store):
    assert migrate(office.cluster.dsn, store) == []
    query = "UPDATE murmurate_migration SET sha256 = reverse(sha256) WHERE store = %s"
    office.cluster.execute(query, (store,))
    try:
        with pytest.raises(MurmurateError, match="changed"):
            migrate(office.cluster.dsn, store)
    finally:
        office.cluster.execute(query, (store,))
