"""The public server with 100,000 zones and three days of prices: its start, its memory, and how soon a price shows.

    python -m benchmarks.server_start [--zones 100000] [--intervals 288]

Real signed tiles are copied into a log in PostgreSQL, which is not measured. Then `murmurate serve` starts in a process
of its own. It has started when it is ready for requests, and has read all when it no longer works. Then each shard gets
one more tile, appended as the publisher does it; the time counts from the last commit to the moment when the server
shows the last of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from tests.support.databases import migrated_databases
from tests.support.waiting import wait_until

from benchmarks.deep_log import BATCH, INTERVAL_S, DeepLog, own_plans
from benchmarks.goals import Goals, read_options
from benchmarks.servers import ServerProcess
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable
from murmurate.service.public_api.live_state import MAX_PRELOADED_PLANS
from murmurate.service.storage.public_log_store import PostgresLogStore

GOAL_START_S, GOAL_VISIBLE_S, GOAL_MIB = 30.0, 10.0, 2048
PORT, LEAD, TIMEOUT_S, QUIET_S = 28_090, 2, 600.0, 2.0


def make_log(log: PostgresLogStore, zones: int, first: int, lead: int = LEAD) -> DeepLog:
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
    return DeepLog(tables, first=first, interval_s=INTERVAL_S, lead=lead, signer=Ed25519Signer.generate())


def await_true(check: Callable[[], bool]) -> float:
    """Return the seconds until it holds."""
    begin = time.perf_counter()
    assert wait_until(check, TIMEOUT_S, pause_s=0.02)
    return time.perf_counter() - begin


def shown_intervals() -> set[int]:
    """The last interval of each shard that the server shows."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/shards", timeout=30) as answer:
        return {shard["interval"] for shard in json.load(answer)}


def await_quiet(server: ServerProcess) -> None:
    """Wait until the process works for less than a tenth of the time."""

    def is_quiet() -> bool:
        before_s = server.core_s()
        time.sleep(QUIET_S)
        return server.core_s() - before_s < QUIET_S / 10

    await_true(is_quiet)


def measure(log_dsn: str, zones: int, intervals: int, folder: Path) -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals, first = Goals(), int(time.time()) // INTERVAL_S - intervals - 2
    log = PostgresLogStore(log_dsn)
    deep = make_log(log, zones, first)
    deep.fill(log_dsn, None, intervals)
    settings = folder / "service.toml"
    settings.write_text(f'public = "127.0.0.1:{PORT}"\n')
    command = ["-m", "murmurate", "serve", str(settings), "--log", log_dsn, "--only", "public"]
    print(f"{zones:,} zones, {intervals} prices each")
    with ServerProcess(command, PORT, folder / "stderr") as server:
        goals.print_figure("ready after", server.await_ready(), "s", at_most=GOAL_START_S)
        goals.print_figure("core time until then", server.core_s(), "s")
        await_quiet(server)
        read_core_s = server.core_s()
        goals.print_figure("core time until all prices are read", read_core_s, "s")
        offers = list(deep.next_offers().items())
        for start in range(0, len(offers), BATCH):
            log.append(dict(offers[start : start + BATCH]))
        visible_s = await_true(lambda: shown_intervals() == {first + intervals})
        goals.print_figure("last zone visible after its commit", visible_s, "s", at_most=GOAL_VISIBLE_S)
        await_quiet(server)
        goals.print_figure("core time of one more interval", server.core_s() - read_core_s, "s")
        goals.print_figure("memory", server.memory_bytes("VmHWM") / 2**20, "MiB", at_most=GOAL_MIB)
    log.close()
    return goals.exit_status()


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, zones=100_000, intervals=288)
    with migrated_databases() as (_, log_dsn), tempfile.TemporaryDirectory() as folder:
        return measure(log_dsn, options.zones, options.intervals, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
