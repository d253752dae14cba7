"""Readers of both public APIs: a price that was shown never changes, and both services show the same."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from contextlib import suppress

import httpx

from tests.chaos.chaos_service import ChaosService
from tests.chaos.meters import ZONES

_PAUSE_S = 1.0
_TIMEOUT_S = 10.0


class PublicWatch:
    """A thread that reads the history of every zone, of one service after the other."""

    def __init__(self, services: list[ChaosService]) -> None:
        self._services = services
        self._seen: dict[tuple[str, str], tuple[str, str]] = {}  # zone and begin → price and kind
        self.changed: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(timeout=_TIMEOUT_S) as web:
            while not self._stopped.wait(_PAUSE_S):
                for service in self._services:
                    for zone in ZONES:
                        with suppress(httpx.HTTPError):
                            self._compare(zone, web.get(f"http://127.0.0.1:{service.public}/zones/{zone}/history.csv"))

    def _compare(self, zone: str, answer: httpx.Response) -> None:
        self.counts[f"history {answer.status_code}"] += 1
        if answer.status_code != 200:
            return
        for row in csv.DictReader(answer.text.splitlines()):
            shown = (row["price_ticks"], row["kind"])
            if self._seen.setdefault((zone, row["start"]), shown) != shown:
                self.changed.append(f"doubled: two prices of {zone} for {row['start']} were shown")

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
