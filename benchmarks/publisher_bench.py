"""A fleet of zones with a plan each, two databases, and one publisher whose steps are timed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from secrets import token_hex
from typing import Any

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict

from benchmarks.cpu_seconds import process_core_s
from benchmarks.deep_log import DeepLog
from murmurate.planning.digest import compact_plan
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.steps import Claim, LogTail, SeenState
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.clock import ReleaseSlotClock
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker.publish_loop import Publisher
from murmurate.types import Demand

BATCH = 20  # shards
INTERVAL_S = 900


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


@cache
def sample_plans(count: int) -> list[str]:
    """Return plans with different bounds, and so with different noise."""
    sizes = [1000 + 250 * n for n in range(count)]
    return [
        make_plan(parse_zone(EXAMPLE_ZONE_FILE.replace("bound_wh = 1000", f"bound_wh = {wh}"))).to_json()
        for wh in sizes
    ]


def own_plans(zones: list[str]) -> Iterator[tuple[str, str]]:
    """Yield a digest and a document for each zone: one proven plan with another name and scales of its own."""
    document: dict[str, Any] = json.loads(sample_plans(1)[0])
    least = np.array(document["scale_wh"])
    rng = np.random.default_rng(1)
    pattern = document | {"zone": "@zone", "scale_wh": "@scales", "digest": "@digest"}
    before, member, after = compact_plan(json.dumps(pattern)).partition('"digest":"@digest",')
    for zone in zones:
        scales = json.dumps((least * rng.uniform(1, 2, len(least))).tolist(), separators=(",", ":"))
        start, end = (text.replace('"@scales"', scales).replace("@zone", zone) for text in (before, after))
        digest = sha256((start + end).encode()).hexdigest()
        yield digest, start + member.replace("@digest", digest) + end


class PublisherBench:
    """One publisher whose steps are timed."""

    def __init__(self, state_dsn: str, log_dsn: str, zones: int) -> None:
        self.state_dsn, self.log_dsn = state_dsn, log_dsn
        self.watch = Stopwatch()
        self.state, self.log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        self.signer = Ed25519Signer.generate()
        self.zones = [f"zone-{n:06d}" for n in range(zones)]
        self.opening = ShardOpening(key=self.signer.public_key, interval_s=INTERVAL_S)
        self.plans: list[str] = []

    def open_zones(self, first: int) -> None:
        """Register the plans, and have the zones published in shards of the largest size."""
        terms = ReleaseTerms.from_json(sample_plans(1)[0])
        self.openings: dict[str, dict[str, ZoneOpening]] = {}
        for start in range(0, len(self.zones), MAX_ZONES):
            zones = self.zones[start : start + MAX_ZONES]
            documents = dict(own_plans(zones))
            self.plans += documents
            self.state.register_plans(documents)
            self.log.publish_documents(documents)
            for zone, plan in zip(zones, documents, strict=True):
                opening = ZoneOpening(plan=plan, currency=terms.currency, tick=terms.tick, first=first)
                self.openings.setdefault(f"shard-{start // MAX_ZONES:04d}", {})[zone] = opening
        shards = dict.fromkeys(self.openings, self.opening)
        self.state.store_openings(shards, {z: (s, o) for s, its in self.openings.items() for z, o in its.items()})

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
            state=_Timed(self.state, self.watch),
            log=_Timed(self.log, self.watch),
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

    def relation_bytes(self) -> int:
        """Return the bytes of the tiles in both stores, with their keys."""
        return sum(
            self._ask(dsn, f"SELECT pg_total_relation_size('{table}')")
            for dsn, table in ((self.state_dsn, "curator.tile"), (self.log_dsn, "public_log.tile"))
        )

    def wal_position(self) -> int:
        """Return the position in the write-ahead log of the server, which keeps the log from here on."""
        self._wal_keeper = psycopg.connect(self.log_dsn, autocommit=True)
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

    def checkpoint(self) -> None:
        """Begin a checkpoint, after which each page that is written to is logged in full once."""
        with psycopg.connect(self.log_dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    @staticmethod
    def _ask(dsn: str, query: str, *parameters: object) -> int:
        with psycopg.connect(dsn) as connection:
            row = connection.execute(query, parameters or None).fetchone()
        assert row is not None
        return int(row[0])


class _Timed:
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
    claim: Callable[[Mapping[str, Claim]], dict[str, Claim]]
    append: Callable[[Any], None]
