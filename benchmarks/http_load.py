"""The HTTP APIs under load: ready prices beside a plain Starlette route, reads after a new price, readings, streams.

    python -m benchmarks.http_load [--server "host=127.0.0.1 user=postgres"]

Needs wrk. Creates two databases on the server and drops them afterwards. Both servers of the first figure are one
process each with the same event loop and parser, and send the same bytes. wrk measures them in turn: how many requests
does each answer in a second of its core?
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import re
import shutil
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

from benchmarks.cpu_seconds import process_core_s
from benchmarks.edge_reads import WaitingClients, measure_edge
from benchmarks.publisher_bench import databases, sample_plans
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.aggregation.job import aggregate_landing
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.interval_manifest import close_interval
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import pin_table
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher

READ_GOAL, EDGE_GOAL, INGEST_GOAL_S, STREAM_GOAL_S = 0.9, 5.0, 60.0, 2.0
MAX_EDGE_RATIO = 10.0  # times are those of a clock here: a busy machine may miss the goal, but not by this much
METERS, BODIES, STREAM_CLIENTS, PUBLISHED_PRICES, ROUNDS = 1_000_000, 10, 500, 3, 5
EDGE_ZONES, EDGE_CONNECTIONS, EDGE_PRICES = 200, 500, 10
SHARD, LEAD_INTERVALS, PUBLISHED_BEFORE = "quay", 50, 50
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


class PublishedZones:
    """Zones of one shard, with a publisher that publishes on request."""

    def __init__(self, state_dsn: str, log_dsn: str) -> None:
        (document,) = sample_plans(1)
        terms, signer = ReleaseTerms.from_json(document), Ed25519Signer(bytes(32))
        state, log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        state.register_plans({terms.plan_digest: document})
        log.publish_documents({terms.plan_digest: document})
        self.last = int(time.time()) // INTERVAL_S - LEAD_INTERVALS - PUBLISHED_BEFORE
        self.opening = ShardOpening(key=signer.public_key, interval_s=INTERVAL_S, lead=LEAD_INTERVALS)
        zone = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=self.last + 1)
        self.zones = dict.fromkeys(["harbour", *(f"zone-{n:03}" for n in range(1, EDGE_ZONES))], zone)
        state.store_openings({SHARD: self.opening}, dict.fromkeys(self.zones, (SHARD, zone)))
        writer = TileWriter(
            terms_for_plan=state.terms_for_plan, signers={signer.public_key: signer}, noise=SystemNoise()
        )
        self.publisher = Publisher(state=state, log=log, write_tiles=writer.write_tiles, wait_for_slot=lambda: None)
        self.publish(PUBLISHED_BEFORE + 1)  # up to now

    def publish(self, intervals: int = 1) -> None:
        self.last += intervals
        desired = DesiredState(until=self.last, opening=self.opening, zones=self.zones)
        assert self.publisher.publish({SHARD: desired}, timeout_s=60).up_to_date == {SHARD}


@contextmanager
def process(*command: str, port: int) -> Iterator[int]:
    """Run a server while the block lasts. Its process number."""
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
        yield running.pid
    finally:
        running.terminate()
        running.wait(20)


def wrk(port: int, pid: int, seconds: int = 2) -> tuple[float, float]:
    """Return the responses in a second, and in a second of the server's core. Any status other than 200 is an error."""
    command = ["wrk", "-t1", "-c32", f"-d{seconds}s", f"http://127.0.0.1:{port}/zones/harbour/now"]
    before_s = process_core_s(pid)
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    core_s = process_core_s(pid) - before_s
    assert "Non-2xx" not in output, output
    rate, count = (float(re.findall(words, output)[0]) for words in (r"Requests/sec:\s+([\d.]+)", r"(\d+) requests in"))
    return rate, count / core_s


def measure_reads(root: Path, public_pid: int) -> float:
    """Return the rate of ready prices divided by the rate of a plain Starlette route, for the same core time."""
    body = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/now", timeout=5).read()
    (root / "body").write_bytes(body)
    (root / "plain.py").write_text(_PLAIN_APP)
    ours, plain = [], []
    with process(str(root / "plain.py"), str(root / "body"), str(PLAIN), port=PLAIN) as plain_pid:
        for _ in range(ROUNDS):
            ours.append(wrk(PUBLIC, public_pid))
            plain.append(wrk(PLAIN, plain_pid))
    (our_rate, our_core_rate), (plain_rate, plain_core_rate) = np.median(ours, axis=0), np.median(plain, axis=0)
    ratio = float(our_core_rate / plain_core_rate)
    _print_result("ready prices / plain Starlette, in a second of a core", f"{ratio:.2f}", f">= {READ_GOAL}")
    print(f"    {our_core_rate:,.0f} and {plain_core_rate:,.0f}; in a second {our_rate:,.0f} and {plain_rate:,.0f}")
    return ratio


def measure_edge_reads(zones: PublishedZones) -> float:
    """Return how much longer 99 of 100 devices wait at most just after a new price than once answers are ready."""
    stream = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/stream", timeout=30)

    def await_price() -> None:
        while not stream.readline().startswith(b"data:"):
            pass

    def next_price() -> None:
        zones.publish()
        await_price()

    await_price()  # the latest one
    worst = 0.0
    for name in ("now", "evcc"):
        clients = WaitingClients(PUBLIC, [f"/zones/{zone}/{name}" for zone in zones.zones], EDGE_CONNECTIONS)
        cold_s, warm_s = measure_edge(clients, next_price, EDGE_PRICES)
        clients.close()
        worst = max(worst, cold_s / warm_s)
        what = f"{EDGE_CONNECTIONS} reads of {EDGE_ZONES} zones' {name} after a new price / ready"
        held = "" if cold_s <= EDGE_GOAL * warm_s else ", MISSED"
        _print_result(what, f"{cold_s / warm_s:.2f}", f"<= {EDGE_GOAL:.0f}{held}")
        print(f"    99 of 100 within {1e3 * cold_s:.0f} and {1e3 * warm_s:.0f} ms")
    stream.close()
    return worst


def measure_ingest(root: Path, state: str) -> float:
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


async def measure_streams(zones: PublishedZones) -> float:
    """Return the longest time from the log to any of 500 stream clients."""
    lines = [await asyncio.open_connection("127.0.0.1", PUBLIC) for _ in range(STREAM_CLIENTS)]
    for _, writer in lines:
        writer.write(b"GET /zones/harbour/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await asyncio.gather(*(_event(reader) for reader, _ in lines))  # the latest price
    worst = 0.0
    for _ in range(PUBLISHED_PRICES):
        waiting = asyncio.gather(*(_event(reader) for reader, _ in lines))
        await asyncio.to_thread(zones.publish)
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
def service(root: Path, state: str, log: str) -> Iterator[int]:
    """Run the public and the private API as an operator does, each in its own process. The number of the public one."""
    Landing.create(root / "landing")
    rows = (f"{meter},harbour,1000,200" for meter in range(METERS))
    (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
    settings = root / "service.toml"
    settings.write_text(f'public = "127.0.0.1:{PUBLIC}"\nprivate = "127.0.0.1:{PRIVATE}"\ngrace_s = 900\n')
    both = ("--state", state, "--log", log)
    command = ("-m", "murmurate", "serve", str(settings), *both, "--only")
    with process(*command, "public", port=PUBLIC) as public_pid, process(*command, "private", port=PRIVATE):
        yield public_pid


def main() -> None:
    """Print the figures. Fail where one misses its goal, or its limit if it has one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    server = parser.parse_args().server
    assert shutil.which("wrk"), "wrk is needed: apt-get install wrk"
    root = Path(tempfile.mkdtemp())
    try:
        with databases(server) as (state, log):
            zones = PublishedZones(state, log)
            with service(root, state, log) as public_pid:
                ratio, edge_ratio = measure_reads(root, public_pid), measure_edge_reads(zones)
                seconds = measure_ingest(root, state)
                worst = asyncio.run(measure_streams(zones))
    finally:
        shutil.rmtree(root)
    assert ratio >= READ_GOAL, ratio
    assert edge_ratio <= MAX_EDGE_RATIO, edge_ratio
    assert seconds <= INGEST_GOAL_S, seconds
    assert worst <= STREAM_GOAL_S, worst


if __name__ == "__main__":
    main()
