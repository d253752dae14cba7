"""A zone that moves goes on where it ended, in one shard at a time."""

import pytest
from tests.support.contradictions import convicts
from tests.support.sample_logs import (
    DIGEST,
    FIRST,
    OLD,
    ShardLog,
    check,
    rules,
    zone_row,
)

from murmurate.public_log.make_tile import change_zones
from murmurate.public_log.zone_table import ZoneTable


def moved(zone="hill", state=None, after=DIGEST, waits=0, **more):
    """A zone goes from east to west."""
    east = ShardLog("east").release(times=3)
    start = state or east.state_of(zone)
    east = east.leave(zone, "west").release(times=3)
    west = ShardLog("west", ("mill",)).release(times=3 + waits)
    rows = [*west.table.rows, zone_row(zone, after, FIRST + 3 + waits, start)]
    return east, west.enter(rows).release(times=2, **more)


def both(*logs):
    return [item for each in logs for item in each.items()]


@pytest.mark.parametrize("waits", [0, 2])
def test_a_zone_goes_on_in_another_shard_where_it_ended(waits):
    east, west = moved(waits=waits)
    for report in (check(both(east, west)), check(both(west, east)), check(west.items(), east.items())):
        assert report.findings == []
        assert (report.zones["hill"].records, report.zones["harbour"].records) == (5, 6)
    assert check([*east.lines("hill"), *west.lines("hill")]).is_valid


@pytest.mark.parametrize("begun", [True, False], ids=["open shard", "new shard"])
def test_a_zone_may_move_before_anything_was_released_for_it(begun):
    east = ShardLog("east").change_plan(zones={"harbour"})
    state = east.state_of("hill")
    east = east.leave("hill", "west").release(times=2)
    row = zone_row("hill", DIGEST, FIRST, state)
    west = ShardLog("west", ("mill",)) if begun else ShardLog("west", rows=[row])
    west = west.enter([*west.table.rows, row]).release(times=2) if begun else west.release(times=2)
    for report in (check(both(east, west)), check(both(west, east))):
        assert report.findings == []
    assert check([*east.lines("hill"), *west.lines("hill")]).is_valid


def test_another_start_than_the_end_is_found():
    right = ShardLog("east").release(times=3).state_of("hill")
    for wrong in (
        right._replace(leaf="1" * 64),
        right._replace(total_epsilon_micro=0),
        right._replace(total_rho_micro=1),
        right._replace(interval=FIRST + 1),
    ):
        east, west = moved(state=wrong)
        found = check(both(east, west)).findings
        assert [(each.rule, each.zone, each.shard) for each in found] == [("moved_from", "hill", "west")]
        if wrong.interval == right.interval:
            assert not check([*east.lines("hill"), *west.lines("hill")]).is_valid


def test_a_zone_that_comes_from_nowhere_is_found():
    east, west = moved()
    assert rules(check(west.items())) == {"gap"}
    east, west = moved(state=ShardLog("east").release(times=3).state_of("hill")._replace(shard="south"))
    assert rules(check(both(east, west))) == {"gap"}


def test_a_zone_that_is_handed_to_another_shard_than_the_one_it_enters_is_found():
    east = ShardLog("east").release(times=3)
    left = east.leave("hill", "south").release()
    _, west = moved()
    assert rules(check(both(left, west))) == {"two shards"}


def test_a_zone_in_two_shards_is_a_proof_with_both_lines():
    _, west = moved()
    east = ShardLog("east").release(times=6)
    report = check(both(east, west))
    assert rules(report) == {"two shards"}
    (proof,) = report.proofs
    assert (proof.zone, proof.contradicts) == ("hill", f"interval {FIRST + 3}")
    assert convicts(proof)
    twice = ShardLog("west", ("hill", "mill"), first=FIRST + 2).release()
    report = check(both(east, twice))
    assert rules(report) == {"two shards"}
    assert [convicts(proof) for proof in report.proofs] == [True]
    alone = check([*east.lines("hill"), *twice.lines("hill")])
    assert "two values" in rules(alone)
    assert convicts(alone.proofs[0])


def test_another_key_after_a_move_is_found_in_tiles_and_lines():
    east = ShardLog("east").release(times=3)
    state = east.state_of("hill")
    east = east.leave("hill", "west")
    west = ShardLog("west", ("mill",)).release(times=3).rotate()
    west = west.enter([*west.table.rows, zone_row("hill", DIGEST, FIRST + 3, state)]).release()
    assert rules(check(both(east, west))) == {"key"}
    assert "key" in rules(check([*east.lines("hill"), *west.lines("hill")]))


def test_another_lead_after_a_move_is_found_in_tiles_and_lines():
    east = ShardLog("east").release(times=3)
    state = east.state_of("hill")
    east = east.leave("hill", "west")
    west = ShardLog("west", ("mill",), lead=3).release(times=3)
    west = west.enter([*west.table.rows, zone_row("hill", DIGEST, FIRST + 3, state)]).release()
    assert rules(check(both(east, west))) == {"lead"}
    assert "lead" in rules(check([*east.lines("hill"), *west.lines("hill")]))


def test_a_zone_that_left_without_a_word_is_found():
    kept = ShardLog().release()
    table = ZoneTable.from_rows(kept.table.rows[:2])
    report = check([table.text, *kept.items(), change_zones(kept.head, table, OLD).to_bytes()])
    assert rules(report) == {"zone"}
