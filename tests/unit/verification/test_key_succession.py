"""A verifier who knows one key accepts the shards that it opened, those that its successors opened, and no others."""

import pytest
from tests.support.sample_logs import NEW, OLD, UNKNOWN_SIGNER, ShardLog, check, resign, rules

ROTATED = ShardLog("east").release().rotate()  # from OLD to NEW
LATER = ShardLog("west", zones=("meadow",), signer=NEW).release()


@pytest.mark.parametrize("items", [lambda log: log.items(), lambda log: log.lines(log.table.zones[0])])
def test_a_shard_that_a_successor_opened_is_accepted_where_the_succession_is_shown(items):
    assert check(items(ROTATED), items(LATER), expected_key=OLD.public_key).is_valid
    assert check(items(LATER), items(ROTATED), expected_key=OLD.public_key).is_valid
    assert check(items(LATER), expected_key=NEW.public_key).is_valid
    assert rules(check(items(LATER), expected_key=OLD.public_key)) == {"key"}
    assert rules(check(items(ROTATED), items(LATER), expected_key=NEW.public_key)) == {
        "key"
    }  # it did not open the first
    assert rules(check(items(ROTATED), items(LATER), expected_key=UNKNOWN_SIGNER.public_key)) == {"key"}


def test_a_key_is_followed_through_several_successors():
    again = ShardLog("north", zones=("mill",), signer=NEW).release().rotate(UNKNOWN_SIGNER)
    last = ShardLog("south", zones=("lane",), signer=UNKNOWN_SIGNER).release()
    logs = [last, again, ROTATED]
    assert check(*(log.items() for log in logs), expected_key=OLD.public_key).is_valid
    assert rules(check(*(log.items() for log in logs[:2]), expected_key=OLD.public_key)) == {"key"}


def test_the_succession_is_learned_from_shards_that_are_not_checked():
    items = [*ROTATED.items(), *LATER.items()]
    assert check(items, expected_key=OLD.public_key, zones=["meadow"]).is_valid
    rotation = resign(ROTATED.tiles[-1], signer=UNKNOWN_SIGNER).to_bytes()  # says that OLD signed it: it did not
    forged = [*(item for item in items if item != ROTATED.tiles[-1].to_bytes()), rotation]
    assert rules(check(forged, expected_key=OLD.public_key, zones=["meadow"])) == {"key"}


def test_who_is_no_successor_cannot_make_itself_one():
    """A tile signed by a stranger names the stranger as the key after itself, or opens a shard that it rotates."""
    strange = ShardLog("north", zones=("mill",), signer=UNKNOWN_SIGNER).release().rotate(OLD)
    report = check(ROTATED.items(), strange.items(), expected_key=OLD.public_key)
    assert [(finding.rule, finding.shard) for finding in report.findings] == [("key", "north")]


def test_a_successor_of_a_stranger_is_a_stranger():
    mine = ShardLog("east").release()
    strange = ShardLog("north", zones=("mill",), signer=UNKNOWN_SIGNER).release().rotate(NEW)
    report = check(mine.items(), strange.items(), LATER.items(), expected_key=OLD.public_key)
    assert {(finding.rule, finding.shard) for finding in report.findings} == {("key", "north"), ("key", "west")}
