"""A worker that starts with 100,000 zones on a busy machine: restarts by its watchdog, and when it has released.

    python -m benchmarks.worker_start [--zones 100000] [--watchdog 20] [--load 4]

Plans are registered in two databases, which is not measured. Then `murmurate serve --only worker` runs below the
supervisor of the service, with `--load` processes beside it that compute without end. No meter reports, so the release
is the fallback price of each zone; every plan is read for it. `watchdog_s` of a service is 60 s: a smaller one here
leaves room for a slower machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.support.databases import migrated_databases
from tests.support.ports import free_port
from tests.support.waiting import wait_until

from benchmarks.cpu_seconds import process_core_s
from benchmarks.deep_log import INTERVAL_S
from benchmarks.goals import Goals, read_options
from benchmarks.publisher_throughput import PublisherBench
from murmurate.public_log.zone_table import MAX_ZONES
from murmurate.service.keyring import create_keyring, load_keyring
from murmurate.service.landing.layout import Landing
from murmurate.service.supervisor import SupervisedProcess

GOAL_CORE_S = 90.0  # for 100,000 zones, until each has a price
LEAST_GOAL_CORE_S = 20.0
GRACE_S, TIMEOUT_S = 60, 3600.0


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have so many other processes compute while the block runs."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def count_released(log_dsn: str, interval: int) -> int:
    """Return how many shards have decided an interval."""
    with psycopg.connect(log_dsn) as connection:
        query = "SELECT count(*) FROM public_log.head WHERE interval >= %s"
        ((count,),) = connection.execute(query, (interval,)).fetchall()
    return int(count)


def measure(state: str, log: str, folder: Path, *, zones: int, watchdog_s: float, load: int) -> int:
    """Print the figures. Return 1 where one misses its goal."""
    goals, first = Goals(), int(time.time()) // INTERVAL_S - 8
    create_keyring(folder / "keys")
    PublisherBench(state, log, zones, first, signer=load_keyring(folder / "keys").newest_signer).close()
    Landing.create(folder / "landing", interval_s=INTERVAL_S)
    settings = folder / "service.toml"
    ports = f'public = "127.0.0.1:{free_port()}"\nprivate = "127.0.0.1:{free_port()}"\n'
    clock = f"[clock]\nsimulated_s = {(first + 1) * INTERVAL_S + GRACE_S}\nwall_s = {time.time()}\n"
    settings.write_text(f'meters = ""\n{ports}{clock}')
    worker = SupervisedProcess(
        name="worker",
        command=[sys.executable, "-m", "murmurate", "serve", str(settings), "--only", "worker"],
        environment=os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log},
        watchdog_s=watchdog_s,
    )
    shards, begin_s, core_s, first_s = -(-zones // MAX_ZONES), time.perf_counter(), 0.0, 0.0

    def is_released() -> bool:
        nonlocal core_s, first_s
        worker.check()
        released = count_released(log, first)
        if worker.process is not None and worker.process.poll() is None:
            core_s = process_core_s(worker.process.pid)
        first_s = first_s or (time.perf_counter() - begin_s if released else 0.0)
        return released == shards

    try:
        with busy_processes(load):
            done = wait_until(is_released, TIMEOUT_S, pause_s=0.25)
    finally:
        if worker.process is not None:
            worker.process.kill()
            worker.process.wait()
    print(f"{zones:,} zones, {load} other processes that compute, watchdog_s {watchdog_s:g}")
    goals.check("every zone has a price", "yes" if done else "no", held=bool(done))
    goals.print_figure("restarts by the watchdog", worker.restarts, at_most=0)
    goals.print_figure("the first shard has its prices after", first_s, "s")
    goals.print_figure("all shards have their prices after", time.perf_counter() - begin_s, "s")
    limit_s = max(GOAL_CORE_S * zones / 100_000, LEAST_GOAL_CORE_S)
    goals.print_figure("core time of the worker until then", core_s, "s", at_most=limit_s)
    return goals.exit_status()


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, zones=100_000, watchdog=20.0, load=4)
    with migrated_databases() as (state, log), tempfile.TemporaryDirectory() as folder:
        return measure(state, log, Path(folder), zones=options.zones, watchdog_s=options.watchdog, load=options.load)


if __name__ == "__main__":
    sys.exit(main())
