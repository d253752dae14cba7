"""One interval of a million zones through the worker, with PostgreSQL as state and log.

    python -m benchmarks.worker_interval [--zones 1000000] [--load 1]

Zones are in shards of 1,000, which share 1,000 plans. Both databases are filled with the tiles of one interval, and the
state with the demand of the next two. The worker of a service decides both, with `--load` processes beside it that
compute without end. The second interval is measured: from the call that finds it due until each zone has its price in
the log. The first one is that of a worker that has just started, which reads every plan and the last row of every zone.
PostgreSQL counts how often the entries of the zones are read.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from math import inf
from pathlib import Path
from typing import cast

import psycopg
from tests.support.databases import migrated_databases
from tests.support.interval_workers import SettableClock

from benchmarks.deep_log import INTERVAL_S
from benchmarks.goals import Goals, read_options
from benchmarks.publisher_throughput import PublisherBench
from benchmarks.worker_start import busy_processes, count_released
from murmurate.public_log.tile import RowKind, parse_tile
from murmurate.service.clock import ServiceClock
from murmurate.service.ingest.ingest_store import IngestStore
from murmurate.service.keyring import create_keyring, load_keyring
from murmurate.service.landing.layout import Landing
from murmurate.service.storage.databases import Databases
from murmurate.service.worker.interval_worker import IntervalWorker
from murmurate.service.worker.publisher_context import PublisherContext

GOAL_S = 300.0  # a third of an interval of 15 minutes, for a million zones
LEAST_GOAL_S = 10.0
GOAL_READS = 1.0  # of each zone's entry in the state
GRACE_S, TIMEOUT_S = 60, 3600.0


def count_zone_reads(state: str) -> int:
    """Return how many entries of zones were read in the state so far, by sessions that have ended."""
    query = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'zone'"
    with psycopg.connect(state) as connection:
        ((count,),) = connection.execute(query).fetchall()
    return int(count)


def count_measured(log: str, interval: int) -> int:
    """Return how many zones have a price from their demand, by the tiles of an interval."""
    with psycopg.connect(log) as connection:
        rows = connection.execute("SELECT body FROM public_log.tile WHERE interval = %s", (interval,), binary=True)
        return sum(int((parse_tile(bytes(body)).rows["kind"] == RowKind.MEASURED).sum()) for (body,) in rows)


def measure(state: str, log: str, folder: Path, *, zones: int, load: int) -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals, first, begin_s = Goals(), int(time.time()) // INTERVAL_S - 8, time.perf_counter()
    create_keyring(folder / "keys")
    bench = PublisherBench(
        state, log, zones, first, signer=load_keyring(folder / "keys").newest_signer, share_plans=True
    )
    bench.fill(first, 1)
    demand_s = time.perf_counter()
    for interval in (first + 1, first + 2):
        bench.store_demand(interval)
    demand_s = (time.perf_counter() - demand_s) / 2
    bench.close()
    clock = SettableClock(0.0)
    worker = IntervalWorker(
        landing=Landing.create(folder / "landing", interval_s=INTERVAL_S),
        meters=None,
        context=PublisherContext.from_databases(Databases.from_dsns(state=state, log=log), folder / "keys"),
        ingest_store=IngestStore(state),
        clock=cast("ServiceClock", clock),
    )
    print(f"{zones:,} zones, {load} other processes that compute")
    goals.print_figure("set up in", time.perf_counter() - begin_s, "s")
    goals.print_figure("of it, the demand of an interval stored in", demand_s, "s")
    with busy_processes(load):
        for interval, name in ((first + 1, "the first interval after a start"), (first + 2, "the next interval")):
            worker.context.close()  # the server counts the reads of a session when it ends
            reads, clock.now_s = -count_zone_reads(state), (interval + 1) * INTERVAL_S + GRACE_S
            begin_s, core_s = time.perf_counter(), -time.process_time()
            while count_released(log, interval) < len(bench.openings) and time.perf_counter() - begin_s < TIMEOUT_S:
                worker.run_once()
            took_s, core_s = time.perf_counter() - begin_s, core_s + time.process_time()
            database_core_s = bench.database_core_s()
            worker.context.close()
            reads += count_zone_reads(state)
            goal_s = inf if interval == first + 1 else max(GOAL_S * zones / 10**6, LEAST_GOAL_S)
            goals.print_figure(name, took_s, "s", at_most=goal_s)
            goals.print_figure("core time of a zone in the worker", 1e6 * core_s / zones, "us")
            goals.print_figure("core time of a zone in the databases", 1e6 * database_core_s / zones, "us")
            goals.print_figure("times that the entries of the zones were read", reads / zones, at_most=GOAL_READS)
            measured = count_measured(log, interval)
            goals.check("zones with a measured price", f"{measured:,}", held=measured == zones)
    goals.print_figure("memory of the worker", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, "GB")
    worker.context.close()
    worker.ingest_store.close()
    return goals.exit_status()


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, zones=1_000_000, load=1)
    with migrated_databases() as (state, log), tempfile.TemporaryDirectory() as folder:
        return measure(state, log, Path(folder), zones=options.zones, load=options.load)


if __name__ == "__main__":
    sys.exit(main())
