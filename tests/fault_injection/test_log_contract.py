"""The contract of the two stores on a real server: locks of the state, and the tiles that the log accepts."""

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
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import TileKind, sign_tile
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening, find_next_tile
from murmurate.publisher.steps import LogTail, Offer, SeenState
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.types import Demand
from tests.fault_injection.sample_zones import FIRST, SIGNER, SampleZones, sample_plan_text, sample_terms
from tests.fault_injection.store_pair import closing_log
from tests.support.postgres_cluster import Cluster, clusters
from tests.support.waiting import wait_until

_OTHER_SIGNER = Ed25519Signer(bytes(32))
_NUMBERS = count()


class ContractStores:
    """Both stores in one cluster, and a tile writer. Shard `quay-7` has the zone `quay-7`."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster, self._stack = cluster, stack
        self.sample = SampleZones(1, ("harbour",))
        self.log: PostgresLogStore = stack.enter_context(closing_log(cluster.dsn))
        plans = {sample_terms().plan_digest: sample_plan_text()}
        self.log.publish_documents(plans)
        self.state().register_plans(plans)

    def state(self) -> PostgresStateStore:
        state = PostgresStateStore(self.cluster.dsn)
        self._stack.callback(state.rollback)
        return state

    def store_openings(self, state: PostgresStateStore, *shards: str) -> None:
        state.store_openings(dict.fromkeys(shards, self.sample.shard_opening()), {})

    def zone_opening(self, first: int = FIRST) -> ZoneOpening:
        return replace(self.sample.zone_opening(), first=first)

    def next_offer(self, shard: str, head: ShardHead | None, first: int = FIRST, **desired: Any) -> Offer:
        """Return the next tile of an honest publisher."""
        terms = {sample_terms().plan_digest: sample_terms()}.get
        writer = TileWriter(terms_for_plan=terms, signers={SIGNER.public_key: SIGNER}, noise=SystemNoise())
        opening: ShardOpening = self.sample.shard_opening()
        desired = {"zones": {shard: self.zone_opening(first)}} | desired
        state = DesiredState(until=10**9, opening=opening, **desired)
        next_tile = find_next_tile(head, state, set(desired["zones"]))
        demand = Demand(
            zones=(shard,),
            energy_wh=np.array([200_000_000]),
            reported=np.array([800]),
            imputed=np.array([0]),
            bounds=({"": 1000},),
        )
        return Offer(writer.write_tiles({shard: next_tile}, demand).written[shard], next_tile.table)

    def append(self, *offers: Offer) -> None:
        self.log.append({offer.tile.header.shard: offer for offer in offers})

    def forge(self, offer: Offer, **changes: Any) -> Offer:
        """Return the tile with another header, signed by the key that it names where this key is available."""
        header = replace(offer.tile.header, **changes)
        signer = _OTHER_SIGNER if header.key == _OTHER_SIGNER.public_key else SIGNER
        return Offer(sign_tile(header, signer, offer.tile.rows), offer.table)

    def chain(self, length: int, first: int = FIRST) -> tuple[str, ShardHead]:
        """Create a shard with `length` tiles in the log. Return its name and its head."""
        shard, head = f"quay-{next(_NUMBERS)}", None
        assert self.log.claim({shard: shard}) == {shard: shard}
        for _ in range(length):
            offer = self.next_offer(shard, head, first)
            head = check_follows(head, *offer)
            self.append(offer)
        assert self.length(shard) == length
        return shard, head

    def length(self, shard: str) -> int:
        return self.log.read({shard: -1})[shard].last_seq + 1

    def check_refused(self, shard: str, *wrong: Offer, right: Offer | None = None) -> None:
        """Offer tiles that the log must not take, and then one that it must take."""
        length = self.length(shard)
        for offer in wrong:
            self.append(offer)
            assert self.length(shard) == length
        if right is not None:
            self.append(right)
            assert self.length(shard) == length + 1


@pytest.fixture(scope="module")
def stores() -> Iterator[ContractStores]:
    with clusters() as private, ExitStack() as stack:
        cluster = private.new("contract").start()
        migrate_database(cluster.dsn, "state")
        migrate_database(cluster.dsn, "log")
        yield ContractStores(cluster, stack)


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


def test_the_log_takes_a_tile_that_follows_and_only_once(stores):
    shard, head = stores.chain(3)
    offer = stores.next_offer(shard, head)
    stores.append(offer)
    stores.append(offer)
    tail: LogTail = stores.log.read({shard: 2})[shard]
    assert (tail.last_seq, tail.last_hash) == (3, offer.tile.hash)
    assert [each.tile.to_bytes() for each in tail.tiles] == [offer.tile.to_bytes()]


@pytest.mark.parametrize(
    "changes",
    [
        {"seq": 2},
        {"seq": 4},
        {"prev": "0" * 64},
        {"interval": FIRST + 1},
        {"interval": FIRST + 3},
        {"table": "f" * 64},
        {"key": _OTHER_SIGNER.public_key},
        {"kind": TileKind.OPEN},
        {"kind": TileKind.ZONES},
        {"kind": TileKind.KEY},
        {"interval_s": 300},
        {"lead": 9},
    ],
    ids=str,
)
def test_the_log_refuses_a_tile_that_does_not_follow(stores, changes):
    shard, head = stores.chain(3)
    offer = stores.next_offer(shard, head)
    stores.check_refused(shard, stores.forge(offer, **changes), right=offer)


def test_the_log_opens_no_shard_twice(stores):
    shard, _ = stores.chain(2)
    stores.check_refused(shard, stores.next_offer(shard, None, FIRST + 5))


def test_the_log_opens_no_zone_under_a_plan_that_is_not_published(stores):
    shard = "unplanned"
    stores.log.claim({shard: shard})
    offer = stores.next_offer(shard, None)
    table = ZoneTable.from_rows(row._replace(plan="f" * 64) for row in offer.table.rows)
    stores.check_refused(shard, Offer(stores.forge(offer, table=table.digest).tile, table), right=offer)


def test_the_log_opens_no_zone_that_another_shard_has_claimed(stores):
    shard, other = "claimed-here", "claimed-there"
    assert stores.log.claim({shard: other}) == {shard: other}
    assert stores.log.claim({shard: shard}) == {shard: other}
    stores.check_refused(shard, stores.next_offer(shard, None))


def test_a_zone_that_no_shard_has_claimed_does_not_enter_beside_one_that_is_claimed(stores):
    shard, head = stores.chain(3)
    claimed, unclaimed = f"claimed-{next(_NUMBERS)}", f"unclaimed-{next(_NUMBERS)}"
    stores.log.claim({claimed: shard})
    both = dict.fromkeys((claimed, unclaimed), stores.zone_opening())
    right = stores.next_offer(shard, head, zones={claimed: stores.zone_opening()})
    stores.check_refused(shard, stores.next_offer(shard, head, zones=both), right=right)


def test_a_zone_of_another_shard_does_not_enter_as_if_it_had_been_there_before(stores):
    (old, _), (new, head) = stores.chain(3), stores.chain(3)
    offer = stores.next_offer(new, head, zones={old: stores.zone_opening()})
    table = ZoneTable.from_rows(row._replace(since=FIRST) for row in offer.table.rows)
    stores.check_refused(new, offer, Offer(stores.forge(offer, table=table.digest).tile, table))


def test_a_zone_is_claimed_once_and_for_ever(stores):
    zone, other = f"claims-{next(_NUMBERS)}", f"claims-{next(_NUMBERS)}"
    assert stores.log.claim({zone: "a"}) == {zone: "a"}
    assert stores.log.claim({zone: "b"}) == {zone: "a"}
    assert stores.log.claim({other: "b", zone: "b"}) == {zone: "a", other: "b"}
    assert stores.log.claim({zone: "a"}) == {zone: "a"}
    assert stores.log.shards_of([zone, other, "nowhere"]) == {zone: "a", other: "b"}


def test_a_table_without_zones_is_refused(stores):
    shard, head = stores.chain(3)
    empty = ZoneTable(())
    spare = f"spare-{next(_NUMBERS)}"
    stores.log.claim({spare: shard})
    offer = stores.next_offer(shard, head, zones={spare: stores.zone_opening()})
    stores.check_refused(shard, Offer(stores.forge(offer, table=empty.digest).tile, empty), right=offer)


def test_the_log_takes_no_interval_before_it_is_over(stores):
    now = int(time.time()) // sample_terms().interval_s
    shard, head = stores.chain(1, first=now + 1)
    stores.check_refused(shard, stores.next_offer(shard, head))


def test_of_two_shards_the_log_takes_the_one_that_follows(stores):
    (good, head), (bad, other) = stores.chain(2), stores.chain(2)
    wrong = stores.forge(stores.next_offer(bad, other), prev="0" * 64)
    stores.append(wrong, stores.next_offer(good, head))
    assert (stores.length(good), stores.length(bad)) == (3, 2)


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
