"""From zone file to public log: the exact loss never exceeds what plan and page claim; old bugs are found.

A short form; `python -m tests.whole_path` runs 2,000 worlds and hunts every bug.
"""

import pytest

from tests.whole_path.bugs import BUGS
from tests.whole_path.law import run


def test_no_world_makes_more_public_than_its_plan_claims():
    seen, broke = run(120, number=1)
    assert broke is None, broke
    assert seen["changes of plan"] > 5
    assert seen["laplace"] > 50


@pytest.mark.parametrize("bug", ["A6", "B3"])
def test_a_bug_that_was_planted_again_is_found(bug):
    assert bug in BUGS
    _, broke = run(600, number=2, bug=bug)
    assert broke is not None
