"""`python -m tests.whole_path` checks sample zones and looks for planted bugs; here only that each can be planted."""

import pytest

from murmurate.planning import plan_change
from tests.whole_path.check_promises import check_samples
from tests.whole_path.planted_bugs import PLANTED_BUGS


def test_a_bug_that_patches_a_name_that_does_not_exist_is_an_error(monkeypatch):
    monkeypatch.setitem(PLANTED_BUGS, "outdated", lambda plant: plant(plan_change, "no_such_name", None))
    with pytest.raises(AttributeError, match="no_such_name"):
        check_samples(1, number=1, bug="outdated")
