"""A change of plan says of each promise whether it gets stronger or weaker."""

import pytest

from murmurate.planning.plan_change import find_promise_changes
from murmurate.privacy.promise import parse_promise

DAY, WEEK = "any 24 h: epsilon {}, delta 1e-6", "any 7 d: epsilon {}"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ([DAY.format(1)], [DAY.format(0.5)], [("stronger", 95)]),
        ([DAY.format(1)], ["any 1 d: epsilon 2, delta 1e-6"], [("weaker", 0)]),
        ([DAY.format(1)], [DAY.format(1)], [("same", 0)]),
        ([DAY.format(1)], ["any 24 h: epsilon 1, delta 1e-7"], [("dropped", 0), ("new", 0)]),
        ([DAY.format(1), WEEK.format(3)], [WEEK.format(2)], [("dropped", 0), ("stronger", 671)]),
        (["any moment: 1"], ["any moment: 0.5", "interval: 1"], [("stronger", 0), ("new", 0)]),
        (["interval: 1"], ["interval: 2"], [("weaker", 0)]),
    ],
)
def test_each_promise_is_compared_with_the_one_about_the_same_stretch(before, after, found):
    changes = find_promise_changes(*([parse_promise(text, 96) for text in texts] for texts in (before, after)))
    assert [(change.direction.value, change.intervals_to_wait) for change in changes] == found
