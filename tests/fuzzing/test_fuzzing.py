"""Cases that were found stay mended, and the loop finds a bug that lies behind several conditions."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest

from tests.fuzzing.fuzz_loop import MAX_CASE_S, Fuzzer, FuzzTarget, check_case
from tests.fuzzing.targets import all_targets

CASES = sorted((Path(__file__).parent / "cases").rglob("*.bin"))
HERE = str(Path(__file__))
targets = cache(all_targets)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_case_that_was_found_stays_mended(path):
    assert check_case(targets()[path.parent.name.replace("-", " ")], path.read_bytes()) is None


def test_every_seed_is_read():
    found = {name: [check_case(target, seed) for seed in target.seeds] for name, target in targets().items()}
    assert found == {name: [None] * len(target.seeds) for name, target in targets().items()}


def _parse_with_a_rare_bug(data: bytes) -> None:
    """Fails for inputs with four bytes at four places: blind changes need some 10^10 tries."""
    if len(data) < 8:
        raise ValueError("too short")
    if data[1] != ord("R"):
        return
    if data[3] != ord("A"):
        return
    if data[5] != ord("R"):
        return
    if data[7] == ord("E"):
        raise ZeroDivisionError


def rare_bug_target() -> FuzzTarget:
    return FuzzTarget(
        name="rare bug", parse=_parse_with_a_rare_bug, seeds=[b"12345678"], errors=(ValueError,), roots=(HERE,)
    )


def test_a_seeded_bug_is_found_by_its_paths():
    result = Fuzzer(rare_bug_target(), seed=1).run(executions=60_000)
    assert [case.rule for case in result.found.values()] == ["error"]


def test_a_seeded_bug_is_not_found_without_paths():
    assert not Fuzzer(rare_bug_target(), seed=1, guided=False).run(executions=60_000).found


def test_a_slow_case_and_a_large_case_are_found():
    def parse(data: bytes) -> None:
        end = time.process_time() + 1.2 * MAX_CASE_S
        while data == b"slow" and time.process_time() < end:
            pass
        if data == b"large":
            bytearray(200 << 20)[:: 1 << 12] = b"\1" * (200 << 8)

    target = FuzzTarget(name="costly", parse=parse, seeds=[b"slow", b"large", b"cheap"], errors=(), roots=(HERE,))
    result = Fuzzer(target, seed=1).run(executions=3)
    assert sorted(case.rule for case in result.found.values()) == ["memory", "slow"]
