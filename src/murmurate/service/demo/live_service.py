"""The service of a demo as its clients see it, over HTTP on this machine."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from murmurate.service.clock import ServiceClock
from murmurate.service.demo.demo_zone import DEMO_ZONE
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
