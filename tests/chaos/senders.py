"""Send what the meters measure: by HTTP, signed and unsigned, by MQTT in batches and as registers, and as files."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx

from murmurate.service.ingest.ingestor import DUPLICATE_READING
from murmurate.service.landing.layout import interval_name
from tests.chaos.meters import (
    FILES,
    GRACE_INTERVALS,
    HTTP,
    SIGNED,
    STEP_S,
    TrueEnergy,
    http_body,
    json_body,
    parquet_body,
)
from tests.chaos.oracle import is_late_too_early
from tests.support.running_service import HeadEnd, RunningService, ServiceOperator

_POST_TIMEOUT_S = 20.0
_PAUSE_S = 0.3
_SENDING_THREADS = 12


class Acknowledged:
    """Meters by interval whose readings must be in the landing, and count if their interval is closed.

    Threads may add at the same time.
    """

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


class Senders:
    """All sources but MQTT, in threads: a source that waits for a service keeps no other one waiting."""

    def __init__(self, operator: ServiceOperator, truth: TrueEnergy, acknowledged: Acknowledged) -> None:
        self._operator, self._truth, self._acknowledged = operator, truth, acknowledged
        self._head_end = HeadEnd(operator, _POST_TIMEOUT_S)
        self._threads = ThreadPoolExecutor(_SENDING_THREADS, "send")
        self._tasks: list[Future[None]] = []

    def send(self, interval: int) -> None:
        """Begin to send everything that the meters report for an interval that is over."""
        energy, submit = self._truth.energy_wh(interval), self._threads.submit
        http, signed, files = (self._truth.reporting(interval, meters) for meters in (HTTP, SIGNED, FILES))
        self._tasks = [task for task in self._tasks if not task.done() or task.result()]
        self._tasks += [
            submit(self._post, "http", interval, http, *http_body(interval, http, energy)),
            submit(self._post, "signed", interval, signed, json_body(interval, signed, energy), "application/x-ndjson"),
            submit(self._write_file, interval, files, parquet_body(interval, files, energy)),
        ]

    def finish(self) -> None:
        """Wait until everything is acknowledged or too late. Raises what a thread has raised."""
        self._threads.shutdown(wait=True)
        for task in self._tasks:
            task.result()
        self._head_end.close()

    def _post(self, source: str, interval: int, meters: list[int], body: bytes, kind: str) -> None:
        """Send a batch to one service after the other until one acknowledges it, or its interval is closed.

        A service may be ahead, so one that is late is not the end.
        """
        end_s = self._operator.clock.wall_at((interval + 1 + GRACE_INTERVALS) * STEP_S)
        attempt, services = interval, self._operator.services
        while time.time() < end_s:
            service: RunningService = services[attempt % len(services)]
            attempt += 1
            with suppress(httpx.HTTPError):
                answer = self._head_end.post(service, body, kind)
                late = answer.json()["late"] if answer.status_code in {200, 422} else 0
                if is_late_too_early(late, time.time(), end_s):
                    text = f"late: {late} readings of {interval} ({source}) were called late before their deadline"
                    self._acknowledged.violations.append(text)
                if _is_acknowledged(answer, len(meters)):
                    self._acknowledged.add(source, interval, meters)
                    return
            self._acknowledged.count(f"{source} sent again")
            time.sleep(_PAUSE_S)
        self._acknowledged.count(f"{source} not acknowledged")

    def _write_file(self, interval: int, meters: list[int], body: bytes) -> None:
        """Leave a file in the landing, as another program does by docs/reference/landing.md.

        It counts if its interval is not being closed once it is there.
        """
        landing, name = self._operator.folder / "landing", interval_name(interval * STEP_S)
        end_s = self._operator.clock.wall_at((interval + 1 + GRACE_INTERVALS) * STEP_S)
        while time.time() < end_s:
            try:
                _store_file(landing / f"interval={name}" / "shard=0", f"lake-{interval}.parquet", body)
            except OSError:
                self._acknowledged.count("files written again")
                time.sleep(_PAUSE_S)
                continue
            closed = [landing / "_closed" / f"{name}.{suffix}" for suffix in ("closing", "json")]
            if not any(path.exists() for path in closed):
                self._acknowledged.add("files", interval, meters)
            return
        self._acknowledged.count("files not acknowledged")


def _is_acknowledged(answer: httpx.Response, count: int) -> bool:
    """Whether all is stored. A signed reading that was stored before, without a receipt, is refused as repeated."""
    if answer.status_code not in {200, 422}:
        return False
    receipt = answer.json()
    repeated = sum(refusal["reason"] == DUPLICATE_READING for refusal in receipt["refusals"])
    return bool(receipt["accepted"] + repeated == count)


def _store_file(folder: Path, name: str, body: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    with hidden.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(folder / name)
