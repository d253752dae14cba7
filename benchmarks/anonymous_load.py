"""Both ports under many anonymous clients: what one more client sees of them.

    python -m benchmarks.anonymous_load           500 connections, 60 s of each kind; about twenty minutes
    python -m benchmarks.anonymous_load --quick   150 connections, 2.5 s of each kind; about two and a half minutes

Real servers: `murmurate serve --only public` on a log with 200 zones and one zone with a year of prices (31 days in the
quick form), and `murmurate serve --only private` with a landing, a table of 200,000 meters and a broker of its own.
Another process sends what needs no credentials, kind by kind, from hundreds of addresses, as fast as it is answered.
Meanwhile this process reads `/now` of the public port and publishes prices, or posts readings with a token to the
private port; each acknowledged reading must be in the landing afterwards. Every limit of time is that of the text, or a
multiple of the same figure without load in the same run, where the machine is too busy for that; in the quick form
four times that, because a hundred requests are too few for a 99th percentile. Needs PostgreSQL and mosquitto.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.databases import migrated_databases

from benchmarks.anonymous_clients import BROKER_KINDS, LONG_ZONE, PRIVATE_KINDS, PUBLIC_KINDS, TILES, ZONES
from benchmarks.deep_log import INTERVAL_S, DeepLog, sample_plan
from benchmarks.goals import Goals
from benchmarks.servers import ServerProcess
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.service.auth import ApiClient, AuthStore
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.public_log_store import PostgresLogStore

MAX_P99_S, MAX_VISIBLE_S, MAX_MIB, MAX_STOP_S, MAX_RECOVERY_S = 0.25, 2.0, 512.0, 10.0, 10.0
MAX_LOG_LINES_PER_S = 5.0
BUSY_FACTOR = 10.0  # times the figure without load: other work may share the cores
QUICK_FACTOR = 4.0  # on a limit of time
BASELINE_S, PUBLISH_PERIOD_S, TIMEOUT_S = 5.0, 2.0, 120.0
RECOVERED_REQUESTS = 10  # in a row within the limit
REQUEST_ERRORS = (OSError, http.client.HTTPException)
PUBLIC_PORT, PRIVATE_PORT, BROKER_PORT, OWN_ADDRESS = 28_095, 28_096, 28_097, "127.0.0.2"
SHARD, LEAD, RECENT = "quay", 400, 288
METERS, READINGS_PER_POST, GRACE_S = 200_000, 5, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many others there are, for how long, and how much later an answer may come."""

    connections: int
    seconds: float
    time_factor: float


@dataclass(slots=True)
class LoadFigures:
    """What one client saw while others asked for something."""

    request_s: list[float] = field(default_factory=list)
    visible_s: list[float] = field(default_factory=list)  # until each new price was to be seen
    peak_bytes: int = 0
    failures: int = 0

    @property
    def p99_s(self) -> float:
        return float(np.quantile(self.request_s, 0.99, method="higher")) if self.request_s else float("inf")


class Client(ABC):
    """A client that keeps its connection and sends a request every 40 ms."""

    def __init__(self, port: int, server: ServerProcess) -> None:
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", port, 30, (OWN_ADDRESS, 0))

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        try:
            self._connection.request(method, path, body, headers or {})
            answer = self._connection.getresponse()
            document = answer.read()
        except REQUEST_ERRORS:
            self._connection.close()
            raise
        if answer.status != 200:
            raise OSError(path, answer.status)
        return document

    @abstractmethod
    def send(self) -> float:
        """Return the seconds until the answer."""

    def note_news(self, figures: LoadFigures) -> bool:
        """Do what else the client does between requests. Return whether something is still awaited."""
        del figures
        return False

    def watch(self, seconds: float) -> LoadFigures:
        """Send requests for some time, and until what is awaited has come."""
        figures, end, awaits = LoadFigures(), time.monotonic() + seconds, False
        while time.monotonic() < end + (TIMEOUT_S if awaits else 0.0):
            try:
                figures.request_s.append(self.send())
                awaits = self.note_news(figures)
            except REQUEST_ERRORS:
                figures.failures += 1
            figures.peak_bytes = max(figures.peak_bytes, self._server.memory_bytes())
            time.sleep(0.04)
        figures.failures += awaits
        return figures

    def await_recovery(self, limit_s: float) -> float:
        """Return the seconds until requests take no longer than the limit again."""
        begin, in_row, recovered_s = time.monotonic(), 0, TIMEOUT_S
        while in_row < RECOVERED_REQUESTS and time.monotonic() - begin < TIMEOUT_S:
            try:
                in_row = in_row + 1 if self.send() <= limit_s else 0
            except REQUEST_ERRORS:
                in_row = 0
            if in_row == 1:
                recovered_s = time.monotonic() - begin
        return recovered_s if in_row else TIMEOUT_S


class LoadedLog:
    """A log with many zones and a long one, which grows on request."""

    def __init__(self, log_dsn: str, long_intervals: int) -> None:
        document = sample_plan()
        digest = ReleaseTerms.from_json(document).plan_digest
        self._log, signer = PostgresLogStore(log_dsn), Ed25519Signer.generate()
        self._log.publish_documents({digest: document})
        now = int(time.time()) // INTERVAL_S
        names = {SHARD: [f"zone-{n:03d}" for n in range(ZONES)], LONG_ZONE: [LONG_ZONE]}
        firsts = {SHARD: now - LEAD - RECENT, LONG_ZONE: now - long_intervals}
        self.long_s = (firsts[LONG_ZONE] + 2) * INTERVAL_S, now * INTERVAL_S
        for shard, zones in names.items():
            self._log.claim(dict.fromkeys(zones, shard))
            table = ZoneTable.from_rows(ZoneRow(zone, digest, "EUR", "1/100000", firsts[shard]) for zone in zones)
            lead = 2 if shard == LONG_ZONE else LEAD
            deep = DeepLog({shard: table}, first=firsts[shard], interval_s=INTERVAL_S, lead=lead, signer=signer)
            deep.fill(log_dsn, None, long_intervals if shard == LONG_ZONE else RECENT + 2)
            if shard == SHARD:
                self._deep = deep

    def publish(self) -> int:
        """Publish one more price of each zone but the long one. Return the number of its tile."""
        offers = self._deep.next_offers()
        self._log.append(offers)
        return offers[SHARD].tile.header.seq

    def close(self) -> None:
        self._log.close()


class PriceReader(Client):
    """Reads the price of now, publishes new ones, and looks for them."""

    def __init__(self, log: LoadedLog, server: ServerProcess) -> None:
        super().__init__(PUBLIC_PORT, server)
        self._log, self._next_s = log, 0.0
        self._awaited: tuple[int, float] | None = None  # number of a tile, and when it was committed

    def send(self) -> float:
        begin = time.perf_counter()
        self.ask("GET", "/zones/zone-000/now")
        return time.perf_counter() - begin

    def note_news(self, figures: LoadFigures) -> bool:
        if self._awaited is None:
            if time.monotonic() >= self._next_s:
                self._awaited = self._log.publish(), time.monotonic()
        else:
            seq, committed_s = self._awaited
            shards = json.loads(self.ask("GET", "/shards"))
            is_visible = next(shard["seq"] for shard in shards if shard["shard"] == SHARD) >= seq
            if is_visible:
                figures.visible_s.append(time.monotonic() - committed_s)
                self._awaited, self._next_s = None, committed_s + PUBLISH_PERIOD_S
        return self._awaited is not None


class HeadEnd(Client):
    """Posts a reading of each meter once, with a token."""

    def __init__(self, secret: str, server: ServerProcess) -> None:
        super().__init__(PRIVATE_PORT, server)
        self._next_meter = 0
        self._start_s = int(time.time()) // INTERVAL_S * INTERVAL_S - INTERVAL_S
        self.acknowledged: set[int] = set()
        form = urlencode({"grant_type": "client_credentials", "client_id": "head-end", "client_secret": secret})
        headers = {"content-type": "application/x-www-form-urlencoded"}
        token = json.loads(self.ask("POST", "/auth/token", form.encode(), headers))["access_token"]
        self._headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson"}

    def send(self) -> float:
        meters = range(self._next_meter, self._next_meter + READINGS_PER_POST)
        self._next_meter = meters.stop
        rows = [{"meter": str(meter), "interval_start": self._start_s, "energy_wh": 250} for meter in meters]
        body = "\n".join(json.dumps(row) for row in rows).encode()
        begin = time.perf_counter()
        receipt = json.loads(self.ask("POST", "/readings", body, self._headers))
        seconds = time.perf_counter() - begin
        assert receipt["accepted"] == READINGS_PER_POST, receipt
        self.acknowledged.update(meters)
        return seconds


@contextmanager
def anonymous_clients(
    port: int, kind: str, connections: int, seconds: float, history_s: tuple[int, int] = (0, 0)
) -> Iterator[subprocess.Popen[str]]:
    """Have others ask while the block runs, and for so many seconds."""
    numbers = [str(number) for number in (connections, seconds, *history_s)]
    command = [sys.executable, "-m", "benchmarks.anonymous_clients", str(port), kind, *numbers]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        time.sleep(1.0)  # until they are connected
        yield running
    finally:
        running.terminate()
        running.wait(60)


def run_kinds(
    goals: Goals, client: Client, server: ServerProcess, load: Load, loads: dict[str, int], long_s: tuple[int, int]
) -> None:
    """Each kind of load in turn: `loads` names the port that it goes to."""
    base = client.watch(BASELINE_S)
    p99_limit_s = load.time_factor * max(MAX_P99_S, BUSY_FACTOR * base.p99_s)
    visible_limit_s = load.time_factor * max(MAX_VISIBLE_S, BUSY_FACTOR * max(base.visible_s, default=0.0))
    goals.print_figure("without load: p99", 1e3 * base.p99_s, "ms")
    goals.print_figure("without load: requests that failed", base.failures, at_most=0)
    for kind, port in loads.items():
        lines, begin = server.log_lines(), time.monotonic()
        with anonymous_clients(port, kind, load.connections, load.seconds + 1.0, long_s) as others:
            figures = client.watch(load.seconds)
            output, _ = others.communicate(timeout=TIMEOUT_S)
        recovery_s = client.await_recovery(p99_limit_s)
        lines_per_s = (server.log_lines() - lines) / (time.monotonic() - begin)
        print(f"{load.connections} connections, {kind}: {output.strip()}")
        goals.print_figure(
            f"{kind}: p99 of {len(figures.request_s)}", 1e3 * figures.p99_s, "ms", at_most=1e3 * p99_limit_s
        )
        goals.print_figure(f"{kind}: requests that failed", figures.failures, at_most=0)
        if figures.visible_s:
            visible_s = max(figures.visible_s)
            goals.print_figure(f"{kind}: new price visible after", visible_s, "s", at_most=visible_limit_s)
        goals.print_figure(f"{kind}: memory", figures.peak_bytes / 2**20, "MiB", at_most=MAX_MIB)
        goals.print_figure(f"{kind}: recovery", recovery_s, "s", at_most=load.time_factor * MAX_RECOVERY_S)
        goals.print_figure(f"{kind}: log lines a second", lines_per_s, at_most=MAX_LOG_LINES_PER_S)


def run_stop(goals: Goals, server: ServerProcess, load: Load, port: int, kind: str, long_s: tuple[int, int]) -> None:
    """Stop the server while all are busy with what takes longest."""
    with anonymous_clients(port, kind, load.connections, 30.0, long_s):
        time.sleep(1.0)
        goals.print_figure(f"stop under {kind}", server.stop(), "s", at_most=load.time_factor * MAX_STOP_S)


def load_public_port(
    goals: Goals, load: Load, log_dsn: str, folder: Path, kinds: list[str], long_intervals: int
) -> None:
    """What a reader of prices sees."""
    log = LoadedLog(log_dsn, long_intervals)
    settings = folder / "public.toml"
    settings.write_text(f'public = "127.0.0.1:{PUBLIC_PORT}"\n')
    command = ["-m", "murmurate", "serve", str(settings), "--log", log_dsn, "--only", "public"]
    with ServerProcess(command, PUBLIC_PORT, folder / "public-stderr") as server:
        server.await_ready()
        run_kinds(goals, PriceReader(log, server), server, load, dict.fromkeys(kinds, PUBLIC_PORT), log.long_s)
        run_stop(goals, server, load, PUBLIC_PORT, "history", log.long_s)
    log.close()


def load_private_port(goals: Goals, load: Load, dsns: tuple[str, str], folder: Path, kinds: list[str]) -> None:
    """What a head-end sees. Every reading that was acknowledged must be on disk."""
    Landing.create(folder / "landing", interval_s=INTERVAL_S)
    columns = {"meter": np.arange(METERS), "zone": ["harbour"] * METERS, "bound_wh": np.full(METERS, 1000)}
    pq.write_table(pa.table(columns), folder / "meters.parquet")
    settings = folder / "private.toml"
    settings.write_text(
        f'meters = "meters.parquet"\ngrace_s = {GRACE_S}\nprivate = "127.0.0.1:{PRIVATE_PORT}"\n'
        f"[mqtt]\nport = {BROKER_PORT}\nnotifications = false\n"
    )
    broker_settings = folder / "mosquitto.conf"  # lets everyone publish, the worst case
    broker_settings.write_text(f"listener {BROKER_PORT} 127.0.0.1\nallow_anonymous true\nlog_type error\n")
    state, log = dsns
    secret = AuthStore(state).add_client(ApiClient(id="head-end", zones=frozenset({"harbour"})))
    command = ["-m", "murmurate", "serve", str(settings), "--state", state, "--log", log, "--only", "private"]
    broker = subprocess.Popen(["mosquitto", "-c", str(broker_settings)])  # noqa: S603, S607
    try:
        with ServerProcess(command, PRIVATE_PORT, folder / "private-stderr") as server:
            server.await_ready()
            head_end = HeadEnd(secret, server)
            loads = {kind: BROKER_PORT if kind in BROKER_KINDS else PRIVATE_PORT for kind in kinds}
            run_kinds(goals, head_end, server, load, loads, (0, 0))
            run_stop(goals, server, load, PRIVATE_PORT, "readings, wrong token", (0, 0))
    finally:
        broker.terminate()
        broker.wait(60)
    files = (folder / "landing").glob("interval=*/**/*.parquet")
    landed = {meter for path in files for meter in pq.read_table(path, columns=["meter"])["meter"].to_pylist()}
    lost = len(head_end.acknowledged - landed)
    goals.print_figure(f"lost of {len(head_end.acknowledged):,} acknowledged readings", lost, at_most=0)


def main() -> int:
    """Print the figures. Return 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    kinds = [*PUBLIC_KINDS, *PRIVATE_KINDS, *BROKER_KINDS]
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, help="these kinds alone")
    options, goals = parser.parse_args(), Goals()
    load, long_intervals = Load(connections=500, seconds=60.0, time_factor=1.0), 34_000
    if options.quick:
        load, long_intervals = Load(connections=150, seconds=2.5, time_factor=QUICK_FACTOR), TILES
    public = [kind for kind in options.only if kind in PUBLIC_KINDS]
    private = [kind for kind in options.only if kind not in PUBLIC_KINDS]
    with migrated_databases() as dsns, tempfile.TemporaryDirectory() as name:
        if public:
            load_public_port(goals, load, dsns[1], Path(name), public, long_intervals)
        if private:
            load_private_port(goals, load, dsns, Path(name), private)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
