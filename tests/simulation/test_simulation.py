"""The simulator is deterministic, every fault occurs in it, and the publisher breaks no rule."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest

from tests.simulation import seeded_bugs
from tests.simulation.__main__ import run_seeds
from tests.simulation.ast_mutations import PROTOCOL, source_of, systematic_mutants, unmutated
from tests.simulation.fault_schedule import STEP_RATES
from tests.simulation.run import simulate
from tests.simulation.seeded_bugs import SEEDED_BUGS, seeded_mutants

EVENT_FAULTS = (
    "clock jump",
    "demand corrected",
    "demand early or late",
    "demand missing",
    "failover",
    "key rotation reaches some publishers",
    "late delivery",
    "plan change reaches some publishers",
    "plan with other intervals",
    "split brain",
    "split brain ends",
    "state restored",
    "faulty writer",
    "forged tile checked",
    "opening of a zone reaches some publishers",
    "plan unknown",
    "zone opened in two shards",
    "test-only noise",
    "transaction lost with its database",
    "shard corrupted",
)


@pytest.fixture(scope="module")
def tally():
    return run_seeds(range(300))


def test_no_seed_ends_in_a_violation(tally):
    assert tally.failures == []


def test_every_kind_of_fault_occurs(tally):
    assert set(tally.faults) == {*STEP_RATES, *EVENT_FAULTS}


def test_a_run_has_at_least_fifty_faults(tally):
    assert tally.faults.total() >= 50 * tally.seeds
    assert tally.published >= 10 * tally.seeds


def test_the_same_seed_gives_the_same_trace():
    for seed in (0, 3, 4711):
        first, second = _digest(seed), _digest(seed)
        assert first == second
        assert first != _digest(seed + 1)


def _digest(seed: int) -> str:
    trace: list[str] = []
    simulate(seed, trace)
    return sha256("\n".join(trace).encode()).hexdigest()


def test_every_mutant_differs_from_the_source_and_has_its_own_name():
    mutants = [*seeded_mutants(), *systematic_mutants()]
    assert not [name for name, times in Counter(mutant.name for mutant in mutants).items() if times > 1]
    assert len(mutants) > 250
    assert unmutated().source == source_of(PROTOCOL)
    assert all(old != new for _, _, old, new in SEEDED_BUGS)


@pytest.mark.parametrize("text", ["not in the source", "zone"])
def test_a_seeded_bug_whose_text_is_not_found_once_is_an_error(monkeypatch, text):
    monkeypatch.setattr(seeded_bugs, "SEEDED_BUGS", (("outdated", PROTOCOL, text, ""),))
    with pytest.raises(LookupError, match="outdated"):
        list(seeded_mutants())
