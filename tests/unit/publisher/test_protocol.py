"""One round of a publisher, step by step. The faults are in tests/simulation."""

from dataclasses import replace

import pytest
from tests.support.sample_shards import (
    FIRST,
    NEW_KEY,
    OLD_KEY,
    OPENING,
    THREE_ZONES,
    digest_of,
    make_demand,
    make_terms,
    make_writer,
    open_shard,
    open_zone,
    release,
    sample_heads,
)

from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import TileKind, sign_tile
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import BlockedCode, publish_round
from murmurate.publisher.steps import (
    AppendToLog,
    ClaimZones,
    LoadDemand,
    LockShards,
    LogTail,
    Offer,
    ReadLog,
    SaveState,
    SeenState,
    WaitForSlot,
    drive_steps,
)

OPENING_STATE = DesiredState(until=FIRST, opening=OPENING, zones=THREE_ZONES)
HEAD = open_shard()
EMPTY = LogTail(-1, (), "0" * 64)


def tail_of(*heads):
    return LogTail(
        heads[-1].tile.header.seq, tuple(Offer(head.tile, head.table) for head in heads), heads[-1].tile.hash
    )


class OneRound:
    """Both stores for one round, with fixed answers. It keeps the steps."""

    def __init__(self, seen, tails, claims=None):
        self.seen, self.tails, self.claims = seen, tails, claims
        self.steps = []

    def lock(self, shards):
        self.steps.append(LockShards(shards))
        return {shard: self.seen[shard] for shard in shards if shard in self.seen}

    def load_demand(self, intervals):
        self.steps.append(LoadDemand(intervals))
        return make_demand()

    def save(self, new_heads, pending):
        self.steps.append(SaveState(new_heads, pending))

    def rollback(self):
        self.steps.append("rollback")

    def read(self, after_seq):
        self.steps.append(ReadLog(after_seq))
        return {shard: self.tails[shard] for shard in after_seq}

    def claim(self, claims):
        self.steps.append(ClaimZones(claims))
        return claims if self.claims is None else self.claims

    def append(self, offers):
        self.steps.append(AppendToLog(offers))

    def run(self, desired, writer=None):
        machine = publish_round(desired, (writer or make_writer()).write_tiles, verify_signature)
        return drive_steps(machine, self, self, lambda: self.steps.append(WaitForSlot()))

    def step(self, kind):
        return next((step for step in self.steps if isinstance(step, kind)), None)


def test_a_round_that_opens_a_shard_takes_these_steps():
    stores = OneRound({"north": SeenState(None, None)}, {"north": EMPTY})
    outcome = stores.run({"north": OPENING_STATE})
    kinds = [type(step) for step in stores.steps]
    assert kinds == [LockShards, ReadLog, ClaimZones, LoadDemand, SaveState, WaitForSlot, AppendToLog]
    assert stores.step(ReadLog).after_seq == {"north": -1}
    assert stores.step(ClaimZones).claims == dict.fromkeys(THREE_ZONES, "north")
    assert stores.step(LoadDemand).intervals == {}
    assert stores.step(SaveState).pending == stores.step(AppendToLog).offers
    assert (outcome.unfinished, outcome.up_to_date, outcome.blocked) == ({"north"}, set(), {})


def test_a_release_asks_for_the_demand_of_its_zones_and_claims_nothing():
    stores = OneRound({"north": SeenState(HEAD, None)}, {"north": tail_of(HEAD)._replace(tiles=())})
    stores.run({"north": OPENING_STATE})
    assert stores.step(ClaimZones) is None
    assert stores.step(LoadDemand).intervals == {"north": (FIRST, ("harbour", "hill", "mill"))}


def test_a_late_release_asks_for_no_demand():
    stores = OneRound({"north": SeenState(HEAD, None)}, {"north": tail_of(HEAD)._replace(tiles=())})
    stores.run({"north": replace(OPENING_STATE, priced_from=FIRST + 1)})
    assert stores.step(LoadDemand).intervals == {}


def test_a_shard_as_desired_is_up_to_date():
    stores = OneRound({"north": SeenState(HEAD, None)}, {"north": tail_of(HEAD)._replace(tiles=())})
    outcome = stores.run({"north": replace(OPENING_STATE, until=FIRST - 1), "south": OPENING_STATE})
    assert outcome.up_to_date == {"north"}
    assert (outcome.unfinished, outcome.blocked, outcome.blocked_zones) == (set(), {}, {})
    assert stores.step(AppendToLog) is None


def test_a_zone_that_another_shard_holds_is_blocked_and_the_others_go_on():
    claims = dict.fromkeys(THREE_ZONES, "north") | {"hill": "south"}
    stores = OneRound({"north": SeenState(None, None)}, {"north": EMPTY}, claims)
    outcome = stores.run({"north": OPENING_STATE})
    assert stores.step(AppendToLog).offers["north"].table.zones == ("harbour", "mill")
    assert outcome.blocked_zones.keys() == {"hill"}
    assert outcome.blocked_zones["hill"].code is BlockedCode.OTHER_SHARD
    assert "is in shard south: it cannot enter shard north" in outcome.blocked_zones["hill"].text


def test_a_zone_that_two_shards_want_enters_one_of_them_and_is_reported():
    seen = dict.fromkeys(("north", "south"), SeenState(None, None))
    stores = OneRound(seen, dict.fromkeys(seen, EMPTY))
    outcome = stores.run({"north": OPENING_STATE, "south": replace(OPENING_STATE, zones={"hill": open_zone()})})
    tables = {shard: offer.table.zones for shard, offer in stores.step(AppendToLog).offers.items()}
    assert tables == {"north": ("harbour", "mill"), "south": ("hill",)}
    assert outcome.blocked_zones.keys() == {"hill"}


def test_a_shard_with_impossible_zones_is_blocked_and_the_others_go_on():
    seen = {"north": SeenState(HEAD, None), "south": SeenState(None, None)}
    stores = OneRound(seen, {"north": tail_of(HEAD)._replace(tiles=()), "south": EMPTY})
    south = replace(OPENING_STATE, zones={"": open_zone()})
    outcome = stores.run({"south": south, "north": OPENING_STATE})
    assert outcome.blocked.keys() == {"south"}
    assert outcome.blocked["south"].code is BlockedCode.NO_RECORD
    assert stores.step(AppendToLog).offers.keys() == {"north"}


def test_a_zone_without_a_usable_plan_is_blocked_and_reported():
    stores = OneRound({"north": SeenState(HEAD, None)}, {"north": tail_of(HEAD)._replace(tiles=())})
    outcome = stores.run({"north": OPENING_STATE}, make_writer(plans={digest_of("a"): make_terms("a")}))
    assert outcome.blocked_zones.keys() == {"hill", "mill"}
    assert {reason.code for reason in outcome.blocked_zones.values()} == {BlockedCode.NO_RECORD}
    assert stores.step(AppendToLog).offers.keys() == {"north"}


NEXT = release(HEAD, FIRST, harbour=5)


def test_a_pending_tile_is_sent_again_and_no_other_is_written():
    seen = SeenState(HEAD, Offer(NEXT.tile, NEXT.table))
    stores = OneRound({"north": seen}, {"north": tail_of(HEAD)._replace(tiles=())})
    stores.run({"north": replace(OPENING_STATE, zones=THREE_ZONES | {"quay": open_zone()})})
    assert stores.step(ClaimZones) is None
    assert stores.step(SaveState).pending == {}
    assert stores.step(AppendToLog).offers["north"].tile is NEXT.tile


def test_nothing_is_claimed_or_written_while_the_log_holds_more_than_was_read():
    stores = OneRound(
        {"north": SeenState(HEAD, None)}, {"north": LogTail(5, (Offer(NEXT.tile, NEXT.table),), "a" * 64)}
    )
    outcome = stores.run({"north": replace(OPENING_STATE, zones=THREE_ZONES | {"quay": open_zone()})})
    assert stores.step(ClaimZones) is None
    assert stores.step(SaveState).pending == {}
    assert outcome.unfinished == outcome.with_new_tiles == {"north"}


def test_a_pending_tile_whose_place_is_taken_is_dropped():
    other = release(HEAD, FIRST, harbour=6)
    seen = SeenState(HEAD, Offer(NEXT.tile, NEXT.table))
    stores = OneRound({"north": seen}, {"north": tail_of(other)})
    outcome = stores.run({"north": OPENING_STATE})
    assert stores.step(SaveState).pending == {"north": None}
    assert [head.tile.hash for head in stores.step(SaveState).new_heads["north"]] == [other.tile.hash]
    assert outcome.with_new_tiles == outcome.up_to_date == {"north"}


FORGED = Offer(sign_tile(NEXT.tile.header, NEW_KEY, NEXT.tile.rows), NEXT.table)


@pytest.mark.parametrize(
    ("seen", "tail", "code"),
    [
        (SeenState(None, None, "disk"), EMPTY, BlockedCode.STATE_DAMAGED),
        (SeenState(HEAD, None), EMPTY, BlockedCode.LOG_LOST_ENTRIES),
        (SeenState(HEAD, None), LogTail(0, (), "a" * 64), BlockedCode.LOG_CONFLICT),
        (SeenState(HEAD, None), LogTail(1, ("unreadable",), "a" * 64), BlockedCode.LOG_INVALID),
        (SeenState(HEAD, None), LogTail(1, (FORGED,), FORGED.tile.hash), BlockedCode.LOG_INVALID),
        (SeenState(None, None), tail_of(NEXT), BlockedCode.LOG_INVALID),
    ],
)
def test_a_state_and_a_log_that_do_not_fit_block_the_shard(seen, tail, code):
    stores = OneRound({"north": seen}, {"north": tail})
    outcome = stores.run({"north": OPENING_STATE})
    assert outcome.blocked["north"].code is code
    assert stores.step(SaveState) == SaveState({}, {})
    assert stores.step(AppendToLog) is None


CHAIN = sample_heads()
ARCHIVED_SEQ = 7  # the tile that changes the key; two releases follow
AFTER_ARCHIVE = tail_of(*CHAIN[ARCHIVED_SEQ + 1 :])._replace(
    archived_seq=ARCHIVED_SEQ,
    kept=tuple(head.tile for head in CHAIN[: ARCHIVED_SEQ + 1] if head.tile.header.kind is not TileKind.RELEASE),
)


def test_a_new_state_begins_with_the_first_release_after_the_archive():
    stores = OneRound({"north": SeenState(None, None)}, {"north": AFTER_ARCHIVE})
    outcome = stores.run({"north": DesiredState(until=FIRST)})
    new = stores.step(SaveState).new_heads["north"]
    assert [head.tile.hash for head in new] == [head.tile.hash for head in CHAIN[ARCHIVED_SEQ + 1 :]]
    assert new[-1].totals.tolist() == CHAIN[-1].totals.tolist()
    assert outcome.up_to_date == {"north"}


def test_a_state_that_has_seen_the_end_of_the_archive_goes_on_as_before():
    for seq in (ARCHIVED_SEQ, ARCHIVED_SEQ + 1):
        tail = tail_of(*CHAIN[seq + 1 :])._replace(archived_seq=ARCHIVED_SEQ)
        stores = OneRound({"north": SeenState(CHAIN[seq], None)}, {"north": tail})
        assert stores.run({"north": DesiredState(until=FIRST)}).up_to_date == {"north"}


def test_a_state_that_is_older_than_the_archive_needs_an_operator():
    tail = AFTER_ARCHIVE._replace(kept=())
    stores = OneRound({"north": SeenState(CHAIN[ARCHIVED_SEQ - 1], None)}, {"north": tail})
    blocked = stores.run({"north": DesiredState(until=FIRST)}).blocked["north"]
    assert blocked.code is BlockedCode.STATE_DAMAGED
    assert "at tile 6" in blocked.text
    assert f"older than the archive, which ends with tile {ARCHIVED_SEQ}: set up a new state" in blocked.text


def test_the_first_release_is_not_believed_without_the_tiles_before_it():
    stores = OneRound({"north": SeenState(None, None)}, {"north": AFTER_ARCHIVE._replace(kept=())})
    assert stores.run({"north": DesiredState(until=FIRST)}).blocked["north"].code is BlockedCode.LOG_INVALID


def test_the_signature_of_its_own_pending_tile_is_not_checked_again():
    seen = SeenState(HEAD, FORGED)
    stores = OneRound({"north": seen}, {"north": LogTail(1, (FORGED,), FORGED.tile.hash)})
    assert stores.run({"north": OPENING_STATE}).up_to_date == {"north"}


def test_a_missing_key_blocks_its_shard_only():
    heads = {"north": HEAD, "south": open_shard(shard="south", key=NEW_KEY)}
    tails = {shard: tail_of(head)._replace(tiles=()) for shard, head in heads.items()}
    stores = OneRound({shard: SeenState(head, None) for shard, head in heads.items()}, tails)
    writer = replace(make_writer(), signers={NEW_KEY.public_key: NEW_KEY})
    desired = DesiredState(until=FIRST)
    outcome = stores.run({"north": desired, "south": desired}, writer)
    assert outcome.blocked.keys() == {"north"}
    assert OLD_KEY.public_key in outcome.blocked["north"].text
    assert outcome.unfinished == {"south"}
