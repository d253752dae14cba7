"""A state and a log, each in a cluster of its own, the publishers between them, and what may be seen of it all."""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from murmurate.service.migrate import migrate
from murmurate.service.publiclog import PostgresLog
from murmurate.service.state import PostgresState
from tests.live.cluster import Cluster, Clusters
from tests.live.controls import LOG_TABLES, STATE_TABLES
from tests.live.nursery import Child, Nursery
from tests.live.publishing_process import ASIDE, FAILED
from tests.live.world import FIRST, World

MURMURATE = "murmurate"


class Violation(Exception):  # noqa: N818 it is the finding, not a mistake of the harness
    """What must never be seen."""


@dataclass(slots=True)
class Room:
    """Where clusters, publishers and evidence are kept during a run."""

    clusters: Clusters
    nursery: Nursery
    world: World
    evidence: Path  # everything that is searched for canaries
    confidential: Path  # and where they may be found

    def keep_error(self, error: BaseException) -> None:
        """Everything that an error says, for the search."""
        with (self.evidence / "errors.txt").open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
            if isinstance(error, psycopg.Error):
                parts = [name for name in dir(error.diag) if not name.startswith("_")]
                file.write("".join(f"{name}: {getattr(error.diag, name)}\n" for name in parts))

    def pair(self, name: str, protocol: str = MURMURATE) -> Pair:
        """A fresh state and log for a protocol."""
        name = name.replace(" ", "-")
        state, log = (self.clusters.new(f"{name}-{store}").start() for store in ("state", "log"))
        pair = Pair(self, name, state, log, protocol)
        pair.prepare()
        return pair


@dataclass(slots=True)
class Pair:
    """One state, one log, one protocol."""

    room: Room
    name: str
    state: Cluster
    log: Cluster
    protocol: str = MURMURATE
    until: int = FIRST - 1
    witnessed: dict[str, list[str]] = field(default_factory=dict)  # lines of each zone that were public once
    _born: int = 0

    def prepare(self) -> None:
        """Tables, plan and openings."""
        world = self.room.world
        migrate(self.state.dsn, "state")
        migrate(self.log.dsn, "log")
        with self.curator(self.state) as state, closing_log(self.log.dsn) as log:
            state.register(world.terms.plan, world.text)
            log.publish_plan(world.terms.plan, world.text)
            state.open(world.openings())
        if self.protocol != MURMURATE:
            with psycopg.connect(self.state.dsn) as connection:
                connection.execute(STATE_TABLES)
                connection.execute("INSERT INTO naive.zone SELECT zone FROM curator.head")
            with psycopg.connect(self.log.dsn) as connection:
                connection.execute(LOG_TABLES)

    @contextmanager
    def curator(self, cluster: Cluster) -> Iterator[PostgresState]:
        """The state as the operator's own commands use it."""
        state = PostgresState(cluster.dsn)
        try:
            yield state
        finally:
            state.rollback()

    def extend(self, intervals: int) -> None:
        """Have that many more intervals published, with new demand."""
        with self.curator(self.state) as state:
            self.room.world.remember(state, range(self.until + 1, self.until + 1 + intervals))
        self.until += intervals

    def correct(self, cluster: Cluster) -> None:
        """Every reading since a while ago turns out to have been wrong."""
        with self.curator(cluster) as state:
            self.room.world.remember(state, range(max(FIRST, self.until - 60), self.until + 1))

    def publisher(
        self,
        *,
        point: str | None = None,
        visit: int = 1,
        state: str = "",
        log: str = "",
        until: int | None = None,
        patience_s: float = 120,
        batch: int = 4,
        beat_s: float = 0.002,
    ) -> Child:
        """One more publisher; it dies at the k-th visit of a named point, where there is one."""
        self._born += 1
        order = {
            "protocol": self.protocol,
            "state": state or self.state.dsn,
            "log": log or self.log.dsn,
            "zones": self.room.world.zones,
            "first": FIRST,
            "until": self.until if until is None else until,
            "point": point,
            "visit": visit,
            "batch": batch,
            "beat_s": beat_s,
            "pause_s": 0.01,
            "patience_s": patience_s,
            "output": str(self.room.evidence / f"{self.name}-publisher-{self._born:04d}.txt"),
        }
        return self.room.nursery.bear(order)

    def lines(self) -> dict[str, list[str]]:
        """The public log of each zone, in its order."""
        zones: dict[str, list[str]] = {}
        for zone, line in self.log.execute("SELECT zone, line FROM public_log.entry ORDER BY zone, seq"):
            zones.setdefault(zone, []).append(line)
        return zones

    def published(self) -> int:
        """Public lines by now."""
        table = "public_log.entry" if self.protocol == MURMURATE else "naive.entry"
        return self.log.execute(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 two tables

    def forgotten(self) -> int:
        """Public lines that the present state knows nothing of."""
        known = self.state.execute("SELECT sum(seq + 1)::bigint FROM curator.head")[0][0]
        return self.published() - known

    def heal(self) -> int:
        """No faults any more: one publisher must finish all work. The interval that it finished."""
        table = "public_log.head" if self.protocol == MURMURATE else "naive.entry"
        reached = self.log.execute(f"SELECT coalesce(max(interval), 0) FROM {table}")[0][0]  # noqa: S608 two tables
        until = max(reached, FIRST) + 2
        child = self.publisher(until=until, patience_s=60)
        if not child.ended.wait(90) or child.code != 0:
            child.kill()
            raise Violation(f"{self.name}: work unfinished after the faults, code {child.code}")
        return until

    def doubles(self) -> int:
        """Intervals of a zone for which a control has published more than one draw."""
        query = """
            SELECT count(*) FROM (
                SELECT FROM naive.entry GROUP BY zone, interval HAVING count(DISTINCT draw) > 1
            ) AS twice"""
        return self.log.execute(query)[0][0]

    def rivals(self) -> int:
        """Places in a chain for which more than one entry was offered: what the log's comparison is for."""
        offers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for path in self.room.evidence.glob(f"{self.name}-publisher-*.txt"):
            for line in path.read_text(errors="replace").splitlines():
                if line.startswith("offer "):
                    _, zone, seq, name = line.split()
                    offers[zone, seq].add(name)
        return sum(len(names) > 1 for names in offers.values())

    def keep_evidence(self) -> None:
        """Write down every table but the confidential one, for the search; and that one, for its control."""
        for cluster, tables in ((self.state, ("curator.pending", "curator.release", "curator.head")),):
            for table in tables:
                (self.room.evidence / f"{self.name}-{table}.copy").write_bytes(cluster.dump(table))
        for table in ("public_log.entry", "public_log.head"):
            (self.room.evidence / f"{self.name}-{table}.copy").write_bytes(self.log.dump(table))
        (self.room.confidential / f"{self.name}-demand.copy").write_bytes(self.state.dump("confidential.demand"))

    def end(self) -> None:
        self.keep_evidence()
        self.state.stop()
        self.log.stop()


@contextmanager
def closing_log(dsn: str) -> Iterator[PostgresLog]:
    """A log whose connection ends with the block."""
    log = PostgresLog(dsn)
    try:
        yield log
    finally:
        log._session.drop()


class Crew:
    """A number of publishers at work at once; whoever ends is replaced."""

    def __init__(self, pair: Pair, size: int) -> None:
        self.pair, self.size = pair, size
        self.children: list[Child] = []

    def dismiss(self) -> None:
        """Kill them all and see them gone."""
        for child in self.children:
            child.kill()
        for child in self.children:
            child.ended.wait(30)
        self.bury()

    def work(self, seconds: float, **order: object) -> None:
        """Have the crew at its full number for a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.refill(**order)
            time.sleep(min(left, 0.05))

    def bury(self) -> list[Child]:
        """Those who have ended since. Whoever gave up, or put a zone aside, has failed: faults are no excuse."""
        ended = [child for child in self.children if child.ended.is_set()]
        self.children = [child for child in self.children if child not in ended]
        for child in ended:
            if child.code in {ASIDE, FAILED}:
                last = Path(child.order["output"]).read_text(errors="replace")[-600:]
                raise Violation(f"{self.pair.name}: a publisher ended with code {child.code}: {last}")
        return ended

    def refill(self, **order: object) -> None:
        """At full number again."""
        self.bury()
        while len(self.children) < self.size:
            self.children.append(self.pair.publisher(**order))


@contextmanager
def crew(pair: Pair, size: int) -> Iterator[Crew]:
    """A crew that ends with the block, whatever happens in it."""
    band = Crew(pair, size)
    try:
        yield band
    finally:
        band.dismiss()
