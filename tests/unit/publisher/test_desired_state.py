"""Desired states: the shard itself shows what is left to do, and what may be done now."""

from dataclasses import replace

import pytest
from tests.support.sample_shards import (
    FIRST,
    NEW_KEY,
    OLD_KEY,
    OPENING,
    THREE_ZONES,
    change_plan,
    digest_of,
    open_shard,
    open_zone,
    release,
    write_tile,
)

from murmurate.errors import ChainError
from murmurate.public_log.tile import TileKind
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.publisher.desired_state import Change, DesiredState, find_next_tile, zones_to_enter

HEAD = open_shard()
OLD, NEW = OLD_KEY.public_key, NEW_KEY.public_key


@pytest.mark.parametrize(
    ("desired", "kind", "interval"),
    [
        (DesiredState(until=FIRST - 1), None, None),
        (DesiredState(until=0), None, None),
        (DesiredState(until=FIRST + 5), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, plan_changes={"harbour": change_plan("a", "b")}), TileKind.ZONES, FIRST - 1),
        (DesiredState(until=FIRST, plan_changes={"harbour": change_plan("c", "b")}), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, plan_changes={"harbour": change_plan("b", "a")}), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, plan_changes={"harbour": change_plan("a", "a")}), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, plan_changes={"quay": change_plan("a", "b")}), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, key_change=Change(OLD, NEW)), TileKind.KEY, FIRST - 1),
        (DesiredState(until=FIRST, key_change=Change(NEW, OLD)), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, key_change=Change(OLD, OLD)), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, zones=THREE_ZONES), TileKind.RELEASE, FIRST),
        (DesiredState(until=FIRST, zones={"quay": open_zone()}), TileKind.ZONES, FIRST - 1),
        (DesiredState(until=FIRST, zones={"quay": open_zone(first=FIRST + 1)}), TileKind.RELEASE, FIRST),
    ],
)
def test_the_shard_shows_what_is_left_to_do(desired, kind, interval):
    tile = find_next_tile(HEAD, desired, {"quay"})
    assert (tile and tile.kind, tile and tile.interval) == (kind, interval)


def test_prices_that_come_too_late_are_withheld():
    for priced_from, withheld in ((FIRST, False), (FIRST + 1, True)):
        tile = find_next_tile(HEAD, DesiredState(until=FIRST, priced_from=priced_from), ())
        assert tile.withheld is withheld


def test_a_shard_that_is_not_open_needs_an_opening_and_a_claimed_zone():
    opening = DesiredState(until=FIRST, opening=OPENING, zones=THREE_ZONES)
    assert find_next_tile(None, DesiredState(until=FIRST, zones=THREE_ZONES), THREE_ZONES) is None
    assert zones_to_enter(None, DesiredState(until=FIRST, zones=THREE_ZONES)) == {}
    assert find_next_tile(None, DesiredState(until=FIRST, opening=OPENING), ()) is None
    assert find_next_tile(None, opening, ()) is None
    assert zones_to_enter(None, opening) == THREE_ZONES
    tile = find_next_tile(None, opening, {"hill", "elsewhere"})
    assert (tile.kind, tile.interval, tile.table.zones) == (TileKind.OPEN, FIRST - 1, ("hill",))


def test_a_zone_of_another_shard_does_not_keep_a_shard_from_opening():
    zones = {"harbour": open_zone(first=FIRST - 5), "hill": open_zone(first=FIRST)}
    desired = DesiredState(until=FIRST, opening=OPENING, zones=zones)
    assert zones_to_enter(None, desired).keys() == {"harbour", "hill"}
    assert find_next_tile(None, desired, zones).table.zones == ("harbour",)
    assert find_next_tile(None, desired, zones).interval == FIRST - 6
    tile = find_next_tile(None, desired, {"hill"})
    assert (tile.interval, tile.table.zones) == (FIRST - 1, ("hill",))


def test_a_zone_enters_when_the_shard_comes_to_its_first_interval():
    desired = DesiredState(until=FIRST + 9, zones={"quay": open_zone(first=FIRST + 2)})
    head = HEAD
    for interval in (FIRST, FIRST + 1):
        assert zones_to_enter(head, desired) == {}
        assert find_next_tile(head, desired, {"quay"}).kind is TileKind.RELEASE
        head = release(head, interval)
    assert zones_to_enter(head, desired).keys() == {"quay"}
    assert write_tile(head, desired).table.find_row("quay").since == FIRST + 2


def test_one_table_opens_zones_and_changes_plans():
    desired = DesiredState(
        until=FIRST,
        zones={"quay": open_zone("c"), "ash": open_zone("b"), "not claimed": open_zone()},
        plan_changes={"mill": change_plan("c", "a"), "hill": change_plan("b", "a")},
    )
    table = find_next_tile(HEAD, desired, {"quay", "ash"}).table
    plans = {"ash": "b", "harbour": "a", "hill": "a", "mill": "a", "quay": "c"}
    assert {row.zone: row.plan for row in table.rows} == {zone: digest_of(plan) for zone, plan in plans.items()}
    assert {row.zone: row.currency for row in table.rows}["mill"] == "EUR"
    assert {row.since for row in table.rows} == {FIRST}
    again = find_next_tile(write_tile(HEAD, replace(desired, zones={})), desired, ())
    assert again.kind is TileKind.RELEASE


def test_no_more_zones_enter_than_there_is_room_for():
    many = {f"zone {number:04}": open_zone() for number in range(MAX_ZONES + 5)}
    desired = DesiredState(until=FIRST, opening=OPENING, zones=many)
    assert list(zones_to_enter(None, desired)) == sorted(many)[:MAX_ZONES]
    assert len(find_next_tile(None, desired, many).table) == MAX_ZONES
    assert list(zones_to_enter(HEAD, desired)) == sorted(many)[: MAX_ZONES - 3]
    assert len(find_next_tile(HEAD, desired, many).table) == MAX_ZONES


def test_a_zone_with_an_impossible_name_is_an_error():
    with pytest.raises(ChainError, match="name"):
        find_next_tile(HEAD, DesiredState(until=FIRST, zones={"": open_zone()}), {""})
