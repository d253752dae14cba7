"""`python -m tests.whole_path` checks many samples and finds all planted bugs; here a few samples, and no search."""

import pytest

from murmurate.planning import plan_change
from tests.whole_path.check_promises import check_samples, check_towns, check_votes, check_worlds
from tests.whole_path.planted_bugs import PLANTED_BUGS, plant_bug


@pytest.mark.parametrize("check", [check_samples, check_worlds, check_votes, check_towns])
def test_the_laws_of_the_whole_path_hold_in_a_few_samples(check):
    seen, broken = check(8, number=1)
    assert broken is None
    assert seen.total() >= 8


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_each_bug_can_be_planted(bug):
    with plant_bug(bug):
        pass


def test_a_bug_that_patches_a_name_that_does_not_exist_is_an_error(monkeypatch):
    monkeypatch.setitem(PLANTED_BUGS, "outdated", lambda plant: plant(plan_change, "no_such_name", None))
    with pytest.raises(AttributeError, match="no_such_name"):
        check_samples(1, number=1, bug="outdated")
