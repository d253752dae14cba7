"""The service of a demo as its clients see it, over HTTP on this machine."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from murmurate.service.clock import ServiceClock
from murmurate.service.demo.simulated_town import DEMO_ZONE, SimulatedTown
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext
from murmurate.types import Readings
from murmurate.units import IntArray

_MAX_RESEND_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveService:
    """Where it listens, and what it takes for the time."""

    clock: ServiceClock
    public_port: int
    private_port: int

    @property
    def public_url(self) -> str:
        return f"http://127.0.0.1:{self.public_port}"

    @property
    def private_url(self) -> str:
        return f"http://127.0.0.1:{self.private_port}"

    @property
    def zone_url(self) -> str:
        return f"{self.public_url}/zones/{DEMO_ZONE}"

    def is_ready(self) -> bool:
        """Whether both ports answer that they are ready."""
        try:
            for url in (self.public_url, self.private_url):
                urllib.request.urlopen(f"{url}/readyz", timeout=2).close()  # noqa: S310  http, as above
        except OSError:
            return False
        return True

    def send_readings(self, token: str, start_s: int, energy_wh: IntArray) -> None:
        """Send what each home drew in one interval [Wh, meter], and again while the service asks for that (503)."""
        rows = ({"meter": home, "interval_start": start_s, "energy_wh": int(wh)} for home, wh in enumerate(energy_wh))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        body = "\n".join(map(json.dumps, rows)).encode()
        request = urllib.request.Request(f"{self.private_url}/readings", body, headers)  # noqa: S310
        end_s = time.monotonic() + _MAX_RESEND_S
        while True:
            try:
                urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
            except urllib.error.HTTPError as error:
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > end_s:
                    raise
                time.sleep(1)
            else:
                return

    def current_price(self) -> str:
        """Return the price of this moment, as a person reads it."""
        try:
            with urllib.request.urlopen(f"{self.zone_url}/now", timeout=5) as answer:  # noqa: S310
                document = json.load(answer)
        except urllib.error.HTTPError:
            return "no price yet"
        return f"{document['price']:.5f} {document['currency']}/kWh"

    def measured_releases(self) -> dict[int, dict[str, Any]]:
        """Return the releases in the public log that were made from readings, by interval."""
        with urllib.request.urlopen(f"{self.zone_url}/log.jsonl", timeout=30) as answer:  # noqa: S310
            lines = [json.loads(line) for line in answer]
        rows = {line["tile"]["interval"]: line["row"] for line in lines if line.get("row")}
        return {interval: row for interval, row in rows.items() if row["kind"] == "measured"}


_RELEASE_SLOT_S = 0.01  # who could measure the time of a release is not there yet


def publish_history(
    root: Path, databases: Databases, town: SimulatedTown, *, first_s: int, intervals: int, grace_s: int
) -> Iterator[int]:
    """Let the town live through its first intervals, each released at its deadline by a clock that stands there.

    `root` has the landing, the keys and the meter table. Yields the end of each interval [s of UTC].
    """
    landing = Landing.open(root / "landing")
    context = PublisherContext.from_databases(databases, root / "keys", _RELEASE_SLOT_S)
    ingest_store = IngestStore(databases.state.dsn)
    try:
        for start_s in range(first_s, first_s + intervals * landing.interval_s, landing.interval_s):
            drew = town.simulate_interval()
            append_readings(landing, start_s, Readings(meter=np.arange(len(drew)), energy_wh=drew))
            end_s = start_s + landing.interval_s
            worker = IntervalWorker(
                landing=landing,
                meters=root / "meters.csv",
                context=context,
                ingest_store=ingest_store,
                clock=ServiceClock(simulated_s=end_s + grace_s + 1, wall_s=time.time()),
                grace_s=grace_s,
            )
            worker.run_once()
            yield end_s
    finally:
        context.close()
        ingest_store.close()
