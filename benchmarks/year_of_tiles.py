"""A year of one shard in accelerated time, archived each day: sizes, dumps and starts, month by month.

    python -m benchmarks.year_of_tiles [--zones N] [--days-a-month N]

Every interval of the last twelve months of 30 days is published by the real publisher into two databases. After each
day the demand of a week ago is purged and the tiles of 31 days ago are archived. After each month: the size of both
databases, tiles in them, and bytes of a dump. Both are copied then, and at the end all copies are measured in turn, so
that other load affects all months alike: core seconds of pg_dump, of the first round of a new publisher, of a new state
that takes over the shard, and of a public process until it has its prices. From the second month on each figure must
stay within 20 %. `--keep-all` archives nothing: it shows what would grow.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import psycopg
from psycopg.conninfo import conninfo_to_dict
from tests.support.databases import database, migrated_databases

from benchmarks.goals import Goals, read_options
from murmurate.commands.archive import archive_tiles
from murmurate.operations.log_export import write_archive
from murmurate.operations.log_source import open_log_source
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms, compact_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer, verify_signature
from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import catch_up, last_seq
from murmurate.publisher.steps import SeenState
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.log_reader.follower import Follower
from murmurate.service.storage.databases import Database, Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.service.worker.publisher_context import Publisher
from murmurate.types import Demand
from murmurate.units import SECONDS_PER_DAY
from murmurate.verification.verifier import check_log

SHARD = "00000000-0000"
MONTHS, DAYS_A_MONTH = 12, 30
KEEP_DEMAND_DAYS = 7
FLAT = 1.2  # the largest figure of the months after the first, by the smallest
RUNS_AT_ONCE = 3
ROUNDS = 9  # in which each month is measured; the least counts
INTERVAL_S = 3600


class MonthSizes(NamedTuple):
    """What a month ends with."""

    log_bytes: int
    state_bytes: int
    log_tiles: int
    state_tiles: int
    dump_bytes: int  # of both databases


class MonthTimes(NamedTuple):
    """Core seconds at the end of a month."""

    dump_s: float
    publisher_s: float  # until a publisher that starts knows that nothing is due
    takeover_s: float  # until a new state has checked what the log holds
    public_s: float  # until a public process has its prices


class YearOfTiles:
    """One shard, its publisher, and its archive."""

    def __init__(
        self,
        state_dsn: str,
        log_dsn: str,
        archive: Path | None,
        *,
        zones: int,
        days_a_month: int = DAYS_A_MONTH,
    ) -> None:
        """Open the shard twelve months ago. The tiles of a month and a day stay; without an archive all do."""
        self.days_a_month = days_a_month
        self.databases = Databases.from_dsns(state=state_dsn, log=log_dsn)
        self.archive = None if archive is None else TileArchive(archive)
        self.first = int(time.time() - (MONTHS * days_a_month + 1) * SECONDS_PER_DAY) // INTERVAL_S
        self.zones = tuple(f"zone-{n:04d}" for n in range(zones))
        text = re.sub(r"^promise = .*$", 'promise = ["any 24 h: epsilon 3"]', EXAMPLE_ZONE_FILE, flags=re.MULTILINE)
        text = text.replace("interval_minutes = 15", f"interval_minutes = {INTERVAL_S // 60}")
        plan = make_plan(parse_zone(text)).to_json()
        terms = ReleaseTerms.from_json(plan)
        self._signer = Ed25519Signer.generate()
        opening = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=self.first)
        self._shard_opening = ShardOpening(key=self._signer.public_key, interval_s=INTERVAL_S)
        self._openings = dict.fromkeys(self.zones, opening)
        self.state, self.log = PostgresStateStore(state_dsn), PostgresLogStore(log_dsn)
        for store in (self.state.register_plans, self.log.publish_documents):
            store({terms.plan_digest: compact_plan(plan)})
        zones_by_shard = dict.fromkeys(self.zones, (SHARD, opening))
        self.state.store_openings({SHARD: self._shard_opening}, zones_by_shard)

    def close(self) -> None:
        self.state.close()
        self.log.close()

    def write_month(self, month: int) -> None:
        """Publish the intervals of a month, counted from 0, and archive what is old after each of its days."""
        per_day = SECONDS_PER_DAY // INTERVAL_S
        for day in range(month * self.days_a_month, (month + 1) * self.days_a_month):
            begin = self.first + day * per_day
            for interval in range(begin, begin + per_day):
                self._store_demand(interval)
            self.publish(begin + per_day - 1)
            self.state.purge_demand(INTERVAL_S, begin - KEEP_DEMAND_DAYS * per_day)
            if self.archive is not None:
                before_s = (begin + per_day) * INTERVAL_S - (self.days_a_month + 1) * SECONDS_PER_DAY
                outcome = archive_tiles(self.databases, self.archive, before_s)
                if outcome.refused:
                    raise SystemExit(f"not archived: {outcome.refused}")

    def publish(self, until: int, state: PostgresStateStore | None = None, log: PostgresLogStore | None = None) -> None:
        """Bring the shard to an interval."""
        state, log = state or self.state, log or self.log
        signers = {self._signer.public_key: self._signer}
        writer = TileWriter(terms_for_plan=state.terms_for_plan, signers=signers, noise=SystemNoise())
        publisher = Publisher(state=state, log=log, write_tiles=writer.write_tiles, wait_for_slot=lambda: None)
        desired = DesiredState(until=until, opening=self._shard_opening, zones=self._openings)
        outcome = publisher.publish({SHARD: desired}, timeout_s=600)
        if outcome.up_to_date != {SHARD}:
            raise SystemExit(f"not published: {outcome}")
        self.until = until

    def _store_demand(self, interval: int) -> None:
        column = np.full(len(self.zones), 800)
        demand = Demand(
            zones=self.zones,
            energy_wh=column * 250,
            reported=column,
            imputed=0 * column,
            bounds=({"": 1000},) * len(self.zones),
        )
        self.state.store_demand(interval, demand)

    def measure_sizes(self) -> MonthSizes:
        """Measure at the end of a month."""
        log_dsn, state_dsn = self.databases.log.dsn, self.databases.state.dsn
        for dsn in (log_dsn, state_dsn):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("VACUUM")
        return MonthSizes(
            log_bytes=_query(log_dsn, "SELECT pg_database_size(current_database())"),
            state_bytes=_query(state_dsn, "SELECT pg_database_size(current_database())"),
            log_tiles=_query(log_dsn, "SELECT count(*) FROM public_log.tile"),
            state_tiles=_query(state_dsn, "SELECT count(*) FROM curator.tile"),
            dump_bytes=sum(len(dump_database(dsn)) for dsn in (log_dsn, state_dsn)),
        )

    def measure_times(self, databases: Databases, until: int) -> MonthTimes:
        """Measure what starts and dumps of a copy take whose last interval is `until`."""
        dsns = (databases.log.dsn, databases.state.dsn)
        return MonthTimes(
            dump_s=sum(_children_core_s(partial(dump_database, dsn)) for dsn in dsns),
            publisher_s=_core_s(lambda: self._start_publisher(databases, until)),
            takeover_s=_core_s(lambda: _take_over(databases)),
            public_s=_core_s(lambda: _start_public(databases)),
        )

    def _start_publisher(self, databases: Databases, until: int) -> None:
        with (
            closing(PostgresStateStore(databases.state.dsn)) as state,
            closing(PostgresLogStore(databases.log.dsn)) as log,
        ):
            self.publish(until, state, log)


def _take_over(databases: Databases) -> None:
    head: ShardHead | None = None
    with closing(PostgresLogStore(databases.log.dsn)) as log:
        while (tail := log.read({SHARD: last_seq(head)})[SHARD]).tiles:
            head = catch_up(SeenState(head, None), tail, verify_signature)[-1]


def _start_public(databases: Databases) -> None:
    with closing(Follower(databases.log.dsn)) as follower:
        for _ in follower.refresh():
            pass
        while not follower.is_backfilled:
            for _ in follower.backfill(60):
                pass


def _query(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def _core_s(run: Callable[[], object]) -> float:
    """Return the core seconds of this process that a job takes, the least of a few runs: a start takes milliseconds."""
    seconds = []
    for _ in range(RUNS_AT_ONCE):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def _children_core_s(run: Callable[[], object]) -> float:
    """Return the core seconds of the processes that a job starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def dump_database(dsn: str) -> bytes:
    command = ["pg_dump", "--format=custom", "--compress=0", f"--dbname={dsn}"]
    return subprocess.run(command, capture_output=True, check=True).stdout  # noqa: S603


@contextmanager
def copied_databases(original: Databases) -> Iterator[Databases]:
    """Copy both databases for the block. No other session may use them meanwhile."""
    state_name, log_name = (conninfo_to_dict(each.dsn)["dbname"] for each in (original.state, original.log))
    with database("copy", f"TEMPLATE {state_name}") as state, database("copy", f"TEMPLATE {log_name}") as log:
        yield Databases.from_dsns(state=state, log=log)


def spread(months: Sequence[MonthSizes] | Sequence[MonthTimes], name: str) -> float:
    """Return the largest figure of the months after the first, by the smallest."""
    figures: list[float] = [getattr(month, name) for month in months[1:]]
    return max(figures) / min(figures)


def measure_in_turn(year: YearOfTiles, copies: Sequence[tuple[Databases, int]]) -> list[MonthTimes]:
    """Return the least times of each month."""
    rounds = [[year.measure_times(*each) for each in copies] for _ in range(ROUNDS)]
    return [MonthTimes(*map(min, zip(*times, strict=True))) for times in zip(*rounds, strict=True)]


def print_table(rows: Sequence[MonthSizes] | Sequence[MonthTimes]) -> None:
    print("month " + " ".join(f"{name:>12}" for name in rows[0]._fields))
    for month, row in enumerate(rows, 1):
        print(f"{month:>5} " + " ".join(f"{cell:>12,.4f}".removesuffix(".0000").rjust(12) for cell in row))


def main() -> int:
    arguments = read_options(__doc__, zones=100, days_a_month=DAYS_A_MONTH, keep_all=False)
    goals = Goals()
    with migrated_databases() as (state, log), TemporaryDirectory() as folder, ExitStack() as copied:
        archive = None if arguments.keep_all else Path(folder) / "archive"
        year = YearOfTiles(state, log, archive, zones=arguments.zones, days_a_month=arguments.days_a_month)
        sizes, copies = list[MonthSizes](), list[tuple[Databases, int]]()
        for month in range(MONTHS):
            year.write_month(month)
            sizes.append(year.measure_sizes())
            year.close()
            copies.append((copied.enter_context(copied_databases(year.databases)), year.until))
        print_table(sizes)
        times = measure_in_turn(year, copies)
        print_table(times)
        year.close()
        for months, names in ((sizes, MonthSizes._fields), (times, MonthTimes._fields)):
            for name in names:
                what = f"{name}, largest by smallest after the first month"
                goals.print_figure(what, spread(months, name), at_most=FLAT)
        if archive is not None:
            copy = Path(folder) / "log.tar"
            with copy.open("wb") as file:
                write_archive(Database("log", year.databases.log.dsn), file)
            report = check_log({str(path): open_log_source(str(path)) for path in (archive, copy)})
            goals.check("archive and log, as one chain", "hold", held=report.is_valid and report.is_complete)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
