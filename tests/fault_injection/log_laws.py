"""The laws of a public log, for every store that can be one: PostgreSQL, a folder, a bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np
import pytest

from murmurate.errors import ChainError
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.canonical import compute_digest
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.tile import TileKind, sign_tile
from murmurate.public_log.tile_chain import ShardHead, check_follows
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening, find_next_tile
from murmurate.publisher.steps import LogTail, Offer
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.storage.object_log import MAX_OBJECT_BYTES, ObjectLogStore, claim_name, document_name, tile_name
from murmurate.service.storage.object_store import StoredObject
from murmurate.types import Demand
from tests.fault_injection.sample_zones import FIRST, SIGNER, SampleZones, sample_plan_text, sample_terms

_OTHER_SIGNER = Ed25519Signer(bytes(32))
_NUMBERS = count()


class ContractLog:
    """A log, and a tile writer. Shard `quay-7` has the zone `quay-7`."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.objects: Any = getattr(store, "_store", None)
        self.sample = SampleZones(1, ("harbour",))
        store.publish_documents({sample_terms().plan_digest: sample_plan_text()})

    def fresh(self) -> Any:
        """The same log of an object store, opened again."""
        return ObjectLogStore(self.objects)

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
        self.store.append({offer.tile.header.shard: offer for offer in offers})

    def forge(self, offer: Offer, **changes: Any) -> Offer:
        """Return the tile with another header, signed by the key that it names where this key is available."""
        header = replace(offer.tile.header, **changes)
        signer = _OTHER_SIGNER if header.key == _OTHER_SIGNER.public_key else SIGNER
        return Offer(sign_tile(header, signer, offer.tile.rows), offer.table)

    def chain(self, length: int, first: int = FIRST) -> tuple[str, ShardHead]:
        """Create a shard with `length` tiles in the log. Return its name and its head."""
        shard, head = f"quay-{next(_NUMBERS)}", None
        assert self.store.claim({shard: shard}) == {shard: shard}
        for _ in range(length):
            offer = self.next_offer(shard, head, first)
            head = check_follows(head, *offer)
            self.append(offer)
        assert self.length(shard) == length
        return shard, head

    def length(self, shard: str) -> int:
        return self.store.read({shard: -1})[shard].last_seq + 1

    def check_refused(self, shard: str, *wrong: Offer, right: Offer | None = None) -> None:
        """Offer tiles that the log must not take, and then one that it must take."""
        length = self.length(shard)
        for offer in wrong:
            self.append(offer)
            assert self.length(shard) == length
        if right is not None:
            self.append(right)
            assert self.length(shard) == length + 1


class LogLaws:
    """What holds of every log. A fixture `log` of the module that inherits it is a `ContractLog`."""

    def test_the_log_takes_a_tile_that_follows_and_only_once(self, log):
        shard, head = log.chain(3)
        offer = log.next_offer(shard, head)
        log.append(offer)
        log.append(offer)
        tail: LogTail = log.store.read({shard: 2})[shard]
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
    def test_the_log_refuses_a_tile_that_does_not_follow(self, log, changes):
        shard, head = log.chain(3)
        offer = log.next_offer(shard, head)
        log.check_refused(shard, log.forge(offer, **changes), right=offer)

    def test_the_log_opens_no_shard_twice(self, log):
        shard, _ = log.chain(2)
        log.check_refused(shard, log.next_offer(shard, None, FIRST + 5))

    def test_the_log_opens_no_zone_under_a_plan_that_is_not_published(self, log):
        shard = "unplanned"
        log.store.claim({shard: shard})
        offer = log.next_offer(shard, None)
        table = ZoneTable.from_rows(row._replace(plan="f" * 64) for row in offer.table.rows)
        log.check_refused(shard, Offer(log.forge(offer, table=table.digest).tile, table), right=offer)

    def test_the_log_opens_no_zone_that_another_shard_has_claimed(self, log):
        shard, other = "claimed-here", "claimed-there"
        assert log.store.claim({shard: other}) == {shard: other}
        assert log.store.claim({shard: shard}) == {shard: other}
        log.check_refused(shard, log.next_offer(shard, None))

    def test_a_zone_that_no_shard_has_claimed_does_not_enter_beside_one_that_is_claimed(self, log):
        shard, head = log.chain(3)
        claimed, unclaimed = f"claimed-{next(_NUMBERS)}", f"unclaimed-{next(_NUMBERS)}"
        log.store.claim({claimed: shard})
        both = dict.fromkeys((claimed, unclaimed), log.zone_opening())
        right = log.next_offer(shard, head, zones={claimed: log.zone_opening()})
        log.check_refused(shard, log.next_offer(shard, head, zones=both), right=right)

    def test_a_zone_of_another_shard_does_not_enter_as_if_it_had_been_there_before(self, log):
        (old, _), (new, head) = log.chain(3), log.chain(3)
        offer = log.next_offer(new, head, zones={old: log.zone_opening()})
        table = ZoneTable.from_rows(row._replace(since=FIRST) for row in offer.table.rows)
        log.check_refused(new, offer, Offer(log.forge(offer, table=table.digest).tile, table))

    def test_a_zone_is_claimed_once_and_for_ever(self, log):
        zone, other = f"claims-{next(_NUMBERS)}", f"claims-{next(_NUMBERS)}"
        assert log.store.claim({zone: "a"}) == {zone: "a"}
        assert log.store.claim({zone: "b"}) == {zone: "a"}
        assert log.store.claim({other: "b", zone: "b"}) == {zone: "a", other: "b"}
        assert log.store.claim({zone: "a"}) == {zone: "a"}
        assert log.store.shards_of([zone, other, "nowhere"]) == {zone: "a", other: "b"}

    def test_a_table_without_zones_is_refused(self, log):
        shard, head = log.chain(3)
        empty = ZoneTable(())
        spare = f"spare-{next(_NUMBERS)}"
        log.store.claim({spare: shard})
        offer = log.next_offer(shard, head, zones={spare: log.zone_opening()})
        log.check_refused(shard, Offer(log.forge(offer, table=empty.digest).tile, empty), right=offer)

    def test_the_log_takes_no_interval_before_it_is_over(self, log):
        now = int(time.time()) // sample_terms().interval_s
        shard, head = log.chain(1, first=now + 1)
        log.check_refused(shard, log.next_offer(shard, head))

    def test_of_two_shards_the_log_takes_the_one_that_follows(self, log):
        (good, head), (bad, other) = log.chain(2), log.chain(2)
        wrong = log.forge(log.next_offer(bad, other), prev="0" * 64)
        log.append(wrong, log.next_offer(good, head))
        assert (log.length(good), log.length(bad)) == (3, 2)


ODD_NAMES = (
    "a/b", "a%2Fb", "a%2fb", "a b", "a+b", "a\\b", ".", "..", ".a", "a.", "~", "a~b", "-", "ü", "e\u0301", "\u00e9",
    "z" * 200, "ü" * 100, "ü" * 99 + "u", "\u202e", 'q"?x#y&z', "nul\x00", "line\n", "%", "*", "CON", "zone.json",
    "z" * 60 + "~" + sha256(b"z" * 200).hexdigest(),
)  # fmt: skip


class ChangedTimes:
    """An object store that shows other times for some objects."""

    def __init__(self, store: Any, times: dict[str, float]) -> None:
        self._store, self._times = store, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        for each in self._store.list_objects(folder):
            yield each._replace(changed_s=self._times.get(each.name, each.changed_s))


class ObjectLogLaws:
    """What also holds of one in an object store. A fixture `object_log` is a `ContractLog` with such a store."""

    @pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name[:9]) + str(len(name)))
    def test_a_name_of_any_characters_is_claimed_and_opened_and_collides_with_no_other(self, object_log, name):
        assert object_log.store.claim({name: name}) == {name: name}
        others = [each for each in ODD_NAMES if each != name]
        assert all(object_log.fresh().shards_of([each]).get(each, each) == each for each in others)
        offer = object_log.next_offer(name, None, zones={name: object_log.zone_opening()})
        object_log.append(offer)
        assert object_log.length(name) == 1
        assert name in object_log.store.shard_names()
        assert object_log.fresh().read_offer(name, 0).tile.hash == offer.tile.hash

    def test_a_new_reader_finds_the_whole_chain_in_steps(self, object_log):
        shard, head = object_log.chain(40)
        reader, seen = object_log.fresh(), None
        for after in range(-1, 39, 16):
            for offer in reader.read({shard: after})[shard].tiles:
                seen = check_follows(seen, *offer)
        assert seen.tile.hash == head.tile.hash
        assert len([*reader.read_bodies(shard, 9)]) == 30

    def test_a_log_that_lost_tiles_shows_where_it_ends(self, object_log):
        shard, _ = object_log.chain(6)
        for seq in (3, 4, 5):
            object_log.objects.delete(tile_name(shard, seq))
        tail = object_log.fresh().read({shard: 5})[shard]
        assert (tail.last_seq, tail.tiles) == (2, ())
        assert tail.last_hash == object_log.store.read_offer(shard, 2).tile.hash

    def test_readers_refuse_a_tile_that_is_not_the_one_of_its_name(self, object_log):
        shard, _ = object_log.chain(2)
        object_log.objects.create(tile_name("elsewhere", 0), object_log.store.read_body(shard, 0))
        object_log.objects.create(tile_name(shard, 2), object_log.store.read_body(shard, 1))
        assert "as its name says" in object_log.fresh().read({"elsewhere": -1})["elsewhere"].tiles[0]
        assert "as its name says" in object_log.fresh().read({shard: 1})[shard].tiles[0]

    @pytest.mark.parametrize("claimed_by", ["another", None])
    def test_readers_refuse_a_zone_that_is_not_claimed_for_its_shard(self, object_log, claimed_by):
        shard = f"thief-{next(_NUMBERS)}"
        if claimed_by is not None:
            object_log.store.claim({shard: claimed_by})
        offer = object_log.next_offer(shard, None)
        object_log.store.publish_documents({offer.table.digest: offer.table.text})
        object_log.objects.create(tile_name(shard, 0), offer.tile.to_bytes())
        assert f"must be claimed for {shard}" in object_log.fresh().read({shard: -1})[shard].tiles[0]

    def test_readers_refuse_a_plan_that_is_not_in_the_log(self, object_log):
        shard = f"planless-{next(_NUMBERS)}"
        object_log.store.claim({shard: shard})
        offer = object_log.next_offer(shard, None)
        table = ZoneTable.from_rows(row._replace(plan="e" * 64) for row in offer.table.rows)
        object_log.store.publish_documents({table.digest: table.text})
        object_log.objects.create(tile_name(shard, 0), object_log.forge(offer, table=table.digest).tile.to_bytes())
        assert "is not in the log" in object_log.fresh().read({shard: -1})[shard].tiles[0]

    def test_a_claim_and_a_document_that_hold_something_else_are_not_believed(self, object_log):
        zone, text = f"junk-{next(_NUMBERS)}", '{"a":1}'
        digest = compute_digest(text)
        object_log.objects.create(claim_name(zone), b"{}")
        object_log.objects.create(document_name(digest), b"{}")
        assert object_log.store.claim({zone: "a"})[zone] != "a"
        assert object_log.store.documents([digest]) == {}
        with pytest.raises(ChainError, match="another one has its name"):
            object_log.store.publish_documents({digest: text})
        with pytest.raises(ChainError, match="its own digest"):
            object_log.store.publish_documents({"d" * 64: text})
        other = f"other-{next(_NUMBERS)}"
        object_log.store.claim({f"a zone of {other}": "a"})
        object_log.objects.create(claim_name(other), object_log.objects.read(claim_name(f"a zone of {other}")))
        assert object_log.fresh().claim({other: "a"})[other] != "a"
        assert object_log.fresh().shards_of([other])[other] != "a"

    @pytest.mark.parametrize("rubbish", [b"", b"{}\n", b"\xff" * 5000, bytes(MAX_OBJECT_BYTES + 1)], ids=len)
    def test_rubbish_at_the_next_number_stops_its_shard_and_no_other(self, object_log, rubbish):
        (shard, head), (other, after) = object_log.chain(2), object_log.chain(2)
        object_log.objects.create(tile_name(shard, 2), rubbish)
        tails = object_log.fresh().read({shard: 1, other: 1})
        assert [isinstance(offer, str) for offer in tails[shard].tiles] == [True]
        assert (tails[shard].last_seq, tails[other].last_seq) == (2, 1)
        object_log.append(object_log.next_offer(shard, head), object_log.next_offer(other, after))
        assert (object_log.length(shard), object_log.length(other)) == (3, 3)
        assert object_log.objects.read(tile_name(shard, 2)) == rubbish

    def test_one_object_shows_that_an_interval_is_over_and_all_before_it(self, object_log):
        before = len([*object_log.objects.list_objects("over")])
        object_log.chain(9)
        object_log.chain(9)
        store = object_log.fresh()
        shard, head = object_log.chain(2)
        store.append({shard: object_log.next_offer(shard, head)})  # the object of another publisher will do
        assert object_log.length(shard) == 3
        assert len([*object_log.objects.list_objects("over")]) <= before + 1

    def test_an_object_that_was_created_too_early_shows_nothing(self, object_log):
        interval_s = sample_terms().interval_s
        now = int(time.time()) // interval_s
        shard, head = object_log.chain(1, first=now + 1)
        names = [f"over/{interval_s}/{now + 1}/{number}" for number in range(2)]
        for name in names:
            object_log.objects.create(name, b"")
        offer = object_log.next_offer(shard, head)
        for store in (object_log.fresh(), object_log.store, object_log.store, object_log.store):
            store.append({shard: offer})
            assert "not over" in store.refused[shard]
        assert object_log.length(shard) == 1
        assert len([*object_log.objects.list_objects(f"over/{interval_s}/{now + 1}")]) <= 4

    def test_after_an_object_that_was_too_early_another_shows_that_the_interval_is_over(self, object_log):
        shard, head = object_log.chain(2, first=FIRST - 1000)
        offer = object_log.next_offer(shard, head)
        header = offer.tile.header
        early, end_s = f"over/{header.interval_s}/{header.interval}/0", (header.interval + 1) * header.interval_s
        object_log.objects.create(early, b"")
        store = ObjectLogStore(ChangedTimes(object_log.objects, {early: end_s - 0.1}))
        store.append({shard: offer})
        assert not store.refused
        assert object_log.objects.exists(early.replace("/0", "/1"))

    def test_two_publishers_append_in_turn(self, object_log):
        shard, head = object_log.chain(2)
        publishers = object_log.fresh(), object_log.fresh()
        for number in range(6):
            offer = object_log.next_offer(shard, head)
            publishers[number // 2 % 2].append({shard: offer})
            head = check_follows(head, *offer)
        assert object_log.length(shard) == 8

    def test_a_publisher_without_memory_goes_on_after_tiles_without_rows(self, object_log):
        shard, head = object_log.chain(3)
        new = f"new-{next(_NUMBERS)}"
        object_log.store.claim({new: shard})
        entered = object_log.next_offer(shard, head, zones={new: object_log.zone_opening()})
        assert entered.tile.header.kind is TileKind.ZONES
        object_log.append(entered)
        release = object_log.next_offer(shard, check_follows(head, *entered))
        object_log.fresh().append({shard: release})
        assert object_log.length(shard) == 5
        assert object_log.store.heads()[shard] == (4, release.tile.hash)
        assert object_log.store.read_heads([shard, "nowhere"])[shard].tile.hash == release.tile.hash
