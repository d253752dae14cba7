"""The private port under many anonymous clients: what a head-end with a token sees of it.

    python -m benchmarks.anonymous_ingest           500 connections, 60 s of each kind; about ten minutes
    python -m benchmarks.anonymous_ingest --quick   150 connections, 2.5 s of each kind; about a minute

A real `murmurate serve --only private` with a landing, a table of 200,000 meters and a broker of its own. Another
process sends what needs no credentials, kind by kind, from hundreds of addresses: wrong secrets, readings without a
valid token, requests for health and for the operator's page, heads that never end, messages of unknown meters over the
broker. Meanwhile this process posts readings with a token, from another address. Each acknowledged one must be in the
landing afterwards. Limits of time as in `benchmarks.anonymous_load`. Needs PostgreSQL and mosquitto.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.anonymous_clients import BROKER_KINDS, PRIVATE_KINDS
from benchmarks.load_judge import (
    BASELINE_S,
    BUSY_FACTOR,
    MAX_P99_S,
    MAX_STOP_S,
    REQUEST_ERRORS,
    Judge,
    LoadFigures,
    ServerProcess,
    anonymous_clients,
    await_recovery,
)
from benchmarks.publisher_bench import databases
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.layout import Landing

PORT, BROKER_PORT, HEAD_END_ADDRESS = 28_096, 28_097, "127.0.0.2"
METERS, READINGS_PER_POST, INTERVAL_S, GRACE_S = 200_000, 5, 900, 86_400
POST_PERIOD_S = 0.03


class HeadEnd:
    """A client that posts a reading of each meter once, on a connection that it keeps."""

    def __init__(self, secret: str, server: ServerProcess) -> None:
        self._server, self._next_meter = server, 0
        self._start_s = int(time.time()) // INTERVAL_S * INTERVAL_S - INTERVAL_S
        self._connection = http.client.HTTPConnection("127.0.0.1", PORT, 30, (HEAD_END_ADDRESS, 0))
        self.acknowledged: set[int] = set()
        form = urlencode({"grant_type": "client_credentials", "client_id": "head-end", "client_secret": secret})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        token = json.loads(self._post("/auth/token", form.encode(), headers))["access_token"]
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        try:
            self._connection.request("POST", path, body, headers)
            answer = self._connection.getresponse()
            document = answer.read()
        except REQUEST_ERRORS:
            self._connection.close()
            raise
        if answer.status != 200:
            raise OSError(path, answer.status)
        return document

    def post_readings(self) -> float:
        """Return the seconds until they were acknowledged."""
        meters = range(self._next_meter, self._next_meter + READINGS_PER_POST)
        self._next_meter = meters.stop
        rows = [{"meter": str(meter), "interval_start": self._start_s, "energy_wh": 250} for meter in meters]
        body = "\n".join(json.dumps(row) for row in rows).encode()
        begin = time.perf_counter()
        receipt = json.loads(self._post("/readings", body, self._headers))
        seconds = time.perf_counter() - begin
        assert receipt["accepted"] == READINGS_PER_POST, receipt
        self.acknowledged.update(meters)
        return seconds

    def watch(self, seconds: float) -> LoadFigures:
        """Post for some time."""
        figures, end = LoadFigures(), time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                figures.request_s.append(self.post_readings())
            except REQUEST_ERRORS:
                figures.failures += 1
            figures.peak_bytes = max(figures.peak_bytes, self._server.memory_bytes())
            time.sleep(POST_PERIOD_S)
        return figures


def write_settings(folder: Path) -> Path:
    """A landing, meters and settings of a service."""
    Landing.create(folder / "landing", interval_s=INTERVAL_S)
    columns = {"meter": np.arange(METERS), "zone": ["harbour"] * METERS, "bound_wh": np.full(METERS, 1000)}
    pq.write_table(pa.table(columns), folder / "meters.parquet")
    settings = folder / "service.toml"
    lines = (
        'meters = "meters.parquet"',
        f"grace_s = {GRACE_S}",
        f'private = "127.0.0.1:{PORT}"',
        "[mqtt]",
        f"port = {BROKER_PORT}",
        "notifications = false",
    )
    settings.write_text("\n".join(lines) + "\n")
    return settings


@contextmanager
def broker(folder: Path) -> Iterator[None]:
    """Run a broker that lets everyone publish, the worst case, while the block runs."""
    settings = folder / "mosquitto.conf"
    settings.write_text(f"listener {BROKER_PORT} 127.0.0.1\nallow_anonymous true\nlog_type error\n")
    running = subprocess.Popen(["mosquitto", "-c", str(settings)])  # noqa: S603, S607
    try:
        yield
    finally:
        running.terminate()
        running.wait(60)


def run_kinds(
    head_end: HeadEnd, server: ServerProcess, judge: Judge, connections: int, seconds: float, only: list[str]
) -> None:
    """Each kind of load in turn."""
    base = head_end.watch(BASELINE_S)
    assert not base.failures, base
    limit_s = max(MAX_P99_S, BUSY_FACTOR * base.p99_s)
    print(f"without load: POST p50 {1e3 * base.p50_s:.1f} ms, p99 {1e3 * base.p99_s:.1f} ms")
    for kind in judge.attempts(only or [*PRIVATE_KINDS, *BROKER_KINDS]):
        lines, begin = server.log_lines(), time.monotonic()
        with anonymous_clients(BROKER_PORT if kind in BROKER_KINDS else PORT, kind, connections, seconds + 1) as others:
            figures = head_end.watch(seconds)
            output, _ = others.communicate(timeout=120)
        recovery_s = await_recovery(head_end.post_readings, limit_s)
        print(f"{connections} connections, {kind}: {output.strip()}")
        print(f"  POST: {len(figures.request_s)} sent, p50 {1e3 * figures.p50_s:.1f} ms")
        judge.compare("POST p99", 1e3 * figures.p99_s, 1e3 * limit_s, "ms")
        judge.compare("POSTs that failed", figures.failures, 0, "")
        judge.compare_costs(figures, recovery_s, (server.log_lines() - lines) / (time.monotonic() - begin))


def run_stop(server: ServerProcess, judge: Judge, connections: int) -> None:
    """Stop the server while others send readings that it will not take."""
    with anonymous_clients(PORT, "readings, wrong token", connections, 30.0):
        judge.compare(f"stop under {connections} connections", server.stop(), MAX_STOP_S, "s")


def compare_landing(folder: Path, acknowledged: set[int], judge: Judge) -> None:
    """Every acknowledged reading must be on disk."""
    files = (folder / "landing").glob("interval=*/**/*.parquet")
    landed = {meter for path in files for meter in pq.read_table(path, columns=["meter"])["meter"].to_pylist()}
    print(f"{len(acknowledged):,} readings were acknowledged, {len(landed):,} are in the landing")
    judge.compare("acknowledged and not there", len(acknowledged - landed), 0, "")


def main() -> int:
    """Print the figures. Return 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*PRIVATE_KINDS, *BROKER_KINDS], default=[], help="these alone")
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    connections, seconds = (150, 2.5) if options.quick else (500, 60.0)
    judge = Judge(is_quick=options.quick)
    with databases(options.server) as (state_dsn, log_dsn), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = [str(write_settings(folder)), "--state", state_dsn, "--log", log_dsn, "--only", "private"]
        secret = AuthStore(state_dsn).add_client(ApiClient(id="head-end", zones=frozenset({"harbour"})))
        with broker(folder):
            server = ServerProcess(arguments, folder, PORT)
            try:
                head_end = HeadEnd(secret, server)
                run_kinds(head_end, server, judge, connections, seconds, options.only)
                run_stop(server, judge, connections)
            finally:
                server.stop()
        compare_landing(folder, head_end.acknowledged, judge)
    return judge.exit_status()


if __name__ == "__main__":
    sys.exit(main())
