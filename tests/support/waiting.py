"""The one way to wait for something in a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], timeout_s: float = 180.0, pause_s: float = 0.05) -> Value:
    """Return the value of a condition as soon as it is true, or its last value when the time is up.

    A test writes `assert wait_until(condition), report`.
    """
    end = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(pause_s)
    return value
