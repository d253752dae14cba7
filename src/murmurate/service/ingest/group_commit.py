"""Group commit: readings of many requests that arrive at the same time are stored together, in few files.

A commit begins at once when none is running. What arrives meanwhile waits, and is the next group. Each request learns
the outcome of its own readings, after they are on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from murmurate.types import Readings

MAX_WAITING_READINGS = 4_000_000  # readings that wait for the commit that is running
MAX_GROUP_READINGS = 2_000_000

# Takes an interval [s of UTC] and readings. Returns True if the interval is still open, so that they will be counted.
AppendReadings = Callable[[int, Readings], bool]


class IngestBusyError(Exception):
    """The queue of readings to store is full. The client must send the batch again later."""


@dataclass(frozen=True, slots=True, eq=False)
class _WaitingReadings:
    start_s: int
    readings: Readings
    stored: Future[bool] = field(default_factory=Future)


class GroupCommit:
    """Stores readings with `append`, which is called by one thread at a time. Any number of threads may submit."""

    def __init__(self, append: AppendReadings, *, max_waiting_readings: int = MAX_WAITING_READINGS) -> None:
        self._append = append
        self._max_waiting_readings = max_waiting_readings
        self._lock = threading.Lock()
        self._waiting: list[_WaitingReadings] = []
        self._waiting_readings = 0
        self._running = False
        self._thread = ThreadPoolExecutor(1, "commit")

    def submit(self, start_s: int, readings: Readings) -> Future[bool]:
        """Have readings of one interval stored. The result, when they are on disk, is that of `append_readings`.

        Raises IngestBusyError if too many readings wait; a submission of any size is taken when none waits.
        """
        item = _WaitingReadings(start_s, readings)
        with self._lock:
            if self._waiting and self._waiting_readings + len(readings) > self._max_waiting_readings:
                raise IngestBusyError
            self._waiting.append(item)
            self._waiting_readings += len(readings)
            if not self._running:
                self._running = True
                self._thread.submit(self._commit_waiting)
        return item.stored

    def _commit_waiting(self) -> None:
        while group := self._take_group():
            by_interval: dict[int, list[_WaitingReadings]] = {}
            for item in group:
                if item.stored.set_running_or_notify_cancel():  # from here on it cannot be cancelled
                    by_interval.setdefault(item.start_s, []).append(item)
            for start_s, items in by_interval.items():
                self._commit_interval(start_s, items)

    def _take_group(self) -> list[_WaitingReadings]:
        """Return the next group, oldest first; empty if nothing is queued."""
        with self._lock:
            count = readings = 0
            for item in self._waiting:
                if count and readings + len(item.readings) > MAX_GROUP_READINGS:
                    break
                count, readings = count + 1, readings + len(item.readings)
            group, self._waiting = self._waiting[:count], self._waiting[count:]
            self._waiting_readings -= readings
            self._running = bool(group)
        return group

    def _commit_interval(self, start_s: int, items: Sequence[_WaitingReadings]) -> None:
        """Store the items together. If that fails, each is tried alone: what fails for one fails for no other."""
        try:
            is_counted = self._append(start_s, _join_readings([item.readings for item in items]))
        except BaseException as error:  # noqa: BLE001  it is raised where the outcome is awaited
            if len(items) == 1:
                items[0].stored.set_exception(error)
                return
            for item in items:
                self._commit_interval(start_s, [item])
        else:
            for item in items:
                item.stored.set_result(is_counted)


def _join_readings(parts: Sequence[Readings]) -> Readings:
    if len(parts) == 1:
        return parts[0]
    return Readings(
        meter=np.concatenate([part.meter for part in parts]),
        energy_wh=np.concatenate([part.energy_wh for part in parts]),
    )
