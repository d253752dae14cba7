"""A state and a log, each in its own cluster, the publishers that use them, and the evidence of a run."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from murmurate.public_log.tile import parse_tile, row_members
from murmurate.service.storage.migrate import migrate_database
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from tests.fault_injection.broken_publishers import LOG_TABLES, STATE_TABLES
from tests.fault_injection.publishing_process import BLOCKED, FAILED, PublisherProcess
from tests.fault_injection.sample_zones import FIRST, SampleZones, sample_plan_text, sample_terms
from tests.support.postgres_cluster import Cluster, Clusters

MURMURATE = "murmurate"


class Violation(Exception):  # noqa: N818 a finding, not an error of the test
    """A rule of the protocol was broken."""


@dataclass(slots=True)
class RunContext:
    """Clusters, sample zones and evidence of one run."""

    clusters: Clusters
    sample: SampleZones
    evidence: Path  # directory of the files that are searched for canaries
    confidential: Path  # directory of the files that may contain them

    def keep_error(self, error: BaseException) -> None:
        """Write an error in full to the evidence."""
        with (self.evidence / "errors.txt").open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
            if isinstance(error, psycopg.Error):
                parts = [name for name in dir(error.diag) if not name.startswith("_")]
                file.write("".join(f"{name}: {getattr(error.diag, name)}\n" for name in parts))

    def store_pair(self, name: str, protocol: str = MURMURATE) -> StorePair:
        """Start a new state and log for a protocol."""
        name = name.replace(" ", "-")
        state, log = (self.clusters.new(f"{name}-{store}").start() for store in ("state", "log"))
        stores = StorePair(self, name, state, log, protocol)
        stores.prepare()
        return stores


@dataclass(slots=True)
class StorePair:
    """One state, one log, one protocol."""

    context: RunContext
    name: str
    state: Cluster
    log: Cluster
    protocol: str = MURMURATE
    until: int = FIRST - 1
    earlier_tiles: dict[str, list[bytes]] = field(default_factory=dict)  # [shard] tiles that were public at a check
    _started: int = 0

    def prepare(self) -> None:
        """Create tables, and store plan and openings."""
        sample = self.context.sample
        migrate_database(self.state.dsn, "state")
        migrate_database(self.log.dsn, "log")
        with self.open_state(self.state) as state, closing_log(self.log.dsn) as log:
            plans = {sample_terms().plan_digest: sample_plan_text()}
            state.register_plans(plans)
            log.publish_documents(plans)
            sample.store_openings(state)
        if self.protocol != MURMURATE:
            with psycopg.connect(self.state.dsn) as connection:
                connection.execute(STATE_TABLES)
                connection.execute("INSERT INTO naive.zone SELECT zone FROM curator.zone")
            with psycopg.connect(self.log.dsn) as connection:
                connection.execute(LOG_TABLES)

    @contextmanager
    def open_state(self, cluster: Cluster) -> Iterator[PostgresStateStore]:
        """Open the state as the operator's commands do."""
        state = PostgresStateStore(cluster.dsn)
        try:
            yield state
        finally:
            state.rollback()

    def extend_demand(self, intervals: int) -> None:
        """Store demand for more intervals, which the publishers must then publish."""
        with self.open_state(self.state) as state:
            self.context.sample.store_demand(state, range(self.until + 1, self.until + 1 + intervals))
        self.until += intervals

    def correct_demand(self, cluster: Cluster) -> None:
        """Replace the demand of the last 60 intervals."""
        with self.open_state(cluster) as state:
            self.context.sample.store_demand(state, range(max(FIRST, self.until - 60), self.until + 1))

    def start_publisher(
        self,
        *,
        point: str | None = None,
        visit: int = 1,
        state: str = "",
        log: str = "",
        until: int | None = None,
        timeout_s: float = 120,
        batch: int = 4,
        slot_s: float = 0.002,
    ) -> PublisherProcess:
        """Start a publisher. It is killed at the k-th visit of `point`, if one is given."""
        self._started += 1
        job = {
            "protocol": self.protocol,
            "state": state or self.state.dsn,
            "log": log or self.log.dsn,
            "zones": self.context.sample.zones,
            "shards": self.context.sample.shards,
            "first": FIRST,
            "until": self.until if until is None else until,
            "point": point,
            "visit": visit,
            "batch": batch,
            "slot_s": slot_s,
            "pause_s": 0.01,
            "timeout_s": timeout_s,
            "output": str(self.context.evidence / f"{self.name}-publisher-{self._started:04d}.txt"),
        }
        return PublisherProcess(job)

    def tiles(self) -> dict[str, list[bytes]]:
        """The public log of each shard, in order."""
        shards: dict[str, list[bytes]] = {}
        for shard, body in self.log.execute("SELECT shard, body FROM public_log.tile ORDER BY shard, seq"):
            shards.setdefault(shard, []).append(bytes(body))
        return shards

    def count_intervals(self) -> float:
        """Return how many intervals are public, as a mean over shards or zones."""
        table, by = ("public_log.tile", "shard") if self.protocol == MURMURATE else ("naive.entry", "zone")
        query = f"SELECT count(*), count(DISTINCT {by}) FROM {table}"  # noqa: S608 two tables
        count, parts = self.log.execute(query)[0]
        return count / max(parts, 1)

    def count_lost_tiles(self) -> int:
        """Return the number of public tiles that the current state does not have."""
        known = self.state.execute("SELECT sum(seq + 1)::bigint FROM curator.shard")[0][0]
        return self.log.execute("SELECT count(*) FROM public_log.tile")[0][0] - known

    def finish_work(self) -> int:
        """Finish all work with one publisher, without faults. Return the last interval."""
        table = "public_log.head" if self.protocol == MURMURATE else "naive.entry"
        reached = self.log.execute(f"SELECT coalesce(max(interval), 0) FROM {table}")[0][0]  # noqa: S608 two tables
        until = max(reached, FIRST) + 2
        child = self.start_publisher(until=until, timeout_s=300)
        child.join(400)
        if child.exitcode != 0:
            child.kill()
            raise Violation(f"{self.name}: work unfinished after the faults, code {child.exitcode}")
        return until

    def count_double_values(self) -> int:
        """Return for how many zones and intervals a broken publisher published more than one draw."""
        query = """
            SELECT count(*) FROM (
                SELECT FROM naive.entry GROUP BY zone, interval HAVING count(DISTINCT draw) > 1
            ) AS twice"""
        return self.log.execute(query)[0][0]

    def count_competing_tiles(self) -> int:
        """Return for how many numbers of a shard more than one tile was offered to the log."""
        offers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for path in self.context.evidence.glob(f"{self.name}-publisher-*.txt"):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("offer "):
                    _, shard, seq, name = line.split()
                    offers[shard, seq].add(name)
        return sum(len(names) > 1 for names in offers.values())

    def keep_evidence(self) -> None:
        """Write every table but the confidential one to the evidence, and that one to the confidential directory."""
        for table in ("curator.shard", "curator.zone", "curator.document"):
            (self.context.evidence / f"{self.name}-{table}.copy").write_bytes(self.state.dump(table))
        for table in ("public_log.claim", "public_log.head", "public_log.document"):
            (self.context.evidence / f"{self.name}-{table}.copy").write_bytes(self.log.dump(table))
        for cluster, table in ((self.state, "curator.tile"), (self.log, "public_log.tile")):
            bodies = cluster.execute(f"SELECT body FROM {table} ORDER BY shard, seq")  # noqa: S608 two tables
            text = "\n".join(describe_tile(bytes(body)) for (body,) in bodies)
            (self.context.evidence / f"{self.name}-{table}.txt").write_text(text, encoding="utf-8")
        (self.context.confidential / f"{self.name}-demand.copy").write_bytes(self.state.dump("confidential.demand"))

    def stop(self) -> None:
        self.keep_evidence()
        self.state.stop()
        self.log.stop()


def describe_tile(body: bytes) -> str:
    """Return a tile as text, without the hashes in its rows: their random bytes may look like any number."""
    tile = parse_tile(body)
    rows = (row_members(tile.rows[at : at + 1]) for at in range(len(tile.rows)))
    return "\n".join([tile.header_line.decode(), *(str(row | {"prev": "#"}) for row in rows)])


@contextmanager
def closing_log(dsn: str) -> Iterator[PostgresLogStore]:
    """Open a log during the block."""
    log = PostgresLogStore(dsn)
    try:
        yield log
    finally:
        log._session.close()


class PublisherPool:
    """A fixed number of running publishers. Each one that ends is replaced."""

    def __init__(self, stores: StorePair, size: int) -> None:
        self.stores, self.size = stores, size
        self.children: list[PublisherProcess] = []

    def kill_all(self) -> None:
        """Kill all publishers and wait until they have ended."""
        for child in self.children:
            child.kill()
        for child in self.children:
            child.join(120)
        self.collect_ended()

    def run_for(self, seconds: float, **job: object) -> None:
        """Keep the pool at its full size for a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.restart_ended(**job)
            time.sleep(min(left, 0.05))

    def collect_ended(self) -> list[PublisherProcess]:
        """Return the publishers that have ended. One that failed or reported a blocked zone is a violation."""
        ended = [child for child in self.children if child.exitcode is not None]
        self.children = [child for child in self.children if child not in ended]
        for child in ended:
            if child.exitcode in {BLOCKED, FAILED}:
                last = Path(child.job["output"]).read_text(errors="replace")[-600:]
                raise Violation(f"{self.stores.name}: a publisher ended with code {child.exitcode}: {last}")
        return ended

    def restart_ended(self, **job: object) -> None:
        """Bring the pool to its full size again."""
        self.collect_ended()
        while len(self.children) < self.size:
            self.children.append(self.stores.start_publisher(**job))


@contextmanager
def publisher_pool(stores: StorePair, size: int) -> Iterator[PublisherPool]:
    """Run a pool during the block and kill it at the end."""
    pool = PublisherPool(stores, size)
    try:
        yield pool
    finally:
        pool.kill_all()
