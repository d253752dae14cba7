"""A region that is cut off from the log for two intervals; every moment of an append and every answer: .ci/long."""

import re

import pytest
from tests.chaos.region_cut import DRAW_AGAIN, Cut, run_cuts

pytestmark = [pytest.mark.slow, pytest.mark.postgres_programs]


def test_a_region_that_is_cut_off_draws_nothing_again_and_another_that_does_is_found(tmp_path):
    """The commit of the first region arrives after its cut, when it has two services. The second one has the bug."""
    outcome = run_cuts(tmp_path, [Cut("late", "moved"), Cut("request", "waits")], regions=2, bug=DRAW_AGAIN)
    violations = outcome.verdict.violations
    assert violations
    assert all(re.fullmatch("drawn twice: interval [0-9]+ of south", text) for text in violations), violations
    assert outcome.missing >= 4
    assert outcome.in_time == 6
    assert outcome.verdict.counts["measured"]
