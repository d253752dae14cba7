"""What was acknowledged: readings that must be in the landing, and count if their interval is closed."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable


class Acknowledged:
    """Meters by interval. Threads may add at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._meters: dict[int, set[int]] = defaultdict(set)
        self.outcomes: Counter[str] = Counter()  # of sending, for the report
        self.violations: list[str] = []  # of the answers

    def add(self, source: str, interval: int, meters: Iterable[int]) -> None:
        with self._lock:
            self._meters[interval].update(meters)
            self.outcomes[f"{source} acknowledged"] += 1

    def count(self, outcome: str) -> None:
        with self._lock:
            self.outcomes[outcome] += 1

    def meters(self, interval: int) -> frozenset[int]:
        with self._lock:
            return frozenset(self._meters.get(interval, ()))
