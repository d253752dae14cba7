"""A release for each of 100,000 zones through the real publisher, beside the same rows written by plain COPY.

    python -m benchmarks.publish [--zones N] [--server "host=127.0.0.1 user=postgres"]

Makes two databases on the server, publishes one interval (after one to warm up) and drops them again. Time in the
database is what the publisher waits for PostgreSQL; the yardstick writes the same rows into the same tables, with their
keys, in the same batches, by COPY, each committed as durably. Drawing, signing and hashing are measured apart, on the
same records. In a real deployment state and log are two servers: that takes the same work and shares it out.
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

from murmurate.curator.plan import make_plan
from murmurate.curator.terms import Terms
from murmurate.curator.zonefile import EXAMPLE, parse_zone
from murmurate.privacy.noise import NoiseLaw, SystemNoise
from murmurate.publication.desk import Desk
from murmurate.publication.publisher import Beyond, Known
from murmurate.publication.record import Kind
from murmurate.publication.signing import Ed25519Signer
from murmurate.publication.wish import Opening, Wish
from murmurate.quantities import Demand
from murmurate.service.clock import BeatClock
from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog
from murmurate.service.publishing import Publisher
from murmurate.service.state import PostgresState

GOAL_S = 60.0
GOAL_RATIO = 4.0
BROKEN = 2.0  # times a goal: then something is wrong, not just busy
APART = {"write", "wait"}  # steps that are not PostgreSQL's
PLANS = 5
BATCH = 2000


class Stopwatch:
    """Seconds spent in whatever is called through it, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*given)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

        return call


@contextmanager
def databases(server: str) -> Iterator[tuple[str, str]]:
    """A state and a log database that are gone afterwards."""
    names = [f"murmurate_{kind}_{token_hex(4)}" for kind in ("state", "log")]
    with psycopg.connect(f"{server} dbname=postgres", autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
        try:
            state, log = (f"{server} dbname={name}" for name in names)
            migrate(state, "state")
            migrate(log, "log")
            yield state, log
        finally:
            for name in names:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def some_plans(count: int = PLANS) -> list[str]:
    """Plans with different noise, as zones of different make have them."""
    sizes = [1000 + 250 * n for n in range(count)]
    return [make_plan(parse_zone(EXAMPLE.replace("bound_wh = 1000", f"bound_wh = {wh}"))).to_json() for wh in sizes]


class Bench:
    """One publisher with a stopwatch at each of its parts."""

    def __init__(self, state_dsn: str, log_dsn: str, zones: int) -> None:
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.watch = Stopwatch()
        self.state, self.log = PostgresState(state_dsn), PostgresLog(log_dsn)
        self.signer = Ed25519Signer.new()
        self.zones = [f"zone-{n:06d}" for n in range(zones)]
        self.first = int(time.time()) // 900 - 4
        self.openings: dict[str, Opening] = {}
        for n, text in enumerate(some_plans()):
            plan = Terms.of(text).plan
            self.state.register(plan, text)
            self.log.publish_plan(plan, text)
            opening = Opening(plan=plan, key=self.signer.public, first=self.first)
            self.openings |= dict.fromkeys(self.zones[n::PLANS], opening)
        self.state.open(self.openings)

    def remember(self, interval: int) -> None:
        count = len(self.zones)
        energy_wh = np.random.default_rng(interval).integers(150_000, 250_000, count)
        column = np.full(count, 800)
        bounds = ({"": 1000},) * count
        zones = tuple(self.zones)
        self.state.remember(
            interval, Demand(zones=zones, energy_wh=energy_wh, reported=column, imputed=0 * column, bounds=bounds)
        )

    def publish(self, until: int, beside: Callable[[list[str]], None] = lambda _: None) -> float:
        """Seconds until every zone has its release of `until`; after each batch, not counted, something `beside`."""
        desk = Desk(terms=self.state.terms, signers={self.signer.public: self.signer}, noise=SystemNoise())
        publisher = Publisher(
            state=_Timed(self.state, self.watch),
            log=_Timed(self.log, self.watch),
            write=self.watch.timed("write", desk.write),
            wait=self.watch.timed("wait", BeatClock().wait),
            batch=BATCH,
        )
        self.watch.seconds.clear()
        took = 0.0
        for start in range(0, len(self.zones), BATCH):
            zones = self.zones[start : start + BATCH]
            begin = time.perf_counter()
            wishes = {zone: Wish(until=until, opening=self.openings[zone]) for zone in zones}
            outcome = publisher.publish(wishes, patience_s=600)
            took += time.perf_counter() - begin
            assert outcome.done == set(zones), outcome
            beside(zones)
        return took


class _Timed:
    """A store whose calls are timed."""

    def __init__(self, store: PostgresState | PostgresLog, watch: Stopwatch) -> None:
        for name in ("lock", "recall", "save", "rollback", "read", "append"):
            if hasattr(store, name):
                setattr(self, name, watch.timed(name, getattr(store, name)))

    lock: Callable[[Any], dict[str, Known]]
    recall: Callable[[Mapping[str, int]], Demand]
    save: Callable[[Any, Any], None]
    rollback: Callable[[], None]
    read: Callable[[Mapping[str, int]], dict[str, Beyond]]
    append: Callable[[Any], None]


class PlainCopy:
    """The same rows by COPY into tables with the same keys, in the same transactions, committed as durably."""

    TRANSACTIONS: ClassVar = {  # what one release leaves behind or passes through, and its rows
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
            assert all(len(found) == len(zones) for found in rows.values())
            begin = time.perf_counter()
            for table, found in rows.items():
                with connection.cursor().copy(f"COPY {table}_copy FROM STDIN") as copy:
                    for row in found:
                        copy.write_row(row)
            connection.commit()
            self.seconds[name] += time.perf_counter() - begin


def apart(bench: Bench) -> dict[str, float]:
    """Seconds for the parts of writing, on the records that were published."""
    with psycopg.connect(bench.log_dsn) as connection:
        query = "SELECT line FROM public_log.entry JOIN public_log.head USING (zone, seq)"
        lines = [line.encode() for (line,) in connection.execute(query)]
    measured = [record for record in map(json.loads, lines) if record["kind"] == Kind.MEASURED]
    assert {record["noise"] for record in measured} == {NoiseLaw.HUBER.value}
    scales = np.array([float(record["scale_wh"]) for record in measured])
    cores = np.array([record["core_wh"] for record in measured])
    jobs: dict[str, Callable[[], object]] = {
        "drawing": lambda: SystemNoise().draw(NoiseLaw.HUBER, scales, cores),
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
    """Print the figures; 1 where one is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=100_000)
    parser.add_argument("--server", default="host=127.0.0.1 user=postgres")
    options = parser.parse_args()
    with databases(options.server) as (state, log):
        bench = Bench(state, log, options.zones)
        opened = bench.publish(bench.first - 1)
        bench.remember(bench.first)
        bench.publish(bench.first)
        bench.remember(bench.first + 1)
        copies = PlainCopy(state, log)
        took = bench.publish(bench.first + 1, copies)
        steps, bare = dict(bench.watch.seconds), copies.seconds
        parts = apart(bench)
    return report(options.zones, opened, took, steps, bare, parts)


def report(
    zones: int, opened: float, took: float, steps: dict[str, float], bare: dict[str, float], parts: dict[str, float]
) -> int:
    """Say it; 1 where a figure is out of bounds."""

    def listed(seconds: dict[str, float]) -> str:
        return ", ".join(f"{name} {s:.1f}" for name, s in seconds.items())

    engine = {name: seconds for name, seconds in steps.items() if name not in APART}
    database, copied = sum(engine.values()), sum(bare.values())
    print(f"{zones:,} zones opened in {opened:.1f} s")
    print(f"  one release each in {took:.1f} s, goal {GOAL_S:.0f}: {_reached(took, GOAL_S)}")
    print(f"  in the database: {listed(engine)}: {database:.1f} s")
    print(f"  the same rows by COPY: {listed(bare)}: {copied:.1f} s")
    ratio = database / copied
    print(f"  ratio {ratio:.2f}, goal {GOAL_RATIO}: {_reached(ratio, GOAL_RATIO)}")
    print(f"  ratio to the public entries alone {database / bare['entry']:.2f}")
    print(f"  writing records {steps['write']:.1f} s, of it about {listed(parts)}")
    print(f"  waiting for the beat {steps['wait']:.1f} s")
    return int(took > BROKEN * GOAL_S or database / copied > BROKEN * GOAL_RATIO)


def _reached(figure: float, goal: float) -> str:
    return "reached" if figure <= goal else "NOT REACHED"


if __name__ == "__main__":
    sys.exit(main())
