"""The public server with 100,000 zones and three days of prices: its start, its memory, and how soon a price shows.

    python -m benchmarks.server_start [--zones 100000] [--intervals 288] [--server "host=127.0.0.1 user=postgres"]

Real signed tiles are copied into a log in PostgreSQL, which is not measured. Then `murmurate serve` starts in a process
of its own. It has started when it is ready for requests, and has read all when it no longer works. Then each shard gets
one more tile, appended as the publisher does it; the time counts from the last commit to the moment when the server
shows the last of them. Exits with 1 where the memory misses its goal, or a time misses it by far.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from benchmarks.cpu_seconds import process_core_s
from benchmarks.deep_log import DeepLog
from benchmarks.publisher_bench import BATCH, INTERVAL_S, databases, own_plans
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable
from murmurate.service.public_api.live_state import MAX_PRELOADED_PLANS
from murmurate.service.storage.public_log_store import PostgresLogStore

GOAL_START_S, GOAL_VISIBLE_S, GOAL_BYTES = 30.0, 10.0, 2 * 2**30
TOLERANCE = 2.0  # factor on a goal of time before the benchmark fails: other work may share the cores
PORT, LEAD, TIMEOUT_S, QUIET_S = 28_090, 2, 600.0, 2.0


def make_log(log: PostgresLogStore, zones: int, first: int) -> DeepLog:
    """A log of so many zones with a plan each. The server reads the first plans before anybody asks for one."""
    names = [f"zone-{n:06d}" for n in range(zones)]
    documents = dict(own_plans(names[:MAX_PRELOADED_PLANS]))
    log.publish_documents(documents)
    digests = [*documents, *(sha256(name.encode()).hexdigest() for name in names[len(documents) :])]
    tables = {
        f"shard-{start // MAX_ZONES:04d}": ZoneTable.from_rows(
            ZoneRow(names[n], digests[n], "EUR", "1/100000", first) for n in range(start, min(zones, start + MAX_ZONES))
        )
        for start in range(0, zones, MAX_ZONES)
    }
    return DeepLog(tables, first=first, interval_s=INTERVAL_S, lead=LEAD, signer=Ed25519Signer.generate())


@contextmanager
def public_server(log_dsn: str) -> Iterator[int]:
    """Run the public server of this log. Its process number."""
    root = Path(tempfile.mkdtemp())
    settings = root / "service.toml"
    settings.write_text(f'public = "127.0.0.1:{PORT}"\n')
    command = [sys.executable, "-m", "murmurate", "serve", str(settings), "--log", log_dsn, "--only", "public"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        yield running.pid
    finally:
        running.terminate()
        running.wait(20)
        shutil.rmtree(root)


def await_true(check: Callable[[], bool], period_s: float = 0.05) -> float:
    """Return the seconds until it holds."""
    begin = time.perf_counter()
    while not check():
        assert time.perf_counter() - begin < TIMEOUT_S
        time.sleep(period_s)
    return time.perf_counter() - begin


def is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz", timeout=30) as answer:
            return bool(answer.status == 200)
    except (urllib.error.HTTPError, OSError):
        return False


def shown_intervals() -> list[int]:
    """The last interval of each shard that the server shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/shards", timeout=30) as answer:
        return [shard["interval"] for shard in json.load(answer)]


def await_quiet(pid: int) -> None:
    """Wait until the process works for less than a tenth of the time."""

    def is_quiet() -> bool:
        before_s = process_core_s(pid)
        time.sleep(QUIET_S)
        return process_core_s(pid) - before_s < QUIET_S / 10

    await_true(is_quiet)


def largest_bytes(pid: int) -> int:
    """The most memory that the process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def append_interval(log: PostgresLogStore, deep: DeepLog) -> None:
    offers = list(deep.next_offers().items())
    for start in range(0, len(offers), BATCH):
        log.append(dict(offers[start : start + BATCH]))


def main() -> int:
    """Print the figures. Return 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=100_000)
    parser.add_argument("--intervals", type=int, default=288)
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    first = int(time.time()) // INTERVAL_S - options.intervals - 2
    with databases(options.server) as (_, log_dsn):
        log = PostgresLogStore(log_dsn)
        deep = make_log(log, options.zones, first)
        deep.fill(log_dsn, None, options.intervals)
        with public_server(log_dsn) as pid:
            start_s, start_core_s = await_true(is_ready), process_core_s(pid)
            await_quiet(pid)
            read_core_s = process_core_s(pid)
            append_interval(log, deep)
            last = first + options.intervals
            visible_s = await_true(lambda: set(shown_intervals()) == {last}, 0.02)
            await_quiet(pid)
            follow_core_s = process_core_s(pid) - read_core_s
            size = largest_bytes(pid)
        log.close()
    print(f"{options.zones:,} zones, {options.intervals} prices each, {os.cpu_count()} cores")
    print(f"  ready after {_against(start_s, GOAL_START_S, 's')}; {start_core_s:.1f} core s")
    print(
        f"  all prices read after {read_core_s:.1f} core s; memory {_against(size / 2**20, GOAL_BYTES / 2**20, 'MiB')}"
    )
    visible = _against(visible_s, GOAL_VISIBLE_S, "s")
    print(f"  last zone visible after its commit: {visible}; {follow_core_s:.1f} core s for the interval")
    too_late = start_s > TOLERANCE * GOAL_START_S or visible_s > TOLERANCE * GOAL_VISIBLE_S
    return int(too_late or size > GOAL_BYTES)


def _against(figure: float, goal: float, unit: str) -> str:
    return f"{figure:,.1f} {unit}, goal {goal:g}: {'reached' if figure <= goal else 'NOT REACHED'}"


if __name__ == "__main__":
    sys.exit(main())
