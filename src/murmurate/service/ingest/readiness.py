"""Whether readings can be taken: the state and the landing can be written. The public log is not needed for that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

import psycopg

from murmurate.service.storage import durable
from murmurate.service.storage.session import TransactionSource

MIN_CHECK_PERIOD_S = 1.0  # between two checks, however often it is asked
CHECK_TIMEOUT_S = 3.0  # that a request waits for a check
MAX_CHECK_AGE_S = 10.0  # an older result counts for nothing: the disk or the server does not answer
_PROBE_BYTES = 65_536  # a disk with less room cannot take a body


class WriteCheck:
    """Cached test that something can be written. Thread-safe; at most one test runs at a time."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started_s = self._finished_s = -inf  # by the monotonic clock
        self._fault: str | None = None

    def fault(self) -> str | None:
        """Why it cannot be written; None if it can."""
        with self._lock:
            if self.is_recent:
                return self._fault
            is_running = self._thread is not None and self._thread.is_alive()
            if not is_running and time.monotonic() - self._started_s >= MIN_CHECK_PERIOD_S:
                self._started_s = time.monotonic()
                self._thread = threading.Thread(target=self._check, name="ready", daemon=True)
                self._thread.start()
            thread = self._thread
        if thread is not None:
            thread.join(CHECK_TIMEOUT_S)
        if time.monotonic() - self._finished_s > MAX_CHECK_AGE_S:
            return "does not answer"
        return self._fault

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self._finished_s < MIN_CHECK_PERIOD_S

    def _check(self) -> None:
        try:
            self._probe()
        except psycopg.Error:
            self._fault = "the database does not answer, or refuses"  # its own words might name a server
        except OSError as error:
            self._fault = error.strerror or "the disk refuses"  # without the path
        else:
            self._fault = None
        self._finished_s = time.monotonic()


class IngestReadiness:
    """The checks of a process that takes readings."""

    def __init__(self, state: TransactionSource, landing: Path) -> None:
        self._checks = {
            "state": WriteCheck(lambda: _write_state(state)),
            "landing": WriteCheck(lambda: _write_landing(landing)),
        }

    def recent_faults(self) -> Mapping[str, str] | None:
        """As `faults`, without any wait, if everything was checked a moment ago: many may ask."""
        return self.faults() if all(check.is_recent for check in self._checks.values()) else None

    def faults(self) -> Mapping[str, str]:
        """What cannot be written, and why. Nothing: readings can be taken."""
        found = {name: check.fault() for name, check in self._checks.items()}
        return {name: fault for name, fault in found.items() if fault is not None}


def _write_state(state: TransactionSource) -> None:
    """Commit a transaction that has a number, which the server must write, and that may delete tokens."""
    with state.transaction() as connection:
        connection.execute("DELETE FROM access.token WHERE false")
        connection.execute("SELECT txid_current()")


def _write_landing(landing: Path) -> None:
    probe = landing / f".writable-{os.getpid()}"
    try:
        durable.write_file(probe, bytes(_PROBE_BYTES))
    finally:
        probe.unlink(missing_ok=True)
