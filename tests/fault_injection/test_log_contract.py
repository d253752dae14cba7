"""The contract of the two stores: locks of the state on a real server, and the tiles that a log accepts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import psycopg
import pytest

from murmurate.errors import MurmurateError
from murmurate.public_log.tile import TileKind
from murmurate.public_log.tile_chain import check_follows
from murmurate.publisher.steps import SeenState
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.object_store import FolderStore
from murmurate.service.storage.state_store import PostgresStateStore
from tests.fault_injection.log_laws import ContractLog, LogLaws, ObjectLogLaws
from tests.fault_injection.sample_zones import sample_plan_text, sample_terms
from tests.fault_injection.store_pair import closing_log
from tests.support.postgres_cluster import Cluster, clusters
from tests.support.waiting import wait_until


class ContractStores(ContractLog):
    """Both stores in one cluster."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        super().__init__(stack.enter_context(closing_log(cluster.dsn)))
        self.cluster, self._stack = cluster, stack
        self.state().register_plans({sample_terms().plan_digest: sample_plan_text()})

    def state(self) -> PostgresStateStore:
        state = PostgresStateStore(self.cluster.dsn)
        self._stack.callback(state.rollback)
        return state

    def store_openings(self, state: PostgresStateStore, *shards: str) -> None:
        state.store_openings(dict.fromkeys(shards, self.sample.shard_opening()), {})


@pytest.fixture(scope="module")
def stores() -> Iterator[ContractStores]:
    with clusters() as private, ExitStack() as stack:
        cluster = private.new("contract").start()
        migrate_database(cluster.dsn, "state")
        migrate_database(cluster.dsn, "log")
        yield ContractStores(cluster, stack)


@pytest.fixture(scope="module")
def object_log(tmp_path_factory: pytest.TempPathFactory) -> ContractLog:
    return ContractLog(ObjectLogStore(FolderStore(tmp_path_factory.mktemp("log"))))


@pytest.fixture(scope="module", params=["stores", "object_log"])
def log(request: pytest.FixtureRequest) -> ContractLog:
    found: ContractLog = request.getfixturevalue(request.param)
    return found


class TestLog(LogLaws):
    """In PostgreSQL, and in a folder."""


class TestFolderLog(ObjectLogLaws):
    """In a folder. In a bucket: tests/integration/storage/test_bucket_log.py."""


def lock_when_free(state: PostgresStateStore, shards: tuple[str, ...]) -> dict[str, SeenState]:
    """Lock all of these shards. A rollback closes the connection, and the server releases the locks a moment later."""
    return wait_until(lambda: known if (known := state.lock(shards)).keys() == set(shards) else None, pause_s=0.01)


def test_a_shard_that_another_session_has_locked_is_skipped(stores):
    one, other = stores.state(), stores.state()
    stores.store_openings(one, "a", "b", "c")
    assert one.lock(("a", "b")).keys() == {"a", "b"}
    assert other.lock(("a", "b", "c")).keys() == {"c"}
    one.rollback()
    assert lock_when_free(other, ("a", "b")).keys() == {"a", "b"}


def test_a_lock_ends_with_its_save_and_not_before(stores):
    one, other = stores.state(), stores.state()
    stores.store_openings(one, "d")
    one.lock(("d",))
    offer = stores.next_offer("d", None)
    assert not other.lock(("d",))
    one.save({}, {"d": offer})
    pending = other.lock(("d",))["d"].pending
    assert (pending.tile.hash, pending.table) == (offer.tile.hash, offer.table)


def test_what_was_not_saved_is_discarded(stores):
    one, other = stores.state(), stores.state()
    stores.store_openings(one, "e")
    one.lock(("e",))
    one.rollback()
    assert lock_when_free(other, ("e",))["e"] == SeenState(None, None)


def test_the_state_finds_its_head_again_after_tiles_without_rows(stores):
    one = stores.state()
    stores.store_openings(one, "f")
    heads = []
    for _ in range(3):
        heads.append(check_follows(heads[-1] if heads else None, *stores.next_offer("f", heads[-1] if heads else None)))
    entered = stores.next_offer("f", heads[-1], zones={"g": stores.zone_opening()})
    assert entered.tile.header.kind is TileKind.ZONES
    heads.append(check_follows(heads[-1], *entered))
    one.lock(("f",))
    one.save({"f": heads}, {})
    known = stores.state().lock(("f",))["f"].head
    assert known.tile.hash == heads[-1].tile.hash
    assert known.table.zones == ("f", "g")
    assert np.array_equal(known.leaf_hashes, heads[-1].leaf_hashes)
    assert np.array_equal(known.totals, heads[-1].totals)


def test_a_shard_that_another_session_appends_to_is_skipped(stores):
    (free, head), (taken, other) = stores.chain(2), stores.chain(2)
    with psycopg.connect(stores.cluster.dsn) as holder:
        holder.execute("SELECT FROM public_log.head WHERE shard = %s FOR UPDATE", (taken,))
        stores.append(stores.next_offer(taken, other), stores.next_offer(free, head))
        assert (stores.length(free), stores.length(taken)) == (3, 2)


@pytest.mark.parametrize(("table", "column"), [("tile", "body"), ("claim", "shard"), ("document", "body")])
def test_nothing_in_the_log_can_be_changed_or_deleted(stores, table, column):
    stores.chain(1)
    for change in (f"UPDATE %s SET {column} = {column}", "DELETE FROM %s", "TRUNCATE %s"):  # noqa: S608
        with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
            stores.cluster.execute(change % f"public_log.{table}")


@pytest.mark.parametrize("store", ["state", "log"])
def test_migrating_again_does_nothing_and_a_changed_migration_is_refused(stores, store):
    assert migrate_database(stores.cluster.dsn, store) == []
    query = "UPDATE murmurate.migration SET sha256 = reverse(sha256) WHERE store = %s AND name > '0001_begin.sql'"
    stores.cluster.execute(query, (store,))
    try:
        with pytest.raises(MurmurateError, match="changed"):
            migrate_database(stores.cluster.dsn, store)
    finally:
        stores.cluster.execute(query, (store,))
