"""A release for each of 100,000 zones, each with its own plan, through the real publisher.

    python -m benchmarks.publisher_throughput [--zones N] [--depth N]
    python -m benchmarks.publisher_throughput --predicted   # core time with predicted prices, over that without

Creates two databases on the server, publishes some intervals and drops them. The last interval is measured, from the
first lock to the last commit. Time in the database is the time that the publisher waits for PostgreSQL. The baseline
writes the same rows into tables with the same keys, in the same batches, by COPY, with equally durable commits. Disk
and write-ahead log are those of state and log together, without what else the server does. `--depth` is the
number of intervals before (288 are three days): all but the last two are copied into the stores. In a real deployment
state and log are two servers, which share this work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.support.databases import migrated_databases

from benchmarks.cpu_seconds import process_core_s
from benchmarks.deep_log import BATCH, INTERVAL_S, DeepLog, own_plans, sample_plan
from benchmarks.goals import Goals, read_options
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_FORECAST
from murmurate.privacy.noise import NoiseDistribution, SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import LogTail, SeenState
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.clock import ReleaseSlotClock
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publisher_context import Publisher
from murmurate.types import Demand
from murmurate.units import FloatArray, IntArray

GOAL_S = 20.0  # for 100,000 zones
LEAST_GOAL_S = 3.0  # few zones wait for release slots most of the time
GOAL_RATIO = 4.0
GOAL_PREDICTED = 1.3  # core time of a release with a predicted price, over that of one without
GOAL_DISK_BYTES = 200.0  # of a record, with keys, in both stores
GOAL_WAL_BYTES = 1500.0  # of a record, in both stores
FEW_INTERVALS = 2  # that the publisher itself writes before it is measured
NOT_DATABASE = {"write", "wait"}  # steps without PostgreSQL
NOT_COPIED = {"load_demand"}  # reads what COPY does not


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


class TimedStore:
    """A store whose calls are timed."""

    def __init__(self, store: PostgresStateStore | PostgresLogStore, watch: Stopwatch) -> None:
        for name in ("lock", "load_demand", "save", "rollback", "read", "claim", "append"):
            if hasattr(store, name):
                setattr(self, name, watch.timed(name, getattr(store, name)))

    lock: Callable[[Any], dict[str, SeenState]]
    load_demand: Callable[[Mapping[str, tuple[int, tuple[str, ...]]]], Demand]
    save: Callable[[Any, Any], None]
    rollback: Callable[[], None]
    read: Callable[[Mapping[str, int]], dict[str, LogTail]]
    claim: Callable[[Mapping[str, str]], dict[str, str]]
    append: Callable[[Any], None]


class PublisherBench:
    """Zones with a plan each, and one publisher whose steps are timed."""

    def __init__(
        self,
        state_dsn: str,
        log_dsn: str,
        zones: int,
        first: int,
        forecast: str = "",
        signer: Ed25519Signer | None = None,
        *,
        share_plans: bool = False,
    ) -> None:
        """Register the plans, and have the zones published in shards of the largest size.

        Each zone has a plan of its own, or those of the other shards share the plans of the first one.
        """
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.watch = Stopwatch()
        self.state, self.log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        self.signer = signer or Ed25519Signer.generate()
        self.zones = [f"zone-{n:06d}" for n in range(zones)]
        self.opening = ShardOpening(key=self.signer.public_key, interval_s=INTERVAL_S)
        self.plans: list[str] = []
        self.openings: dict[str, dict[str, ZoneOpening]] = {}
        terms = ReleaseTerms.from_json(sample_plan())
        for start in range(0, zones, MAX_ZONES):
            names = self.zones[start : start + MAX_ZONES]
            if not (share_plans and start):
                documents = dict(own_plans(names, forecast))
                self.plans += documents
                self.state.register_plans(documents)
                self.log.publish_documents(documents)
            shard = f"shard-{start // MAX_ZONES:04d}"
            self.openings[shard] = {
                zone: ZoneOpening(plan=plan, currency=terms.currency, tick=terms.tick, first=first)
                for zone, plan in zip(names, documents, strict=False)
            }
            self.state.store_openings({shard: self.opening}, {z: (shard, o) for z, o in self.openings[shard].items()})

    def close(self) -> None:
        self.state.close()
        self.log.close()

    def fill(self, first: int, intervals: int) -> None:
        """Put tiles of some intervals into both stores, so that the next ones are written at that depth."""
        tables = {
            shard: ZoneTable.from_rows(
                ZoneRow(zone, its.plan, its.currency, its.tick, first) for zone, its in openings.items()
            )
            for shard, openings in self.openings.items()
        }
        deep = DeepLog(tables, first=first, interval_s=INTERVAL_S, lead=self.opening.lead, signer=self.signer)
        deep.fill(self.log_dsn, self.state_dsn, intervals)

    def load_plans(self) -> float:
        """Return the seconds that reading every plan takes after a restart."""
        begin = time.perf_counter()
        self.state.load_terms(self.plans)
        return time.perf_counter() - begin

    def store_demand(self, interval: int) -> None:
        count = len(self.zones)
        energy_wh = np.random.default_rng(interval % 1000).integers(150_000, 250_000, count)
        column = np.full(count, 800)
        bounds = ({"": 1000},) * count
        demand = Demand(
            zones=tuple(self.zones), energy_wh=energy_wh, reported=column, imputed=0 * column, bounds=bounds
        )
        self.state.store_demand(interval, demand)

    def publish(self, until: int, after_batch: Callable[[list[str]], None] = lambda _: None) -> tuple[float, float]:
        """Return the seconds until every shard has its release of `until`, and those of them on this process's core.

        Calls of `after_batch` do not count.
        """
        writer = TileWriter(
            terms_for_plan=self.state.terms_for_plan, signers={self.signer.public_key: self.signer}, noise=SystemNoise()
        )
        publisher = Publisher(
            state=TimedStore(self.state, self.watch),
            log=TimedStore(self.log, self.watch),
            write_tiles=self.watch.timed("write", writer.write_tiles),
            wait_for_slot=self.watch.timed("wait", ReleaseSlotClock().wait_for_slot),
            batch_size=BATCH,
        )
        self.watch.seconds.clear()
        took = core = 0.0
        names = sorted(self.openings)
        for start in range(0, len(names), BATCH):
            shards = names[start : start + BATCH]
            desired = {s: DesiredState(until=until, opening=self.opening, zones=self.openings[s]) for s in shards}
            begin, core_begin = time.perf_counter(), time.process_time()
            outcome = publisher.publish(desired, timeout_s=600)
            took, core = took + time.perf_counter() - begin, core + time.process_time() - core_begin
            assert outcome.up_to_date == set(shards), outcome
            after_batch(shards)
        return took, core

    def draw_noise(self) -> float:
        """Return the seconds of drawing the noise of one interval."""
        terms = [its for plan in self.plans if (its := self.state.terms_for_plan(plan)) is not None]
        scales: FloatArray = np.array([its.scale_wh[0] for its in terms])
        cores: IntArray = np.array([its.core_wh[0] for its in terms])
        assert {its.distribution for its in terms} == {NoiseDistribution.HUBER}
        begin = time.perf_counter()
        SystemNoise().draw(NoiseDistribution.HUBER, scales, cores)
        return time.perf_counter() - begin

    def relation_bytes(self) -> int:
        """Return the bytes of the tiles in both stores, with their keys."""
        return sum(
            self._ask(dsn, f"SELECT pg_total_relation_size('{table}')")
            for dsn, table in ((self.state_dsn, "curator.tile"), (self.log_dsn, "public_log.tile"))
        )

    def wal_position(self) -> int:
        """Return the position in the server's write-ahead log after a checkpoint. It keeps the log from there on.

        Each page that is written to after a checkpoint is logged in full once.
        """
        self._wal_keeper = psycopg.connect(self.log_dsn, autocommit=True)
        self._wal_keeper.execute("CHECKPOINT")
        self._wal_keeper.execute(
            "SELECT pg_create_physical_replication_slot(%s, true, true)", (f"murmurate_{token_hex(4)}",)
        )
        return self._ask(self.log_dsn, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")

    def wal_bytes(self, since: int) -> int:
        """Return the bytes of write-ahead log, page images included, of these two databases since a position."""
        with psycopg.connect(self.log_dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            connection.execute("SELECT pg_switch_wal()")  # what is read must be complete
        names = [conninfo_to_dict(dsn)["dbname"] for dsn in (self.state_dsn, self.log_dsn)]
        query = """
            SELECT coalesce(sum(w.record_length), 0)
            FROM pg_get_wal_records_info('0/0'::pg_lsn + %s::bigint, pg_current_wal_flush_lsn()) AS w
            WHERE EXISTS (
                SELECT FROM pg_database AS d WHERE d.datname = ANY(%s) AND w.block_ref LIKE '%%/' || d.oid || '/%%'
            )"""
        found = self._ask(self.log_dsn, query, since, names)
        self._wal_keeper.close()
        return found

    def database_core_s(self) -> float:
        """Return the core seconds of the publisher's two sessions in a server on this machine."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        found = 0.0
        for dsn in (self.state_dsn, self.log_dsn):
            with psycopg.connect(dsn) as connection:
                found += sum(process_core_s(pid) for (pid,) in connection.execute(query).fetchall())
        return found

    @staticmethod
    def _ask(dsn: str, query: str, *parameters: object) -> int:
        with psycopg.connect(dsn) as connection:
            row = connection.execute(query, parameters or None).fetchone()
        assert row is not None
        return int(row[0])


class PlainCopy:
    """Writes the same rows by COPY into tables with the same keys, in the same transactions."""

    TRANSACTIONS: ClassVar = {  # the tables that one release writes, and its rows
        "pending": {"curator.tile": "SELECT t.* FROM curator.tile AS t JOIN curator.shard USING (shard, seq)"},
        "tile": {
            "public_log.tile": "SELECT t.* FROM public_log.tile AS t JOIN public_log.head USING (shard, seq)",
            "public_log.head": "SELECT * FROM public_log.head",
        },
        "seen": {"curator.shard": "SELECT shard, seq, opening::text FROM curator.shard"},
    }

    def __init__(self, state: str, log: str) -> None:
        self.connections = {"state": psycopg.connect(state), "log": psycopg.connect(log)}
        self.seconds = 0.0
        for name, tables in self.TRANSACTIONS.items():
            for table in tables:
                self._at(name).execute(f"CREATE TABLE {table}_copy (LIKE {table} INCLUDING ALL)")
            self._at(name).commit()

    def _at(self, name: str) -> psycopg.Connection:
        return self.connections["log" if name == "tile" else "state"]

    def __call__(self, shards: list[str]) -> None:
        for name, tables in self.TRANSACTIONS.items():
            connection = self._at(name)
            rows = {
                table: connection.execute(f"{query} WHERE shard = ANY (%s) ORDER BY shard", (shards,)).fetchall()
                for table, query in tables.items()
            }
            connection.commit()
            assert all(len(table_rows) == len(shards) for table_rows in rows.values())
            begin = time.perf_counter()
            for table, table_rows in rows.items():
                with connection.cursor().copy(f"COPY {table}_copy FROM STDIN") as copy:
                    for row in table_rows:
                        copy.write_row(row)
            connection.commit()
            self.seconds += time.perf_counter() - begin


def measure(state: str, log: str, zones: int, depth: int) -> int:
    """Publish `depth` intervals, then measure one. Print the figures, and return 1 where one misses its goal."""
    goals, first = Goals(), int(time.time()) // INTERVAL_S - depth - 4
    bench = PublisherBench(state, log, zones, first)
    goals.print_figure(f"{zones:,} zones: plans read in", bench.load_plans(), "s")
    if depth > FEW_INTERVALS:
        bench.fill(first, depth - FEW_INTERVALS)
    bench.publish(first - 1)
    for interval in range(first + max(0, depth - FEW_INTERVALS), first + depth):
        bench.store_demand(interval)
        bench.publish(interval)
    bench.store_demand(first + depth)
    wal, database_core_s = bench.wal_position(), bench.database_core_s()
    took_s, core_s = bench.publish(first + depth)
    database_core_s = bench.database_core_s() - database_core_s
    steps = dict(bench.watch.seconds)
    wal_bytes = bench.wal_bytes(wal) / zones
    disk_bytes = bench.relation_bytes() / zones / (depth + 1)
    bench.store_demand(first + depth + 1)
    plain_copy = PlainCopy(state, log)
    bench.publish(first + depth + 1, plain_copy)
    in_database_s = sum(seconds for name, seconds in steps.items() if name not in NOT_DATABASE | NOT_COPIED)
    goals.print_figure("one release each", took_s, "s", at_most=max(GOAL_S * zones / 100_000, LEAST_GOAL_S))
    goals.print_figure("core time of a zone in the publisher", 1e6 * core_s / zones, "us")
    goals.print_figure("core time of a zone in the databases", 1e6 * database_core_s / zones, "us")
    for name, seconds in steps.items():
        goals.print_figure(f"of one release each: {name}", seconds, "s")
    goals.print_figure("drawing the noise again", bench.draw_noise(), "s")
    goals.print_figure(
        "in the database / the same rows by COPY", in_database_s / plain_copy.seconds, at_most=GOAL_RATIO
    )
    goals.print_figure("on disk", disk_bytes, "bytes a record", at_most=GOAL_DISK_BYTES)
    what = f"write-ahead log after {depth} intervals"
    goals.print_figure(what, wal_bytes, "bytes a record", at_most=GOAL_WAL_BYTES)
    return goals.exit_status()


def compare_predicted(zones: int) -> int:
    """Publish zones whose prices are predicted and such whose are not, in turns. Print the ratio of core times."""
    goals, first = Goals(), int(time.time()) // INTERVAL_S - 10
    spent: dict[str, list[float]] = {"": [], EXAMPLE_FORECAST: []}
    with migrated_databases() as plain, migrated_databases() as predicted:
        benches = [
            PublisherBench(*dsns, zones, first, its) for dsns, its in zip((plain, predicted), spent, strict=True)
        ]
        for interval in range(first - 1, first + 5):
            for bench, seconds in zip(benches, spent.values(), strict=True):
                if interval >= first:
                    bench.store_demand(interval)
                seconds.append(bench.publish(interval)[1])
    without, with_prediction = (1e6 * sum(seconds[3:]) / 3 / zones for seconds in spent.values())
    goals.print_figure("core time of a zone, last release", without, "us")
    goals.print_figure("core time of a zone, predicted price", with_prediction, "us")
    goals.print_figure("predicted / last release", with_prediction / without, at_most=GOAL_PREDICTED)
    return goals.exit_status()


def main() -> int:
    """Print the figures. Return 1 where one misses its goal."""
    options = read_options(__doc__, zones=100_000, depth=4, predicted=False)
    if options.predicted:
        return compare_predicted(options.zones)
    with migrated_databases() as (state, log):
        return measure(state, log, options.zones, options.depth)


if __name__ == "__main__":
    sys.exit(main())
