"""The contract of the two stores on a real server: locks of the state, and the entries that the log accepts."""

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
from murmurate.public_log.record import Entry, sign_record
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, Opening, find_next_record
from murmurate.publisher.protocol import LogTail, SeenState
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.types import Demand
from tests.fault_injection.postgres_cluster import Cluster, clusters
from tests.fault_injection.sample_zones import FIRST, SampleZones
from tests.fault_injection.store_pair import closing_log

_OTHER_SIGNER = Ed25519Signer(bytes(32))
_NUMBERS = count()


class ContractStores:
    """Both stores in one cluster, and a record writer."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.sample = SampleZones(1, ("harbour",))
        self.log: PostgresLogStore = stack.enter_context(closing_log(cluster.dsn))
        self.log.publish_plan(self.sample.terms.plan_digest, self.sample.plan_text)
        self.state().register_plan(self.sample.terms.plan_digest, self.sample.plan_text)

    def state(self) -> PostgresStateStore:
        state = PostgresStateStore(self.cluster.dsn)
        self._stack.callback(state.rollback)
        return state

    def opening(self, first: int = FIRST) -> Opening:
        return Opening(plan=self.sample.terms.plan_digest, key=self.sample.signer.public_key, first=first)

    def next_entry(self, zone: str, head: Entry | None, first: int = FIRST) -> Entry:
        """Return the next entry of an honest publisher."""
        signer = self.sample.signer
        terms = {self.sample.terms.plan_digest: self.sample.terms}.get
        writer = RecordWriter(terms_for_plan=terms, signers={signer.public_key: signer}, noise=SystemNoise())
        next_record = find_next_record(head, DesiredState(until=10**9, opening=self.opening(first)))
        demand = Demand(
            zones=(zone,),
            energy_wh=np.array([200_000_000]),
            reported=np.array([800]),
            imputed=np.array([0]),
            bounds=({"": 1000},),
        )
        return writer.write_entries({zone: (head, next_record)}, demand).written[zone]

    def forge(self, entry: Entry, **changes: Any) -> Entry:
        """Return the record with changes, signed by the key that it names where this key is available."""
        record = replace(entry.record, **changes)
        signer = _OTHER_SIGNER if record.key == _OTHER_SIGNER.public_key else self.sample.signer
        return sign_record(record, signer)

    def chain(self, length: int, first: int = FIRST) -> tuple[str, Entry]:
        """Create a zone with `length` entries in the log. Return the zone and the last entry."""
        zone, head = f"quay-{next(_NUMBERS)}", None
        for _ in range(length):
            head = self.next_entry(zone, head, first)
            self.log.append([head])
        assert self.length(zone) == length
        return zone, head

    def length(self, zone: str) -> int:
        return self.log.read({zone: -1})[zone].last_seq + 1


@pytest.fixture(scope="module")
def stores() -> Iterator[ContractStores]:
    with clusters() as private, ExitStack() as stack:
        cluster = private.new("contract").start()
        migrate_database(cluster.dsn, "state")
        migrate_database(cluster.dsn, "log")
        yield ContractStores(cluster, stack)


def lock_when_free(state: PostgresStateStore, zones: tuple[str, ...]) -> dict[str, SeenState]:
    """Lock all of these zones. A rollback closes the connection, and the server releases the locks a moment later."""
    until = time.monotonic() + 120
    while (known := state.lock(zones)).keys() != set(zones) and time.monotonic() < until:
        time.sleep(0.01)
    return known


def test_a_zone_that_another_session_has_locked_is_skipped(stores):
    one, other = stores.state(), stores.state()
    one.store_openings(dict.fromkeys(("a", "b", "c"), stores.opening()))
    assert one.lock(("a", "b")).keys() == {"a", "b"}
    assert other.lock(("a", "b", "c")).keys() == {"c"}
    one.rollback()
    assert lock_when_free(other, ("a", "b")).keys() == {"a", "b"}


def test_a_lock_ends_with_its_save_and_not_before(stores):
    one, other = stores.state(), stores.state()
    one.store_openings({"d": stores.opening()})
    one.lock(("d",))
    entry = stores.next_entry("d", None)
    assert not other.lock(("d",))
    one.save({}, {"d": entry})
    assert other.lock(("d",))["d"].pending == entry


def test_what_was_not_saved_is_discarded(stores):
    one, other = stores.state(), stores.state()
    one.store_openings({"e": stores.opening()})
    one.lock(("e",))
    one.rollback()
    assert lock_when_free(other, ("e",))["e"] == SeenState(None, None)


def test_the_log_takes_an_entry_that_follows_and_only_once(stores):
    zone, head = stores.chain(3)
    entry = stores.next_entry(zone, head)
    stores.log.append([entry])
    stores.log.append([entry])
    assert stores.log.read({zone: 2})[zone] == LogTail(3, (entry.line,), entry.hash)


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
        {"noise": "test-only huber"},
        {"noise": "laplace"},
        {"core_wh": -1},
        {"plan": "f" * 64},
        {"key": _OTHER_SIGNER.public_key},
        {"kind": "open"},
        {"interval_s": 300},
        {"applies": FIRST + 9},
        {"epsilon_micro": -1},
    ],
    ids=str,
)
def test_the_log_refuses_an_entry_that_does_not_follow(stores, changes):
    zone, head = stores.chain(3)
    entry = stores.next_entry(zone, head)
    stores.log.append([stores.forge(entry, **changes)])
    assert stores.length(zone) == 3
    stores.log.append([entry])
    assert stores.length(zone) == 4


def test_the_log_opens_no_chain_twice(stores):
    zone, _ = stores.chain(2)
    stores.log.append([stores.next_entry(zone, None, FIRST + 5)])
    assert stores.length(zone) == 2


def test_the_log_opens_no_chain_under_a_plan_that_is_not_published(stores):
    zone = "unplanned"
    entry = stores.next_entry(zone, None)
    stores.log.append([stores.forge(entry, plan="f" * 64)])
    assert stores.length(zone) == 0
    stores.log.append([entry])
    assert stores.length(zone) == 1


def test_the_log_takes_no_interval_before_it_is_over(stores):
    now = int(time.time()) // stores.sample.terms.interval_s
    zone, head = stores.chain(1, first=now + 1)
    stores.log.append([stores.next_entry(zone, head)])
    assert stores.length(zone) == 1


def test_of_two_zones_the_log_takes_the_one_that_follows(stores):
    (good, head), (bad, other) = stores.chain(2), stores.chain(2)
    wrong = stores.forge(stores.next_entry(bad, other), prev="0" * 64)
    stores.log.append([wrong, stores.next_entry(good, head)])
    assert (stores.length(good), stores.length(bad)) == (3, 2)


def test_a_zone_that_another_session_appends_to_is_skipped(stores):
    (free, head), (taken, other) = stores.chain(2), stores.chain(2)
    with psycopg.connect(stores.cluster.dsn) as holder:
        holder.execute("SELECT FROM public_log.head WHERE zone = %s FOR UPDATE", (taken,))
        stores.log.append([stores.next_entry(taken, other), stores.next_entry(free, head)])
        assert (stores.length(free), stores.length(taken)) == (3, 2)


@pytest.mark.parametrize("noise", ["laplace", "gaussian", "huber"])
def test_the_log_takes_the_noise_of_every_distribution(stores, noise):
    zone, head = stores.chain(1)
    entry = stores.next_entry(zone, head)
    core_wh = entry.record.core_wh if noise == "huber" else 0
    stores.log.append([stores.forge(entry, noise=noise, core_wh=core_wh)])
    assert stores.length(zone) == 2


@pytest.mark.parametrize("change", ["UPDATE public_log.entry SET line = ''", "DELETE FROM public_log.entry"])
def test_an_entry_can_neither_be_changed_nor_deleted(stores, change):
    stores.chain(1)
    for statement in (change, "TRUNCATE public_log.entry"):
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            stores.cluster.execute(statement)


@pytest.mark.parametrize("store", ["state", "log"])
def test_migrating_again_does_nothing_and_a_changed_migration_is_refused(stores, store):
    assert migrate_database(stores.cluster.dsn, store) == []
    query = "UPDATE murmurate_migration SET sha256 = reverse(sha256) WHERE store = %s"
    stores.cluster.execute(query, (store,))
    try:
        with pytest.raises(MurmurateError, match="changed"):
            migrate_database(stores.cluster.dsn, store)
    finally:
        stores.cluster.execute(query, (store,))
