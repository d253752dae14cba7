"""The HTTP APIs under load: ready prices beside a plain Starlette route, reads after a new price, readings.

    python -m benchmarks.http_load

Needs wrk. Creates two databases on the server and drops them afterwards. Both servers of the first figure are one
process each with the same event loop and parser, and send the same bytes. wrk measures them in turn: how many requests
does each answer in a second of its core? For the second figure every device asks at once, just after a new price, when
no answer is ready, and once more when all are.
"""

from __future__ import annotations

import json
import re
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from tests.support.databases import migrated_databases
from tests.support.request_bodies import readings_parquet

from benchmarks.deep_log import INTERVAL_S, sample_plan
from benchmarks.goals import Goals, read_options
from benchmarks.servers import ServerProcess
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
from murmurate.service.worker.publisher_context import Publisher
from murmurate.units import FloatArray

READ_GOAL, EDGE_GOAL, INGEST_GOAL_S = 0.9, 5.0, 60.0
METERS, BODIES, ROUNDS = 1_000_000, 10, 5
EDGE_ZONES, EDGE_CONNECTIONS, EDGE_PRICES = 200, 500, 10
SHARD, LEAD_INTERVALS, PUBLISHED_BEFORE = "quay", 50, 50
PUBLIC, PRIVATE, PLAIN = 28_080, 28_081, 28_082
RECEIVE_BYTES = 65_536
_PLAIN_APP = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

body = open(sys.argv[1], "rb").read()

async def now(request):
    return Response(body, media_type="application/json")

app = Starlette(routes=[Route("/zones/{zone}/now", now), Route("/readyz", now)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), access_log=False, log_level="error", http="httptools")
"""


class PublishedZones:
    """Zones of one shard, with a publisher that publishes on request."""

    def __init__(self, state_dsn: str, log_dsn: str) -> None:
        document = sample_plan()
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


class WaitingClients:
    """Connections that send their requests at the same moment."""

    def __init__(self, port: int, paths: Sequence[str], connections: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * connections + 100)), hard))
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        for each in self._sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = [
            f"GET {paths[n % len(paths)]} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for n in range(connections)
        ]
        self._index = {each.fileno(): n for n, each in enumerate(self._sockets)}
        self._poll = select.epoll()
        for each in self._sockets:
            self._poll.register(each, select.EPOLLIN)

    def ask(self) -> FloatArray:
        """The time until each connection has its answer [s]. Any status other than 200 ends the benchmark."""
        sent, took = np.zeros(len(self._sockets)), np.zeros(len(self._sockets))
        received = [b""] * len(self._sockets)
        for n, each in enumerate(self._sockets):
            sent[n] = time.perf_counter()
            each.sendall(self._requests[n])
        waiting = len(self._sockets)
        while waiting:
            for file, _ in self._poll.poll(30):
                n = self._index[file]
                received[n] += self._sockets[n].recv(RECEIVE_BYTES)
                if _is_complete(received[n]):
                    took[n] = time.perf_counter() - sent[n]
                    waiting -= 1
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in received), min(received)[:200]
        return took

    def close(self) -> None:
        self._poll.close()
        for each in self._sockets:
            each.close()


def _is_complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return len(body) >= int(length.partition(b":")[2])


def measure_reads(goals: Goals, root: Path, public: ServerProcess) -> None:
    """Compare ready prices with a plain Starlette route, for the same core time."""
    body = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/now", timeout=5).read()
    (root / "body").write_bytes(body)
    (root / "plain.py").write_text(_PLAIN_APP)
    command = [str(root / "plain.py"), str(root / "body"), str(PLAIN)]
    ours, plain = [], []
    with ServerProcess(command, PLAIN, root / "plain-stderr") as plain_server:
        plain_server.await_ready()
        for _ in range(ROUNDS):
            ours.append(_answers_per_core_s(PUBLIC, public))
            plain.append(_answers_per_core_s(PLAIN, plain_server))
    our_rate, plain_rate = float(np.median(ours)), float(np.median(plain))
    goals.print_figure("ready prices in a second of a core", our_rate)
    goals.print_figure("a plain Starlette route, the same", plain_rate)
    goals.print_figure("ready prices / plain Starlette", our_rate / plain_rate, at_least=READ_GOAL)


def _answers_per_core_s(port: int, server: ServerProcess) -> float:
    """Return the answers in a second of the server's core. Any status other than 200 is an error."""
    command = ["wrk", "-t1", "-c32", "-d2s", f"http://127.0.0.1:{port}/zones/harbour/now"]
    before_s = server.core_s()
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    core_s = server.core_s() - before_s
    assert "Non-2xx" not in output, output
    return float(re.findall(r"(\d+) requests in", output)[0]) / core_s


def measure_edge_reads(goals: Goals, zones: PublishedZones) -> None:
    """How much longer do 99 of 100 devices wait at most just after a new price than once answers are ready?

    The median over the prices: a machine that stands still for a second changes nothing.
    """
    stream = urllib.request.urlopen(f"http://127.0.0.1:{PUBLIC}/zones/harbour/stream", timeout=30)

    def await_price() -> None:
        while not stream.readline().startswith(b"data:"):
            pass

    await_price()  # the latest one
    for name in ("now", "evcc"):
        clients = WaitingClients(PUBLIC, [f"/zones/{zone}/{name}" for zone in zones.zones], EDGE_CONNECTIONS)
        clients.ask()
        waits: list[tuple[float, float]] = []
        for _ in range(EDGE_PRICES):
            zones.publish()
            await_price()
            waits.append((float(np.percentile(clients.ask(), 99)), float(np.percentile(clients.ask(), 99))))
        clients.close()
        cold_s, warm_s = np.median(waits, axis=0)
        what = f"{EDGE_CONNECTIONS} reads of {name}"
        goals.print_figure(f"{what} after a new price, p99", 1e3 * cold_s, "ms")
        goals.print_figure(f"{what} after a new price / ready, p99", cold_s / warm_s, at_most=EDGE_GOAL)
    stream.close()


def measure_ingest(goals: Goals, root: Path, state: str) -> None:
    """How long does it take until a million readings of one interval are acknowledged and aggregated?"""
    access = AuthStore(state)
    secret = access.add_client(ApiClient(id="head-end", zones=frozenset({"harbour"})))
    token = access.issue_token(access.authenticate("head-end", secret)).value
    access.close()
    start_s = int(time.time()) // INTERVAL_S * INTERVAL_S - INTERVAL_S
    bodies = [_body(part, start_s) for part in np.array_split(np.random.default_rng(1).permutation(METERS), BODIES)]
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        accepted = sum(pool.map(lambda body: _post(token, body), bodies))
    sent_s = time.perf_counter() - begin
    landing = Landing.open(root / "landing")
    table = pin_table(landing, root / "meters.csv")
    demand = aggregate_landing(landing, table, [close_interval(landing, start_s, table.version)])[start_s]
    took_s = time.perf_counter() - begin
    goals.check("readings accepted and aggregated", f"{accepted:,}", held=accepted == demand.reported.sum() == METERS)
    goals.print_figure("until the last one is acknowledged", sent_s, "s")
    goals.print_figure("until they are aggregated", took_s, "s", at_most=INGEST_GOAL_S)


def _body(meters: np.ndarray, start_s: int) -> bytes:
    return readings_parquet(meters.tolist(), start_s, meters % 600)


def _post(token: str, body: bytes) -> int:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/vnd.apache.parquet"}
    request = urllib.request.Request(f"http://127.0.0.1:{PRIVATE}/readings", body, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return int(json.load(answer)["accepted"])


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals, _ = Goals(), read_options(__doc__)
    assert shutil.which("wrk"), "wrk is needed: apt-get install wrk"
    with migrated_databases() as (state, log), tempfile.TemporaryDirectory() as folder:
        root, zones = Path(folder), PublishedZones(state, log)
        Landing.create(root / "landing")
        rows = (f"{meter},harbour,1000,200" for meter in range(METERS))
        (root / "meters.csv").write_text("\n".join(["meter,zone,bound_wh,imputed_wh", *rows]) + "\n")
        settings = root / "service.toml"
        settings.write_text(f'public = "127.0.0.1:{PUBLIC}"\nprivate = "127.0.0.1:{PRIVATE}"\ngrace_s = 900\n')
        command = ["-m", "murmurate", "serve", str(settings), "--state", state, "--log", log, "--only"]
        with (
            ServerProcess([*command, "public"], PUBLIC, root / "public-stderr") as public,
            ServerProcess([*command, "private"], PRIVATE, root / "private-stderr") as private,
        ):
            public.await_ready()
            private.await_ready()
            measure_reads(goals, root, public)
            measure_edge_reads(goals, zones)
            measure_ingest(goals, root, state)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
