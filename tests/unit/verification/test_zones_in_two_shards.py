"""A zone stays in the shard that it was opened in: a second one is found, and two rows for an interval are a proof."""

import pytest
from tests.support.contradictions import convicts
from tests.support.sample_logs import DIGEST, FIRST, NEW, OLD, ShardLog, check, rules, zone_row

from murmurate.public_log.make_tile import change_zones
from murmurate.public_log.zone_table import ZoneTable


def both(*logs):
    return [item for each in logs for item in each.items()]


def entered_later(**more):
    """Another shard that the zone enters with its fourth interval."""
    west = ShardLog("west", ("mill",), **more).release(times=3)
    return west.enter([*west.table.rows, zone_row("hill", DIGEST, FIRST + 3)]).release(times=2)


def test_a_zone_in_two_shards_is_a_proof_with_both_lines():
    east = ShardLog("east").release(times=6)
    for west, interval in (
        (entered_later(), FIRST + 3),
        (ShardLog("west", ("hill", "mill"), first=FIRST + 2).release(), FIRST + 2),
    ):
        for report in (check(both(east, west)), check(both(west, east)), check(west.items(), east.items())):
            assert [(each.rule, each.zone, each.shard) for each in report.findings] == [("two shards", "hill", "west")]
            (proof,) = report.proofs
            assert (proof.zone, proof.contradicts) == ("hill", f"interval {interval}")
            assert convicts(proof)
        alone = check([*east.lines("hill"), *west.lines("hill")])
        assert rules(alone) == {"two shards"}
        assert (alone.proofs, convicts(alone.proofs[0])) == ([proof], True)


def test_the_shard_that_decides_a_zone_first_is_not_named():
    east = ShardLog("east", first=FIRST + 1).release(times=3)
    west = ShardLog("west", ("hill", "mill")).release(times=3)
    report = check(both(east, west))
    assert [(each.rule, each.zone, each.shard) for each in report.findings] == [("two shards", "hill", "east")]


@pytest.mark.parametrize("zones", [None, {"hill"}, {"harbour"}])
def test_a_zone_that_left_off_in_one_shard_cannot_go_on_in_another(zones):
    """No interval is decided twice, and yet no reader could follow the costs of the zone."""
    east, west = ShardLog("east").release(times=3), entered_later()
    report = check(both(east, west), zones=zones)
    assert rules(report) == ({"two shards"} if zones != {"harbour"} else set())
    assert report.proofs == []
    if zones is None:
        assert rules(check([*east.lines("hill"), *west.lines("hill")])) == {"two shards"}


def test_a_second_shard_is_found_where_its_first_tiles_are_missing():
    east, west = ShardLog("east").release(times=6), ShardLog("west", ("hill", "mill")).release(times=3)
    report = check([*east.items(), west.items()[0], *west.items()[2:]])
    assert rules(report) == {"gap", "two shards"}


@pytest.mark.parametrize("more", [{"signer": NEW}, {"lead": 3}, {"lead": 0}])
def test_another_key_or_lead_in_the_second_shard_changes_nothing(more):
    east, west = ShardLog("east").release(times=3), entered_later(**more)
    assert rules(check(both(east, west))) == {"two shards"}
    assert "two shards" in rules(check([*east.lines("hill"), *west.lines("hill")]))


def test_a_zone_that_is_missing_in_a_later_table_is_found():
    kept = ShardLog().release()
    table = ZoneTable.from_rows(kept.table.rows[:2])
    report = check([table.text, *kept.items(), change_zones(kept.head, table, OLD).to_bytes()])
    assert rules(report) == {"zone"}
