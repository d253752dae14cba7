"""The HTTP APIs under load: cached prices compared with a plain Starlette route, a million readings, 500 streams.

    python -m benchmarks.http_load [--server "host=127.0.0.1 user=postgres"]

Needs wrk. Creates two databases on the server and drops them afterwards. Both servers of the first figure are one
process each with the same event loop and parser, and send the same bytes. wrk measures them in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.publisher_throughput import databases
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, Opening
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher

READ_GOAL, INGEST_GOAL_S, STREAM_GOAL_S = 0.7, 60.0, 2.0
METERS, BODIES, STREAM_CLIENTS, PUBLISHED_PRICES, ROUNDS = 1_000_000, 10, 500, 3, 5
INTERVAL_S = 900
PUBLIC, PRIVATE, PLAIN = 28_080, 28_081, 28_082
_PLAIN_APP = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

body = open(sys.argv[1], "rb").read()

async def now(request):
    return Response(body, media_type="application/json")

app = Starlette(routes=[Route("/zones/{zone}/now", now)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="error", http="httptools")
"""


class PublishedZone:
    """One zone with a publisher that publishes on request."""

    def __init__(self, state: str, log: str) -> None:
        document = make_plan(parse_zone(EXAMPLE_ZONE_FILE)).to_json()
        terms, signer = ReleaseTerms.from_json(document), Ed25519Signer(bytes(32))
        self.state, self.log = PostgresStateStore(state), PostgresLogStore(log)
        self.state.register_plan(terms.plan_digest, document)
        self.log.publish_plan(terms.plan_digest, document)
        now = int(time.time()) // INTERVAL_S
        self.last, self.lead = now - 100, 50
        self.opening = Opening(plan=terms.plan_digest, key=signer.public_key, first=self.last + 1, lead=self.lead)
        self.state.store_openings({"harbour": self.opening})
        writer = RecordWriter(
            terms_for_plan=self.state.terms_for_plan, signers={signer.public_key: signer}, noise=SystemNoise()
        )
        self.publisher = Publisher(
            state=self.state, log=self.log, write_entries=writer.write_entries, wait_for_slot=lambda: None
        )
        self.publish(51)  # up to now

    def publish(self, intervals: int = 1) -> None:
        self.last += intervals
        desired = DesiredState(until=self.last, opening=self.opening)
        assert self.publisher.publish({"harbour": desired}, timeout_s=60).up_to_date == {"harbour"}


@contextmanager
def process(*command: str, port: int) -> Iterator[None]:
    running = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5):
                    break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        running.terminate()
        running.wait(20)


def wrk(port: int, seconds: int = 2) -> float:
    """Return the responses per second. Any status other than 200 ends the benchmark."""
    command = ["wrk", "-t1", "-c32", f"-d{seconds}s", f"http://127.0.0.1:{port}/zones/harbour/now"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert "Non-2xx" not in output, output
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1))  # type: ignore[union-attr]


def measure_reads(root: Path) -> float:
    """Return the rate of cached prices divided by the rate of a plain Starlette route."""
    body = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/now", timeout=5).read()
    (root / "body").write_bytes(body)
    (root / "plain.py").write_text(_PLAIN_APP)
    ours, plain = [], []
    with process(str(root / "plain.py"), str(root / "body"), str(PLAIN), port=PLAIN):
        for _ in range(ROUNDS):
            ours.append(wrk(PUBLIC))
            plain.append(wrk(PLAIN))
    ratio = statistics.median(ours) / statistics.median(plain)
    _print_result("cached price reads / plain Starlette", f"{ratio:.2f}", f">= {READ_GOAL}")
    print(f"    {statistics.median(ours):,.0f} and {statistics.median(plain):,.0f} per second, one process each")
    return ratio


def measure_ingest(root: Path, state: str, zone: PublishedZone) -> float:
    """Return the seconds until a million readings of one interval are acknowledged and aggregated."""
    access = AuthStore(state)
    secret = access.add_client(ApiClient(id="head-end", zones=frozenset({"harbour"})))
    token = access.issue_token(access.authenticate("head-end", secret)).value
    access.close()
    start_s = int(time.time()) // INTERVAL_S * INTERVAL_S - INTERVAL_S
    bodies = [_body(part, start_s) for part in np.array_split(np.random.default_rng(1).permutation(METERS), BODIES)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        accepted = sum(pool.map(lambda body: _post(token, body), bodies))
    sent = time.perf_counter() - begin
    assert accepted == METERS, accepted
    landing = Landing.open(root / "landing")
    table = pin_table(landing, root / "meters.csv")
    demand = aggregate_landing(landing, table, [close_interval(landing, start_s, table.version)])[0].demand
    took = time.perf_counter() - begin
    assert demand.reported.sum() == METERS
    _print_result(
        f"{METERS:,} readings over HTTP Parquet, ingested and aggregated", f"{took:.1f} s", f"<= {INGEST_GOAL_S:.0f} s"
    )
    print(f"    {sent:.1f} s until the last acknowledgement ({BODIES} bodies, 2 connections), the rest to aggregate")
    del zone
    return took


def _body(meters: np.ndarray, start_s: int) -> bytes:
    start = pa.array(np.full(len(meters), start_s * 10**6), pa.timestamp("us", "UTC"))
    sink = io.BytesIO()
    pq.write_table(pa.table({"meter": meters, "interval_start": start, "energy_wh": meters % 600}), sink)
    return sink.getvalue()


def _post(token: str, body: bytes) -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/vnd.apache.parquet"}
    request = urllib.request.Request(f"http://127.0.0.1:{PRIVATE}/readings", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return int(json.load(answer)["accepted"])


async def measure_streams(zone: PublishedZone) -> float:
    """Return the longest time from the log to any of 500 stream clients."""
    lines = [await asyncio.open_connection("127.0.0.1", PUBLIC) for _ in range(STREAM_CLIENTS)]
    for _, writer in lines:
        writer.write(b"GET /zones/harbour/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await asyncio.gather(*(_event(reader) for reader, _ in lines))  # the latest price
    worst = 0.0
    for _ in range(PUBLISHED_PRICES):
        waiting = asyncio.gather(*(_event(reader) for reader, _ in lines))
        await asyncio.to_thread(zone.publish)
        begin = time.perf_counter()
        await asyncio.wait_for(waiting, 30)
        worst = max(worst, time.perf_counter() - begin)
    for _, writer in lines:
        writer.close()
    _print_result(
        f"{STREAM_CLIENTS} stream clients, the last one gets a price after",
        f"{worst:.2f} s",
        f"<= {STREAM_GOAL_S:.0f} s",
    )
    return worst


async def _event(reader: asyncio.StreamReader) -> None:
    while not (await reader.readline()).startswith(b"data:"):
        pass


def _print_result(what: str, figure: str, goal: str) -> None:
    print(f"{what + ':':<60} {figure:>8}  (goal {goal})", flush=True)


@contextmanager
def service(root: Path, state: str, log: str) -> Iterator[None]:
    """Run the public and the private API as an operator does, each in its own process."""
    Landing.create(root / "landing")
    rows = (f"{meter},harbour,1000,200" for meter in range(METERS))
    (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    settings = root / "service.toml"
    settings.write_text(f'public = "127.0.0.1:{PUBLIC}"\nprivate = "127.0.0.1:{PRIVATE}"\ngrace_s = 900\n')
    both = ("--state", state, "--log", log)
    command = ("-m", "murmurate", "serve", str(settings), *both, "--only")
    with process(*command, "public", port=PUBLIC), process(*command, "private", port=PRIVATE):
        yield


def main() -> None:
    """Print the three figures. Fail where one misses its goal by far."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    server = parser.parse_args().server
    assert shutil.which("wrk"), "wrk is needed: apt-get install wrk"
    root = Path(tempfile.mkdtemp())
    try:
        with databases(server) as (state, log):
            zone = PublishedZone(state, log)
            with service(root, state, log):
                ratio, seconds = measure_reads(root), measure_ingest(root, state, zone)
                worst = asyncio.run(measure_streams(zone))
    finally:
        shutil.rmtree(root)
    assert ratio >= READ_GOAL * 0.8, ratio
    assert seconds <= INGEST_GOAL_S, seconds
    assert worst <= STREAM_GOAL_S, worst


if __name__ == "__main__":
    main()
