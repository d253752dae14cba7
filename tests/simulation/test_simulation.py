"""The simulator is deterministic, and mutants are what they say. `python -m tests.simulation` runs the publisher."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest

from tests.simulation import seeded_bugs
from tests.simulation.ast_mutations import PROTOCOL, source_of, systematic_mutants, unmutated
from tests.simulation.run import simulate
from tests.simulation.seeded_bugs import seeded_mutants


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


@pytest.mark.parametrize("text", ["not in the source", "zone"])
def test_a_seeded_bug_whose_text_is_not_found_once_is_an_error(monkeypatch, text):
    monkeypatch.setattr(seeded_bugs, "SEEDED_BUGS", {PROTOCOL: (("outdated", text, ""),)})
    with pytest.raises(LookupError, match="outdated"):
        list(seeded_mutants())
