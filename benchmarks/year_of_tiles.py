"""A year of one shard in accelerated time, archived each day: sizes, dumps and starts, month by month.

    python -m benchmarks.year_of_tiles [--zones N] [--minutes N] [--server "host=127.0.0.1 user=postgres"]

Every interval of the last twelve months of 30 days is published by the real publisher into two databases. After each
day the demand of a week ago is purged and the tiles of 31 days ago are archived. After each month: the size of both
databases, tiles in them, bytes of a dump, core seconds of pg_dump, of the first round of a new publisher, of a new
state that takes over the shard, and of a public process until it has its prices. From the second month on each figure
must stay within 20 %. `--keep-all` archives nothing: it shows what would grow.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import psycopg

from benchmarks.goals import Goals
from benchmarks.servers import SERVER, databases
from murmurate.commands.archive import archive_tiles
from murmurate.commands.export import export_log
from murmurate.commands.log_source import open_log_source
from murmurate.planning.digest import compact_plan
from murmurate.planning.plan import make_plan
from murmurate.planning.release_terms import ReleaseTerms
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.privacy.noise import SystemNoise
from murmurate.public_log.signing import Ed25519Signer, verify_signature
from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.desired_state import DesiredState, ShardOpening, ZoneOpening
from murmurate.publisher.protocol import catch_up, last_seq
from murmurate.publisher.steps import SeenState
from murmurate.publisher.tile_writer import TileWriter
from murmurate.service.log_reader.follower import Follower
from murmurate.service.storage.databases import Databases
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.service.worker.publish_loop import Publisher
from murmurate.types import Demand
from murmurate.units import SECONDS_PER_DAY
from murmurate.verification.verifier import check_log

SHARD = "00000000-0000"
MONTHS, DAYS_A_MONTH = 12, 30
KEEP_DEMAND_DAYS = 7
FLAT = 1.2  # the largest figure of the months after the first, by the smallest
REPEATS = 5  # of a measurement in core seconds; the least counts
STARTS_BY_REPEAT = 8  # starts take milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFigures:
    """What a month ends with."""

    log_bytes: int
    state_bytes: int
    log_tiles: int
    state_tiles: int
    dump_bytes: int  # of both databases
    dump_s: float  # core seconds, here and below
    publisher_s: float  # until a publisher that starts knows that nothing is due
    takeover_s: float  # until a new state has checked what the log holds
    public_s: float  # until a public process has its prices


COUNTED = ("log_bytes", "state_bytes", "log_tiles", "state_tiles", "dump_bytes")
TIMED = ("dump_s", "publisher_s", "takeover_s", "public_s")


class YearOfTiles:
    """One shard, its publisher, and its archive."""

    def __init__(
        self,
        state_dsn: str,
        log_dsn: str,
        archive: Path | None,
        *,
        zones: int,
        minutes: int,
        days_a_month: int = DAYS_A_MONTH,
    ) -> None:
        """Open the shard twelve months ago. The tiles of a month and a day stay; without an archive all do."""
        self.days_a_month = days_a_month
        self.databases = Databases.from_dsns(state=state_dsn, log=log_dsn)
        self.archive = None if archive is None else TileArchive(archive)
        self.interval_s = minutes * 60
        self.first = int(time.time() - (MONTHS * days_a_month + 1) * SECONDS_PER_DAY) // self.interval_s
        self.zones = tuple(f"zone-{n:04d}" for n in range(zones))
        text = re.sub(r"^promise = .*$", 'promise = ["any 24 h: epsilon 3"]', EXAMPLE_ZONE_FILE, flags=re.MULTILINE)
        text = text.replace("interval_minutes = 15", f"interval_minutes = {minutes}")
        plan = make_plan(parse_zone(text)).to_json()
        terms = ReleaseTerms.from_json(plan)
        self._signer = Ed25519Signer.generate()
        opening = ZoneOpening(plan=terms.plan_digest, currency=terms.currency, tick=terms.tick, first=self.first)
        self._shard_opening = ShardOpening(key=self._signer.public_key, interval_s=self.interval_s)
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
        per_day = SECONDS_PER_DAY // self.interval_s
        for day in range(month * self.days_a_month, (month + 1) * self.days_a_month):
            begin = self.first + day * per_day
            for interval in range(begin, begin + per_day):
                self._store_demand(interval)
            self.publish(begin + per_day - 1)
            self.state.purge_demand(self.interval_s, begin - KEEP_DEMAND_DAYS * per_day)
            if self.archive is not None:
                before_s = (begin + per_day) * self.interval_s - (self.days_a_month + 1) * SECONDS_PER_DAY
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

    def measure(self, repeats: int = REPEATS) -> MonthFigures:
        """Measure at the end of a month."""
        log_dsn, state_dsn = self.databases.log.dsn, self.databases.state.dsn
        for dsn in (log_dsn, state_dsn):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("VACUUM")
        dumps = {dsn: dump_database(dsn, repeats) for dsn in (log_dsn, state_dsn)}
        return MonthFigures(
            log_bytes=_query(log_dsn, "SELECT pg_database_size(current_database())"),
            state_bytes=_query(state_dsn, "SELECT pg_database_size(current_database())"),
            log_tiles=_query(log_dsn, "SELECT count(*) FROM public_log.tile"),
            state_tiles=_query(state_dsn, "SELECT count(*) FROM curator.tile"),
            dump_bytes=sum(size for size, _ in dumps.values()),
            dump_s=sum(core_s for _, core_s in dumps.values()),
            publisher_s=least_core_s(self._start_publisher, STARTS_BY_REPEAT * repeats),
            takeover_s=least_core_s(self._take_over, repeats),
            public_s=least_core_s(self._start_public, STARTS_BY_REPEAT * repeats),
        )

    def _start_publisher(self) -> None:
        state = PostgresStateStore(self.databases.state.dsn)
        log = PostgresLogStore(self.databases.log.dsn)
        self.publish(self.until, state, log)
        state.close()
        log.close()

    def _take_over(self) -> None:
        log = PostgresLogStore(self.databases.log.dsn)
        head: ShardHead | None = None
        while (tail := log.read({SHARD: last_seq(head)})[SHARD]).tiles:
            head = catch_up(SeenState(head, None), tail, verify_signature)[-1]
        log.close()

    def _start_public(self) -> None:
        follower = Follower(self.databases.log.dsn)
        for _ in follower.refresh():
            pass
        while not follower.is_backfilled:
            for _ in follower.backfill(60):
                pass
        follower.close()


def _query(dsn: str, query: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def least_core_s(run: Callable[[], None], repeats: int) -> float:
    """Return the core seconds of this process that a job takes, the least of some runs."""
    return min(_core_s(run) for _ in range(repeats))


def _core_s(run: Callable[[], None]) -> float:
    begin = time.process_time()
    run()
    return time.process_time() - begin


def dump_database(dsn: str, repeats: int) -> tuple[int, float]:
    """Return the bytes of a dump and the core seconds of pg_dump, the least of some runs."""
    sizes, seconds = [], []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["pg_dump", "--format=custom", "--compress=0", f"--dbname={dsn}"]
        sizes.append(len(subprocess.run(command, capture_output=True, check=True).stdout))  # noqa: S603
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(sizes), min(seconds)


def spread(months: list[MonthFigures], name: str) -> float:
    """Return the largest figure of the months after the first, by the smallest."""
    figures: list[float] = [getattr(month, name) for month in months[1:]]
    return max(figures) / min(figures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zones", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=60, help="of an interval")
    parser.add_argument("--keep-all", action="store_true", help="archive nothing")
    parser.add_argument("--server", default=SERVER)
    arguments = parser.parse_args()
    goals, names = Goals(), [each.name for each in fields(MonthFigures)]
    with databases(arguments.server) as (state, log), TemporaryDirectory() as folder:
        archive = None if arguments.keep_all else Path(folder) / "archive"
        year = YearOfTiles(state, log, archive, zones=arguments.zones, minutes=arguments.minutes)
        months = []
        print("month " + " ".join(f"{name:>12}" for name in names), flush=True)
        for month in range(MONTHS):
            year.write_month(month)
            months.append(year.measure())
            cells = (getattr(months[-1], name) for name in names)
            print(f"{month + 1:>5} " + " ".join(f"{cell:>12,.3f}".removesuffix(".000") for cell in cells), flush=True)
        year.close()
        for name in names:
            goals.print_figure(f"{name}, largest by smallest after the first month", spread(months, name), at_most=FLAT)
        if archive is not None:
            copy = Path(folder) / "log.tar"
            export_log(year.databases.log, copy, None)
            report = check_log({str(path): open_log_source(str(path)) for path in (archive, copy)})
            goals.check("archive and log, as one chain", "hold", held=report.is_valid and report.is_complete)
    return goals.exit_status()


if __name__ == "__main__":
    sys.exit(main())
