"""CPU time in units of the machine: a limit holds on a slow processor and beside other busy processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

_STEPS = 400_000


def work_of(act: Callable[[], object]) -> float:
    """CPU time of a call, in units of `unit_s`: of the processes of this machine only this one counts."""
    begin = time.process_time()
    act()
    return (time.process_time() - begin) / unit_s()


@cache
def unit_s() -> float:
    """CPU time [s] of a fixed piece of Python, the least of five; about 0.03 s on the processors of 2026."""
    return min(_loop_s() for _ in range(5))


def _loop_s() -> float:
    begin, total = time.process_time(), 0
    for number in range(_STEPS):
        total += number % 7
    return time.process_time() - begin + 0 * total
