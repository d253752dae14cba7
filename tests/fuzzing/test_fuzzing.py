"""Cases that were found stay mended, and the search finds bugs that were planted."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.fuzzing.fuzz_target import CASES, check_case
from tests.fuzzing.targets import all_targets

ROOT = Path(__file__).parents[2]
targets = cache(all_targets)


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.bin")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_case_that_was_found_stays_mended(path):
    assert check_case(targets()[path.parent.name.replace("-", " ")], path.read_bytes()) is None


def test_every_seed_is_read():
    found = {name: [check_case(target, seed) for seed in target.seeds] for name, target in targets().items()}
    assert found == {name: [None] * len(target.seeds) for name, target in targets().items()}


def search_planted_targets(*options):
    """The status and the lines of a search in `planted_targets.py`."""
    pytest.importorskip("atheris")
    command = [sys.executable, "-m", "tests.fuzzing", "--targets", "tests.fuzzing.planted_targets", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, [line.strip() for line in done.stdout.splitlines()]


def test_a_planted_bug_is_found_by_its_paths(tmp_path):
    status, lines = search_planted_targets(
        "--only", "rare", "--cases", "300000", "--seconds", "600", "--found", tmp_path
    )
    assert status == 1
    assert any(line.startswith("FOUND rare: ZeroDivisionError at ") for line in lines)
    (case,) = (tmp_path / "rare").iterdir()
    assert case.read_bytes()[1:8:2] == b"RARE"


def test_a_case_that_is_slow_or_large_or_ends_the_process_is_found():
    status, lines = search_planted_targets("--only", "slow", "--only", "large", "--only", "abort", "--seconds", "15")
    assert status == 1
    found = [line for line in lines if line.startswith("FOUND")]
    assert [line.split(":")[0] for line in found] == ["FOUND slow", "FOUND large", "FOUND abort"]
    assert "slow: " in found[0]
    assert "large: " in found[1]
    assert "deadly signal" in found[2]


def test_a_search_that_finds_nothing_ends_with_0_and_prints_its_cases():
    status, lines = search_planted_targets("--only", "right", "--cases", "1000")
    assert status == 0
    assert lines[-2].split() == ["right", "1,000", "0", "0"]
    assert ", 1,000 cases, 0 found, " in lines[-1]
