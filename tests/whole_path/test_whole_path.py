"""From zone file to public log: the exact loss never exceeds the claims of plan and page, and old bugs are found.

This is a short form; `python -m tests.whole_path` checks 2,000 sample zones and looks for every bug.
"""

import pytest

from murmurate.planning import plan_change
from tests.whole_path.check_promises import check_samples
from tests.whole_path.planted_bugs import PLANTED_BUGS


def test_no_sample_zone_loses_more_than_its_plan_claims():
    seen, broken = check_samples(120, number=1)
    assert broken is None, broken
    assert seen["changes of plan"] > 5
    assert seen["laplace"] > 50


@pytest.mark.parametrize("bug", ["A6", "B3"])
def test_a_bug_that_was_planted_again_is_found(bug):
    assert bug in PLANTED_BUGS
    _, broken = check_samples(600, number=2, bug=bug)
    assert broken is not None


def test_a_bug_that_patches_a_name_that_does_not_exist_is_an_error(monkeypatch):
    monkeypatch.setitem(PLANTED_BUGS, "outdated", lambda plant: plant(plan_change, "no_such_name", None))
    with pytest.raises(AttributeError, match="no_such_name"):
        check_samples(1, number=1, bug="outdated")
