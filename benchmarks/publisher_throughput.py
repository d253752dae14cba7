"""A release for each of 100,000 zones through the real publisher, compared with plain COPY of the same rows.

    python -m benchmarks.publisher_throughput [--zones N] [--server "host=127.0.0.1 user=postgres"]

Creates two databases on the server, publishes one interval (after one to warm up) and drops them. Time in the
database is the time that the publisher waits for PostgreSQL. The baseline writes the same rows into tables with the
same keys, in the same batches, by COPY, with equally durable commits. Drawing, signing and hashing are measured
separately on the same records. In a real deployment state and log are two servers, which share this work.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np
import psycopg

from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.record import RecordKind
from murmurate.public_log.signing import Ed25519Signer
from murmurate.publisher.desired_state import DesiredState, Opening
from murmurate.publisher.protocol import LogTail, SeenState
from murmurate.publisher.record_writer import RecordWriter
from murmurate.service.clock import ReleaseSlotClock
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher
from murmurate.types import Demand

GOAL_S = 60.0
GOAL_RATIO = 4.0
TOLERANCE = 2.0  # factor on a goal before the benchmark fails
NOT_DATABASE = {"write", "wait"}  # steps without PostgreSQL
PLANS = 5
BATCH = 2000


class Stopwatch:
    """Seconds spent in wrapped functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

        return call


@contextmanager
def databases(server: str) -> Iterator[tuple[str, str]]:
    """Create a state and a log database for the block."""
    names = [f"murmurate_{kind}_{token_hex(4)}" for kind in ("state", "log")]
    with psycopg.connect(f"{server} dbname=postgres", autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
        try:
            state, log = (f"{server} dbname={name}" for name in names)
            migrate_database(state, "state")
            migrate_database(log, "log")
            yield state, log
        finally:
            for name in names:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def sample_plans(count: int = PLANS) -> list[str]:
    """Return plans with different bounds, and so with different noise."""
    sizes = [1000 + 250 * n for n in range(count)]
    return [
        make_plan(parse_zone(EXAMPLE_ZONE_FILE.replace("bound_wh = 1000", f"bound_wh = {wh}"))).to_json()
        for wh in sizes
    ]


class Bench:
    """One publisher whose steps are timed."""

    def __init__(self, state_dsn: str, log_dsn: str, zones: int) -> None:
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.watch = Stopwatch()
        self.state, self.log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        self.signer = Ed25519Signer.generate()
        self.zones = [f"zone-{n:06d}" for n in range(zones)]
        self.first = int(time.time()) // 900 - 4
        self.openings: dict[str, Opening] = {}
        for n, text in enumerate(sample_plans()):
            plan = ReleaseTerms.from_json(text).plan_digest
            self.state.register_plan(plan, text)
            self.log.publish_plan(plan, text)
            opening = Opening(plan=plan, key=self.signer.public_key, first=self.first)
            self.openings |= dict.fromkeys(self.zones[n::PLANS], opening)
        self.state.store_openings(self.openings)

    def store_demand(self, interval: int) -> None:
        count = len(self.zones)
        energy_wh = np.random.default_rng(interval).integers(150_000, 250_000, count)
        column = np.full(count, 800)
        bounds = ({"": 1000},) * count
        zones = tuple(self.zones)
        self.state.store_demand(
            interval, Demand(zones=zones, energy_wh=energy_wh, reported=column, imputed=0 * column, bounds=bounds)
        )

    def publish(self, until: int, after_batch: Callable[[list[str]], None] = lambda _: None) -> float:
        """Return the seconds until every zone has its release of `until`, without the calls of `after_batch`."""
        writer = RecordWriter(
            terms_for_plan=self.state.terms_for_plan, signers={self.signer.public_key: self.signer}, noise=SystemNoise()
        )
        publisher = Publisher(
            state=_Timed(self.state, self.watch),
            log=_Timed(self.log, self.watch),
            write_entries=self.watch.timed("write", writer.write_entries),
            wait_for_slot=self.watch.timed("wait", ReleaseSlotClock().wait_for_slot),
            batch_size=BATCH,
        )
        self.watch.seconds.clear()
        took = 0.0
        for start in range(0, len(self.zones), BATCH):
            zones = self.zones[start : start + BATCH]
            begin = time.perf_counter()
            desired = {zone: DesiredState(until=until, opening=self.openings[zone]) for zone in zones}
            outcome = publisher.publish(desired, timeout_s=600)
            took += time.perf_counter() - begin
            assert outcome.up_to_date == set(zones), outcome
            after_batch(zones)
        return took


class _Timed:
    """A store whose calls are timed."""

    def __init__(self, store: PostgresStateStore | PostgresLogStore, watch: Stopwatch) -> None:
        for name in ("lock", "load_demand", "save", "rollback", "read", "append"):
            if hasattr(store, name):
                setattr(self, name, watch.timed(name, getattr(store, name)))

    lock: Callable[[Any], dict[str, SeenState]]
    load_demand: Callable[[Mapping[str, int]], Demand]
    save: Callable[[Any, Any], None]
    rollback: Callable[[], None]
    read: Callable[[Mapping[str, int]], dict[str, LogTail]]
    append: Callable[[Any], None]


class PlainCopy:
    """Writes the same rows by COPY into tables with the same keys, in the same transactions."""

    TRANSACTIONS: ClassVar = {  # the tables that one release writes, and its rows
        "pending": {"curator.pending": "SELECT zone, line FROM curator.release JOIN curator.head USING (zone, seq)"},
        "entry": {
            "public_log.entry": """
                SELECT zone, seq, taken, line FROM public_log.entry JOIN public_log.head USING (zone, seq)""",
            "public_log.head": "SELECT * FROM public_log.head",
        },
        "release": {
            "curator.release": "SELECT zone, seq, line FROM curator.release JOIN curator.head USING (zone, seq)",
            "curator.head": "SELECT zone, seq, opening::text FROM curator.head",
        },
    }

    def __init__(self, state: str, log: str) -> None:
        self.connections = {"state": psycopg.connect(state), "log": psycopg.connect(log)}
        self.seconds = dict.fromkeys(self.TRANSACTIONS, 0.0)
        for name, tables in self.TRANSACTIONS.items():
            for table in tables:
                self._at(name).execute(f"CREATE TABLE {table}_copy (LIKE {table} INCLUDING ALL)")
            self._at(name).commit()

    def _at(self, name: str) -> psycopg.Connection:
        return self.connections["log" if name == "entry" else "state"]

    def __call__(self, zones: list[str]) -> None:
        for name, tables in self.TRANSACTIONS.items():
            connection = self._at(name)
            rows = {
                table: connection.execute(f"{query} WHERE zone = ANY (%s) ORDER BY zone", (zones,)).fetchall()
                for table, query in tables.items()
            }
            connection.commit()
            assert all(len(table_rows) == len(zones) for table_rows in rows.values())
            begin = time.perf_counter()
            for table, table_rows in rows.items():
                with connection.cursor().copy(f"COPY {table}_copy FROM STDIN") as copy:
                    for row in table_rows:
                        copy.write_row(row)
            connection.commit()
            self.seconds[name] += time.perf_counter() - begin


def time_writing(bench: Bench) -> dict[str, float]:
    """Return the seconds of drawing, signing and hashing on the published records."""
    with psycopg.connect(bench.log_dsn) as connection:
        query = "SELECT line FROM public_log.entry JOIN public_log.head USING (zone, seq)"
        lines = [line.encode() for (line,) in connection.execute(query)]
    measured = [record for record in map(json.loads, lines) if record["kind"] == RecordKind.MEASURED]
    assert {record["noise"] for record in measured} == {NoiseDistribution.HUBER.value}
    scales = np.array([float(record["scale_wh"]) for record in measured])
    cores = np.array([record["core_wh"] for record in measured])
    jobs: dict[str, Callable[[], object]] = {
        "drawing": lambda: SystemNoise().draw(NoiseDistribution.HUBER, scales, cores),
        "signing": lambda: [bench.signer.sign(line) for line in lines],
        "hashing": lambda: [hashlib.sha256(line).hexdigest() for line in lines],
    }
    seconds = {}
    for name, job in jobs.items():
        begin = time.perf_counter()
        job()
        seconds[name] = time.perf_counter() - begin
    return seconds


def main() -> int:
    """Print the figures. Return 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=100_000)
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    with databases(options.server) as (state, log):
        bench = Bench(state, log, options.zones)
        opened = bench.publish(bench.first - 1)
        bench.store_demand(bench.first)
        bench.publish(bench.first)
        bench.store_demand(bench.first + 1)
        plain_copy = PlainCopy(state, log)
        took = bench.publish(bench.first + 1, plain_copy)
        steps, copy_steps = dict(bench.watch.seconds), plain_copy.seconds
        parts = time_writing(bench)
    return report(options.zones, opened, took, steps, copy_steps, parts)


def report(
    zones: int,
    opened: float,
    took: float,
    steps: dict[str, float],
    copy_steps: dict[str, float],
    parts: dict[str, float],
) -> int:
    """Print the figures. Return 1 where one misses its limit."""

    def listed(seconds: dict[str, float]) -> str:
        return ", ".join(f"{name} {s:.1f}" for name, s in seconds.items())

    engine = {name: seconds for name, seconds in steps.items() if name not in NOT_DATABASE}
    database, copied = sum(engine.values()), sum(copy_steps.values())
    print(f"{zones:,} zones opened in {opened:.1f} s")
    print(f"  one release each in {took:.1f} s, goal {GOAL_S:.0f}: {_reached(took, GOAL_S)}")
    print(f"  in the database: {listed(engine)}: {database:.1f} s")
    print(f"  the same rows by COPY: {listed(copy_steps)}: {copied:.1f} s")
    ratio = database / copied
    print(f"  ratio {ratio:.2f}, goal {GOAL_RATIO}: {_reached(ratio, GOAL_RATIO)}")
    print(f"  ratio to the public entries alone {database / copy_steps['entry']:.2f}")
    print(f"  writing records {steps['write']:.1f} s, of it about {listed(parts)}")
    print(f"  waiting for the slot {steps['wait']:.1f} s")
    return int(took > TOLERANCE * GOAL_S or database / copied > TOLERANCE * GOAL_RATIO)


def _reached(figure: float, goal: float) -> str:
    return "reached" if figure <= goal else "NOT REACHED"


if __name__ == "__main__":
    sys.exit(main())
