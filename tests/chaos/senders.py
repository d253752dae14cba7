"""Send what the meters measure: by HTTP, signed and unsigned, by MQTT in batches and as registers, and as files."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx

from murmurate.service.ingest.ingestor import DUPLICATE_READING
from murmurate.service.landing.layout import interval_name
from tests.chaos.acknowledged import Acknowledged
from tests.chaos.chaos_service import GRACE_INTERVALS, ChaosService, Operator
from tests.chaos.meters import FILES, HTTP, SIGNED, STEP_S, TrueEnergy, http_body, json_body, parquet_body
from tests.chaos.oracle import is_late_too_early

_POST_TIMEOUT_S = 20.0
_PAUSE_S = 0.3
_SENDING_THREADS = 12


class HeadEnd:
    """Sends a batch until one of the services acknowledges it, or its interval is closed."""

    def __init__(self, operator: Operator, services: list[ChaosService], acknowledged: Acknowledged) -> None:
        self._operator, self._services, self._acknowledged = operator, services, acknowledged
        self._web = httpx.Client(timeout=_POST_TIMEOUT_S)
        self._token = ""

    def send(self, source: str, interval: int, meters: range, body: bytes, kind: str) -> None:
        """Send it to one service after the other. A service may be ahead, so one that is late is not the end."""
        end_s = self._operator.clock.wall_at((interval + 1 + GRACE_INTERVALS) * STEP_S)
        attempt = interval
        while time.time() < end_s:
            service = self._services[attempt % len(self._services)]
            attempt += 1
            with suppress(httpx.HTTPError):
                answer = self._post(service, body, kind)
                late = answer.json()["late"] if answer.status_code in {200, 422} else 0
                if is_late_too_early(late, time.time(), end_s):
                    text = f"late: {late} readings of {interval} ({source}) were called late before their deadline"
                    self._acknowledged.violations.append(text)
                if self._is_acknowledged(answer, len(meters)):
                    self._acknowledged.add(source, interval, meters)
                    return
            self._acknowledged.count(f"{source} sent again")
            time.sleep(_PAUSE_S)
        self._acknowledged.count(f"{source} not acknowledged")

    def _post(self, service: ChaosService, body: bytes, kind: str) -> httpx.Response:
        address = f"http://127.0.0.1:{service.private}"
        if not self._token:
            form = {"grant_type": "client_credentials", "client_id": "head-end", "client_secret": self._operator.secret}
            self._token = self._web.post(f"{address}/auth/token", data=form).raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {self._token}", "content-type": kind}
        return self._web.post(f"{address}/readings", content=body, headers=headers)

    def _is_acknowledged(self, answer: httpx.Response, count: int) -> bool:
        """Whether all is stored. A signed reading that was stored before, without a receipt, is refused as repeated."""
        if answer.status_code == 401:
            self._token = ""
        if answer.status_code not in {200, 422}:
            return False
        receipt = answer.json()
        repeated = sum(refusal["reason"] == DUPLICATE_READING for refusal in receipt["refusals"])
        return receipt["accepted"] + repeated == count

    def close(self) -> None:
        self._web.close()


class FileWriter:
    """Another program that leaves files in the landing, as docs/reference/landing.md describes."""

    def __init__(self, operator: Operator, acknowledged: Acknowledged) -> None:
        self._landing = operator.root / "landing"
        self._operator, self._acknowledged = operator, acknowledged

    def send(self, interval: int, body: bytes) -> None:
        """Put a file in place. It counts if its interval is not being closed once it is there."""
        name = interval_name(interval * STEP_S)
        folder = self._landing / f"interval={name}" / "shard=0"
        end_s = self._operator.clock.wall_at((interval + 1 + GRACE_INTERVALS) * STEP_S)
        while time.time() < end_s:
            try:
                _write_file(folder, f"lake-{interval}.parquet", body)
            except OSError:
                self._acknowledged.count("files written again")
                time.sleep(_PAUSE_S)
                continue
            closed = [self._landing / "_closed" / f"{name}.{suffix}" for suffix in ("closing", "json")]
            if not any(path.exists() for path in closed):
                self._acknowledged.add("files", interval, FILES)
            return
        self._acknowledged.count("files not acknowledged")


def _write_file(folder, name: str, body: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    with hidden.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(folder / name)


class Senders:
    """All sources but MQTT, in threads: a source that waits for a service keeps no other one waiting."""

    def __init__(
        self, operator: Operator, services: list[ChaosService], truth: TrueEnergy, acknowledged: Acknowledged
    ) -> None:
        self._truth = truth
        self._head_end = HeadEnd(operator, services, acknowledged)
        self._files = FileWriter(operator, acknowledged)
        self._threads = ThreadPoolExecutor(_SENDING_THREADS, "send")
        self._tasks = []

    def send(self, interval: int) -> None:
        """Begin to send everything that the meters report for an interval that is over."""
        energy, submit = self._truth.energy_wh(interval), self._threads.submit
        signed = json_body(interval, SIGNED, energy)
        self._tasks = [task for task in self._tasks if not task.done() or task.result()]
        self._tasks += [
            submit(self._head_end.send, "http", interval, HTTP, *http_body(interval, energy)),
            submit(self._head_end.send, "signed", interval, SIGNED, signed, "application/x-ndjson"),
            submit(self._files.send, interval, parquet_body(interval, FILES, energy)),
        ]

    def finish(self) -> None:
        """Wait until everything is acknowledged or too late. Raises what a thread has raised."""
        self._threads.shutdown(wait=True)
        for task in self._tasks:
            task.result()
        self._head_end.close()
