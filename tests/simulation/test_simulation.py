"""The simulator itself: it repeats itself, every fault occurs, and the publisher withstands them all."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest

from tests.simulation.__main__ import play
from tests.simulation.mutation import original, source_of, systematic
from tests.simulation.run import simulate
from tests.simulation.seeded import SEEDED, seeded
from tests.simulation.weather import STEP_RATES

OF_THE_WORLD = (
    "clock jump",
    "demand corrected",
    "demand early or late",
    "demand missing",
    "failover",
    "key rotation told to some",
    "late delivery",
    "plan change told to some",
    "plan of other intervals",
    "rehearsal",
    "split brain",
    "split brain ends",
    "state restored",
    "stranger's line offered",
    "transaction lost with its database",
    "zone poisoned",
)


@pytest.fixture(scope="module")
def tally():
    return play(range(300))


def test_no_seed_sees_a_violation(tally):
    assert tally.failures == []


def test_every_kind_of_fault_occurs(tally):
    assert set(tally.faults) == {*STEP_RATES, *OF_THE_WORLD}


def test_fifty_faults_strike_in_a_run(tally):
    assert tally.faults.total() >= 50 * tally.seeds
    assert tally.published >= 10 * tally.seeds


def test_the_same_seed_tells_the_same_story():
    for seed in (0, 3, 4711):
        first, second = _digest(seed), _digest(seed)
        assert first == second
        assert first != _digest(seed + 1)


def _digest(seed: int) -> str:
    story: list[str] = []
    simulate(seed, story)
    return sha256("\n".join(story).encode()).hexdigest()


def test_every_mutant_differs_from_what_stands_and_has_its_own_name():
    mutants = [*seeded(), *systematic()]
    assert not [name for name, times in Counter(mutant.name for mutant in mutants).items() if times > 1]
    assert len(mutants) > 250
    assert original().source == source_of("publisher")
    assert all(old != new for _, _, old, new in SEEDED)
