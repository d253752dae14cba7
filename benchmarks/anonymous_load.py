"""The public port under many anonymous clients: what one more client sees of it.

    python -m benchmarks.anonymous_load           500 connections, 60 s a route; about ten minutes
    python -m benchmarks.anonymous_load --quick   150 connections, 5 s a route; about a minute and a half

A real `murmurate serve --only public` on a log with 200 zones and one zone with a year of prices (31 days in the quick
form). Another process asks for each route in turn, from hundreds of addresses, as fast as it is answered. Meanwhile
this process reads `/now` on a connection of its own and publishes prices. Every limit of time is that of the text, or a
multiple of the same figure without load in the same run, where the machine is too busy for that. Exits with 1 where a
figure misses its limit; in the quick form, where a time misses it by far. Needs PostgreSQL.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.anonymous_clients import LONG_ZONE, PUBLIC_KINDS, TILES, ZONES
from benchmarks.deep_log import DeepLog
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
from benchmarks.publisher_bench import INTERVAL_S, databases, sample_plans
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.publisher.steps import Claim
from murmurate.service.storage.public_log_store import PostgresLogStore

PORT, SHARD, LEAD, RECENT = 28_095, "quay", 400, 288
MAX_VISIBLE_S = 2.0
PROBE_PERIOD_S, PUBLISH_PERIOD_S = 0.04, 2.0
_PRICE_PATH = "/zones/zone-000/now"


class LoadedLog:
    """A log with many zones and a long one, which grows on request."""

    def __init__(self, log_dsn: str, long_intervals: int) -> None:
        (document,) = sample_plans(1)
        digest = ReleaseTerms.from_json(document).plan_digest
        self._log, signer = PostgresLogStore(log_dsn), Ed25519Signer.generate()
        self._log.publish_documents({digest: document})
        now = int(time.time()) // INTERVAL_S
        names = {SHARD: [f"zone-{n:03d}" for n in range(ZONES)], LONG_ZONE: [LONG_ZONE]}
        firsts = {SHARD: now - LEAD - RECENT, LONG_ZONE: now - long_intervals}
        self.long_s = (firsts[LONG_ZONE] + 2) * INTERVAL_S, now * INTERVAL_S
        for shard, zones in names.items():
            self._log.claim({zone: Claim(shard, 0) for zone in zones})
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


@dataclass(slots=True)
class ReadFigures(LoadFigures):
    """With the time until each new price was to be seen."""

    visible_s: list[float] = field(default_factory=list)


class Probe:
    """A client that reads the price of now, and looks for new ones."""

    def __init__(self, log: LoadedLog, server: ServerProcess) -> None:
        self._log, self._server = log, server
        self._connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)

    def read(self, path: str) -> tuple[float, bytes]:
        """The seconds until the answer, and the answer. As a device does, it keeps its connection."""
        begin = time.perf_counter()
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            body = answer.read()
        except REQUEST_ERRORS:
            self._connection.close()
            raise
        if answer.status != 200:
            raise OSError(path, answer.status)
        return time.perf_counter() - begin, body

    def watch(self, seconds: float) -> ReadFigures:
        """Read and publish for some time."""
        figures, end, next_price_s = ReadFigures(), time.monotonic() + seconds, time.monotonic() + 0.5
        awaited: tuple[int, float] | None = None  # number of a tile, and when it was committed
        while time.monotonic() < end or awaited is not None:
            if awaited is None and time.monotonic() >= next_price_s:
                awaited = self._log.publish(), time.monotonic()
                next_price_s = awaited[1] + PUBLISH_PERIOD_S
            try:
                figures.request_s.append(self.read_price())
                if awaited is not None and self._shown_seq() >= awaited[0]:
                    figures.visible_s.append(time.monotonic() - awaited[1])
                    awaited = None
            except REQUEST_ERRORS:
                figures.failures += 1
            if awaited is not None and time.monotonic() - awaited[1] > 60:
                figures.visible_s.append(60.0)
                awaited = None
            figures.peak_bytes = max(figures.peak_bytes, self._server.memory_bytes())
            time.sleep(PROBE_PERIOD_S)
        return figures

    def _shown_seq(self) -> int:
        shards = json.loads(self.read("/shards")[1])
        return int(next(shard["seq"] for shard in shards if shard["shard"] == SHARD))

    def read_price(self) -> float:
        return self.read(_PRICE_PATH)[0]


def run_routes(
    log: LoadedLog, server: ServerProcess, judge: Judge, connections: int, seconds: float, only: list[str]
) -> None:
    """Each route in turn."""
    probe = Probe(log, server)
    base = probe.watch(BASELINE_S)
    assert not base.failures, base
    p99_limit_s = max(MAX_P99_S, BUSY_FACTOR * base.p99_s)
    visible_limit_s = max(MAX_VISIBLE_S, BUSY_FACTOR * max(base.visible_s))
    print(f"without load: /now p99 {1e3 * base.p99_s:.1f} ms, new price visible after {max(base.visible_s):.2f} s")
    for kind in judge.attempts(only or PUBLIC_KINDS):
        lines, begin = server.log_lines(), time.monotonic()
        with anonymous_clients(PORT, kind, connections, seconds + 1.0, log.long_s) as clients:
            figures = probe.watch(seconds)
            output, _ = clients.communicate(timeout=120)
        recovery_s = await_recovery(probe.read_price, p99_limit_s)
        print(f"{connections} connections, {kind}: {output.strip()}")
        print(f"  /now: {len(figures.request_s)} reads, p50 {1e3 * figures.p50_s:.1f} ms")
        judge.compare("/now p99", 1e3 * figures.p99_s, 1e3 * p99_limit_s, "ms")
        judge.compare("reads of /now that failed", figures.failures, 0, "")
        judge.compare("new price visible after at most", max(figures.visible_s), visible_limit_s, "s")
        judge.compare_costs(figures, recovery_s, (server.log_lines() - lines) / (time.monotonic() - begin))


def run_stop(log: LoadedLog, server: ServerProcess, judge: Judge, connections: int) -> None:
    """Stop the server while all are busy with what takes longest."""
    with anonymous_clients(PORT, "history", connections, 30.0, log.long_s):
        time.sleep(1.0)
        judge.compare(f"stop under {connections} connections", server.stop(), MAX_STOP_S, "s")


def main() -> int:
    """Print the figures. Return 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(PUBLIC_KINDS), default=[], help="these routes alone")
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    connections, seconds, long_intervals = (150, 5.0, TILES) if options.quick else (500, 60.0, 34_000)
    judge = Judge(is_quick=options.quick)
    with databases(options.server) as (_, log_dsn), tempfile.TemporaryDirectory() as folder:
        log = LoadedLog(log_dsn, long_intervals)
        settings = Path(folder) / "service.toml"
        settings.write_text(f'public = "127.0.0.1:{PORT}"\n')
        arguments = [str(settings), "--log", log_dsn, "--only", "public"]
        server = ServerProcess(arguments, Path(folder), PORT)
        try:
            run_routes(log, server, judge, connections, seconds, options.only)
            run_stop(log, server, judge, connections)
        finally:
            server.stop()
            log.close()
    return judge.exit_status()


if __name__ == "__main__":
    sys.exit(main())
