"""Parsers with a bug each, which the search must find: behind conditions, slow, large, one that ends the process."""

from __future__ import annotations

import os
import time

from tests.fuzzing.fuzz_target import MAX_CASE_S, FuzzTarget


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


def _parse_slowly(data: bytes) -> None:
    end = time.process_time() + 1.2 * MAX_CASE_S
    while b"slow" in data and time.process_time() < end:
        pass


def _parse_into_much_memory(data: bytes) -> None:
    if b"large" in data:
        bytearray(200 << 20)[:: 1 << 12] = b"\1" * (200 << 8)


def _parse_until_the_process_ends(data: bytes) -> None:
    if b"abort" in data:
        os.abort()


def all_targets() -> dict[str, FuzzTarget]:
    parsers = {
        "rare": (_parse_with_a_rare_bug, [b"12345678"], [b"R", b"A", b"E"]),
        "slow": (_parse_slowly, [b"x"], [b"slow"]),
        "large": (_parse_into_much_memory, [b"x"], [b"large"]),
        "abort": (_parse_until_the_process_ends, [b"x"], [b"abort"]),
        "right": (len, [b"x"], []),
    }
    return {
        name: FuzzTarget(name, parse, seeds, (ValueError,), words) for name, (parse, seeds, words) in parsers.items()
    }
