"""Readers of both public APIs: a price that was shown never changes, both services show the same, and now is now."""

from __future__ import annotations

import csv
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

import httpx

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from tests.chaos.meters import ZONES
from tests.chaos.oracle import is_price_of_another_time
from tests.support.running_service import RunningService, ServiceOperator

_PAUSE_S = 1.0
_TIMEOUT_S = 10.0


class PublicWatch:
    """A thread that reads the price of now and the history of every zone, and the last prices of every shard."""

    def __init__(self, operator: ServiceOperator, services: list[RunningService], zones: Sequence[str] = ZONES) -> None:
        self._clock, self._services, self._zones = operator.clock, services, zones
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
                    for zone in self._zones:
                        address = service.url(f"/zones/{zone}")
                        with suppress(httpx.HTTPError):
                            self._check_now(zone, web, f"{address}/now")
                            self._compare(zone, web.get(f"{address}/history.csv"))
                    with suppress(httpx.HTTPError):
                        self._compare_shards(web, service)

    def _check_now(self, zone: str, web: httpx.Client, address: str) -> None:
        """A price that is called that of now is: a process whose clock is wrong must say so instead."""
        asked_s = self._clock.now()
        answer = web.get(address)
        answered_s = self._clock.now()
        self.counts[f"now {answer.status_code}"] += 1
        if answer.status_code == 200:
            start_s, end_s = (datetime.fromisoformat(answer.json()[name]).timestamp() for name in ("start", "end"))
            slack_s = (MAX_CLOCK_DIFFERENCE_S + 1.0) * self._clock.speed
            if is_price_of_another_time(start_s, end_s, asked_s, answered_s, slack_s):
                self.changed.append(f"stale: the price of {zone} that is called that of now is of another time")

    def _compare(self, zone: str, answer: httpx.Response) -> None:
        self.counts[f"history {answer.status_code}"] += 1
        if answer.status_code != 200:
            return
        for row in csv.DictReader(answer.text.splitlines()):
            self._compare_price(zone, row["start"], row["price_ticks"], row["kind"])

    def _compare_shards(self, web: httpx.Client, service: RunningService) -> None:
        """The prices of a shard are the same everywhere: they may be kept for ever."""
        listed = web.get(service.url("/shards"))
        for shard in listed.json() if listed.status_code == 200 else []:
            start = datetime.fromtimestamp((shard["interval"] + shard["lead"]) * shard["interval_s"], UTC)
            answer = web.get(service.url(f"/prices/{shard['shard']}/{start:%Y%m%dT%H%M%SZ}.json"))
            self.counts[f"prices of a shard {answer.status_code}"] += 1
            for row in answer.json()["prices"] if answer.status_code == 200 else []:
                ticks = "" if row["price_ticks"] is None else str(row["price_ticks"])
                self._compare_price(row["zone"], answer.json()["start"], ticks, row["kind"])

    def _compare_price(self, zone: str, start: str, ticks: str, kind: str) -> None:
        shown = (ticks, kind)
        if self._seen.setdefault((zone, start), shown) != shown:
            self.changed.append(f"doubled: two prices of {zone} for {start} were shown")

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(60)
