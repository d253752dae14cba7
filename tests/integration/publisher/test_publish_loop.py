"""The publisher on a real PostgreSQL: it ends, whatever runs beside it or fails, and no publisher waits for another."""

import threading
from dataclasses import replace

from tests.support.postgres_stores import SHARD_OF, SHARDS, ZONES, desired
from tests.support.sample_shards import (
    FIRST,
    KEY_CHANGE,
    NEW_KEY,
    change_plan,
    desire,
    digest_of,
    make_demand,
    next_offer,
    open_zone,
)

from murmurate.public_log.tile import RowKind, TileKind
from murmurate.public_log.tile_chain import check_follows
from murmurate.types import UNPROTECTED_KIND

M, F = RowKind.MEASURED, RowKind.FALLBACK


def test_every_interval_of_every_zone_gets_one_row(stores):
    stores.store_demand(FIRST)
    stores.store_demand(FIRST + 2)
    outcome = stores.publish(FIRST + 3)
    assert (outcome.up_to_date, outcome.unfinished, outcome.blocked) == (set(SHARDS), set(), {})
    assert outcome.blocked_zones == {}
    for shard, zones in SHARDS.items():
        assert stores.tile_kinds(shard) == [TileKind.OPEN, *[TileKind.RELEASE] * 4]
        assert stores.heads(shard)[-1].table.zones == tuple(sorted(zones))
    for zone in ZONES:
        assert stores.row_kinds(zone) == [M, F, M, F]
    before = stores.bodies()
    stores.store_demand(FIRST, 999_999)
    assert stores.publish(FIRST + 3).up_to_date == set(SHARDS)
    assert stores.bodies() == before


def test_a_zone_whose_household_bounds_are_not_known_is_released_as_forecast(stores):
    """Missing facts fail closed, and do not keep other zones of the same shard from their price."""
    drawn = make_demand(**dict.fromkeys(ZONES, 500_000))
    usable = [{"": 1000}, {"mill": 9000}, {"flat": 1000, UNPROTECTED_KIND: 5000}, {"flat": 1}, {"": 1}]
    unusable = [None, {}, {"": 1001}, {"inn": 1}, {"flat": 1001}, {"": 1000, UNPROTECTED_KIND: 5001}]
    said = [bounds for pair in zip(unusable, [*usable, usable[0]], strict=True) for bounds in pair][: len(ZONES)]
    assert len(said) == len(ZONES)
    stores.state.store_demand(FIRST, replace(drawn, bounds=tuple(said)))
    stores.state.store_demand(FIRST + 1, replace(drawn, bounds=None))
    stores.publish(FIRST + 1)
    for number, zone in enumerate(ZONES):
        assert stores.row_kinds(zone) == [M if number % 2 else F, F]


def test_a_corrected_demand_comes_with_its_own_bounds(stores):
    stores.store_demand(FIRST)
    drawn = make_demand(**dict.fromkeys(ZONES, 500_000))
    stores.state.store_demand(FIRST, replace(drawn, bounds=None))
    stores.state.store_demand(FIRST + 1, replace(drawn, bounds=None))
    stores.store_demand(FIRST + 1)
    stores.publish(FIRST + 1)
    for zone in ZONES:
        assert stores.row_kinds(zone) == [F, M]


def test_a_new_plan_and_a_new_key_are_tiles_too(stores):
    shard, (zone, other) = next(iter(SHARDS.items()))
    stores.publish(FIRST)
    changes = {"plan_changes": {zone: change_plan()}, "key_change": KEY_CHANGE}
    for _ in range(2):
        stores.publish(FIRST + 1, **changes)
    kinds = [TileKind.OPEN, TileKind.RELEASE, TileKind.KEY, TileKind.ZONES, TileKind.RELEASE]
    assert stores.tile_kinds(shard) == kinds
    head = stores.heads(shard)[-1]
    assert head.tile.header.key == NEW_KEY.public_key
    rows = {row.zone: (row.plan, row.currency) for row in head.table.rows}
    assert rows == {zone: (digest_of("b"), "CHF"), other: (digest_of("a"), "EUR")}
    assert TileKind.ZONES not in stores.tile_kinds("shard 1")


def test_a_zone_enters_a_shard_that_is_open_and_the_others_go_on(stores):
    """One that begins later enters when its shard comes to its first interval."""
    shard, zones = next(iter(SHARDS.items()))
    stores.publish(FIRST + 1)
    entering = {"now": open_zone(first=FIRST), "later": open_zone("b", first=FIRST + 4)}
    more = {"zones": dict.fromkeys(zones, open_zone()) | entering}
    stores.publisher().publish({shard: desire(FIRST + 1, **more)}, timeout_s=60)
    assert stores.heads(shard)[-1].table.zones == tuple(sorted([*zones, "now"]))
    stores.publisher().publish({shard: desire(FIRST + 5, **more)}, timeout_s=60)
    table = stores.heads(shard)[-1].table
    assert {row.zone: row.since for row in table.rows} == dict.fromkeys(zones, FIRST) | {
        "now": FIRST + 2,
        "later": FIRST + 4,
    }
    assert stores.intervals(shard) == list(range(FIRST, FIRST + 6))
    assert stores.log.shards_of(["now", "later"]) == {"now": shard, "later": shard}


def test_many_publishers_make_one_chain(stores):
    for n in range(4):
        stores.store_demand(FIRST + n)
    crew = [stores.publisher(batch_size=size) for size in (1, 3, 8)]
    threads = [
        threading.Thread(target=each.publish, args=(desired(FIRST + 3),), kwargs={"timeout_s": 60}) for each in crew
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for shard in SHARDS:
        assert stores.intervals(shard) == list(range(FIRST, FIRST + 4))
    for zone in ZONES:
        assert stores.row_kinds(zone) == [M] * 4


def together(jobs):
    """Run each job in a thread of its own, all at once."""
    start = threading.Barrier(len(jobs))

    def run(job):
        start.wait()
        job()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_of_many_tiles_after_one_head_the_log_takes_one(stores):
    """Compare and swap, hammered: eight sessions offer eight different tiles for the same place, two hundred times."""
    zone = ZONES[0]
    shard = SHARD_OF[zone]
    stores.log.claim({zone: shard})
    first = next_offer(None, desire(zones=(zone,)), shard=shard)
    stores.log.append({shard: first})
    head = check_follows(None, *first)
    sessions = [stores.new_log() for _ in range(8)]
    for n in range(200):
        offers = [
            next_offer(head, desire(FIRST + n, (zone,)), make_demand(**{zone: 10**6 * (k + 1)}), shard=shard)
            for k in range(8)
        ]
        assert len({offer.tile.hash for offer in offers}) == 8
        together([lambda s=s, offer=offer: s.append({shard: offer}) for s, offer in zip(sessions, offers, strict=True)])
        last_seq, tiles, last_hash, *_ = stores.log.read({shard: n})[shard]
        assert (last_seq, len(tiles)) == (n + 1, 1)
        (taken,) = (offer for offer in offers if offer.tile.to_bytes() == tiles[0].tile.to_bytes())
        assert taken.tile.hash == last_hash
        head = check_follows(head, *taken)


def test_of_many_claims_of_one_zone_the_log_takes_one(stores):
    """Whatever the order of the zones: nobody waits for another that waits for him."""
    sessions = [stores.new_log() for _ in range(8)]
    for n in range(50):
        zones, answers = [f"contested {n}-{k}" for k in range(20)], []

        def claim(session, number, zones=zones, answers=answers):
            order = reversed(zones) if number % 2 else zones
            answers.append(session.claim(dict.fromkeys(order, f"shard-{number}")))

        together([lambda s=s, k=k, claim=claim: claim(s, k) for k, s in enumerate(sessions)])
        assert len(answers) == 8
        assert all(answer == answers[0] for answer in answers)
        assert set(answers[0]) == set(zones)
        assert stores.log.shards_of(zones) == answers[0]


def test_plans_are_loaded_with_their_shards_so_that_the_first_need_not_wait_for_the_last(stores):
    tiles_before: list[tuple[list[str], int]] = []

    def load_plans(shards):
        tiles_before.append((list(shards), sum(len(stores.bodies()[shard]) for shard in SHARDS)))

    stores.publisher(batch_size=1, load_plans=load_plans).publish(desired(FIRST), timeout_s=20)
    assert [shards for shards, _ in tiles_before[: len(SHARDS)]] == [[shard] for shard in sorted(SHARDS)]
    assert [tiles for _, tiles in tiles_before[: len(SHARDS)]] == [2 * n for n in range(len(SHARDS))]
