"""The doors under load: cached prices beside a bare Starlette route, a million readings, 500 listeners.

    python -m benchmarks.doors [--server "host=127.0.0.1 user=postgres"]

Needs wrk. Makes two databases on the server and drops them again. Both servers of the first figure are one process each
with the same event loop and parser, and send the same bytes; wrk asks them in turns.
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

from benchmarks.publish import databases
from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish
from murmurate.service.access import Access, Client
from murmurate.service.gathering.closing import close
from murmurate.service.gathering.job import gather
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState

READ_GOAL, INTAKE_GOAL_S, TELL_GOAL_S = 0.7, 60.0, 2.0
METERS, BODIES, LISTENERS, PRICES, ROUNDS = 1_000_000, 10, 500, 3, 5
STEP_S = 900
PUBLIC, PRIVATE, BARE = 28_080, 28_081, 28_082
_BARE_APP = """
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


class Zone:
    """One zone and its publisher, by hand: a price is public when we say so."""

    def __init__(self, state: str, log: str) -> None:
        document = make_plan(parse_zone(EXAMPLE)).to_json()
        terms, signer = Terms.of(document), Ed25519Signer(bytes(32))
        self.state, self.log = PostgresState(state), PostgresLog(log)
        self.state.register(terms.plan, document)
        self.log.publish_plan(terms.plan, document)
        now = int(time.time()) // STEP_S
        self.last, self.lead = now - 100, 50
        self.opening = Opening(plan=terms.plan, key=signer.public, first=self.last + 1, lead=self.lead)
        self.state.open({"harbour": self.opening})
        desk = Desk(terms=self.state.terms, signers={signer.public: signer}, noise=SystemNoise())
        self.publisher = Publisher(state=self.state, log=self.log, write=desk.write, wait=lambda: None)
        self.publish(51)  # up to now

    def publish(self, intervals: int = 1) -> None:
        self.last += intervals
        wish = Wish(until=self.last, opening=self.opening)
        assert self.publisher.publish({"harbour": wish}, patience_s=60).done == {"harbour"}


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
    """Answers a second. Any answer that is not 200 ends the benchmark."""
    command = ["wrk", "-t1", "-c32", f"-d{seconds}s", f"http://127.0.0.1:{port}/zones/harbour/now"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert "Non-2xx" not in told, told
    return float(re.search(r"Requests/sec:\s+([\d.]+)", told).group(1))  # type: ignore[union-attr]


def reads(root: Path) -> float:
    """Cached prices a second, as a part of what a bare route does."""
    body = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/now", timeout=5).read()
    (root / "body").write_bytes(body)
    (root / "bare.py").write_text(_BARE_APP)
    ours, bare = [], []
    with process(str(root / "bare.py"), str(root / "body"), str(BARE), port=BARE):
        for _ in range(ROUNDS):
            ours.append(wrk(PUBLIC))
            bare.append(wrk(BARE))
    ratio = statistics.median(ours) / statistics.median(bare)
    _say("cached price reads / bare Starlette", f"{ratio:.2f}", f">= {READ_GOAL}")
    print(f"    {statistics.median(ours):,.0f} against {statistics.median(bare):,.0f} a second, one process each")
    return ratio


def intake(root: Path, state: str, zone: Zone) -> float:
    """Seconds until a million readings of one interval are in, acknowledged and gathered."""
    access = Access(state)
    secret = access.add(Client(id="head-end", zones=frozenset({"harbour"})))
    token = access.grant(access.know("head-end", secret)).token
    access.close()
    start_s = int(time.time()) // STEP_S * STEP_S - STEP_S
    bodies = [_body(part, start_s) for part in np.array_split(np.random.default_rng(1).permutation(METERS), BODIES)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        accepted = sum(pool.map(lambda body: _post(token, body), bodies))
    sent = time.perf_counter() - begin
    assert accepted == METERS, accepted
    landing = Landing.open(root / "landing")
    table = pin(landing, root / "meters.csv")
    demand = gather(landing, table, [close(landing, start_s, table.version)])[0].demand
    took = time.perf_counter() - begin
    assert demand.reported.sum() == METERS
    _say(f"{METERS:,} readings over HTTP Parquet, in and gathered", f"{took:.1f} s", f"<= {INTAKE_GOAL_S:.0f} s")
    print(f"    {sent:.1f} s until the last acknowledgement ({BODIES} bodies, 2 connections), the rest to gather")
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


async def listeners(zone: Zone) -> float:
    """The longest that any of 500 listeners waits for a price, from the moment at which the log has it."""
    lines = [await asyncio.open_connection("127.0.0.1", PUBLIC) for _ in range(LISTENERS)]
    for _, writer in lines:
        writer.write(b"GET /zones/harbour/stream HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await asyncio.gather(*(_event(reader) for reader, _ in lines))  # the last one known
    worst = 0.0
    for _ in range(PRICES):
        waiting = asyncio.gather(*(_event(reader) for reader, _ in lines))
        await asyncio.to_thread(zone.publish)
        begin = time.perf_counter()
        await asyncio.wait_for(waiting, 30)
        worst = max(worst, time.perf_counter() - begin)
    for _, writer in lines:
        writer.close()
    _say(f"{LISTENERS} listeners, the last of them has a price after", f"{worst:.2f} s", f"<= {TELL_GOAL_S:.0f} s")
    return worst


async def _event(reader: asyncio.StreamReader) -> None:
    while not (await reader.readline()).startswith(b"data:"):
        pass


def _say(what: str, figure: str, goal: str) -> None:
    print(f"{what + ':':<60} {figure:>8}  (goal {goal})", flush=True)


@contextmanager
def service(root: Path, state: str, log: str) -> Iterator[None]:
    """The two doors as an operator runs them, each in its process."""
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
    """Print the three figures; fail where one is far beyond its goal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    server = parser.parse_args().server
    assert shutil.which("wrk"), "wrk is needed: apt-get install wrk"
    root = Path(tempfile.mkdtemp())
    try:
        with databases(server) as (state, log):
            zone = Zone(state, log)
            with service(root, state, log):
                ratio, seconds = reads(root), intake(root, state, zone)
                worst = asyncio.run(listeners(zone))
    finally:
        shutil.rmtree(root)
    assert ratio >= READ_GOAL * 0.8, ratio
    assert seconds <= INTAKE_GOAL_S, seconds
    assert worst <= TELL_GOAL_S, worst


if __name__ == "__main__":
    main()
