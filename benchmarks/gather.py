"""What gathering costs beside its rivals, as ratios of core seconds measured side by side in one run.

    python -m benchmarks.gather [--readings 20000000] [--master spark://...] [--quick]

Makes a landing in a temporary folder and has its demand made by our one process, by our job on a Spark cluster of one
master and two workers, by Polars, by the same plan written by hand for Spark, and by plain SQL in DuckDB. All digests
must be equal. A figure is the median of three rounds after one that does not count. Ends with status 1 if a digest
differs, or if a figure misses its goal by a quarter: then something is wrong, not just busy.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.gather_alone import close_and_gather, in_processes_of_their_own
from benchmarks.gather_cost import Contestant, Cost, alternately, once
from benchmarks.gather_rivals import by_duckdb, by_polars, kernel_alone
from benchmarks.gather_spark import Plan, bare_sum, by_hand
from benchmarks.gather_world import FIRST_S, INTERVALS, ZONE_METERS, ZONE_NUMBERS, World, change_one, world
from murmurate.quantities import Readings
from murmurate.service.gathering.append import append
from murmurate.service.gathering.demandfile import table as demand_table
from murmurate.service.gathering.job import close_all, gather
from murmurate.service.gathering.layout import Landing, stamp
from murmurate.service.gathering.metertable import MeterTable, load_shard
from murmurate.service.gathering.spark import on_spark, session

BROKEN = 1.25  # times a goal
SIZES = (100_000, 1_000_000, 5_000_000)  # meters, of ten intervals
QUICK_SIZES = (100_000, 200_000)
# The tests' cluster starts quickly and stays slow; rivals get the JVM that Spark comes with.
JVM = {"spark.driver.extraJavaOptions": "-server", "spark.executor.extraJavaOptions": "-server"}
JVM |= {"spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"}


@dataclass(slots=True)
class Report:
    """Prints the table line by line, and remembers whether one of them was out of bounds."""

    broken: bool = False
    took: list[str] = field(default_factory=list)

    def say(self, what: str, figure: str, allowed: str = "", *, held: bool = True) -> None:
        verdict = "" if not allowed else "ok" if held else "MISSED"
        print(f"{what:<64} {figure:>13}  {allowed:<13} {verdict}".rstrip(), flush=True)

    def gate(self, what: str, value: float, *, most: float = np.inf, least: float = 0.0, unit: str = "") -> None:
        allowed = f"at least {least:g}" if least else f"at most {most:g}"
        self.say(what, f"{value:.2f}{unit}", allowed, held=least <= value <= most)
        self.broken |= value > BROKEN * most or value * BROKEN < least

    def equal(self, what: str, first: frozenset[str], *others: frozenset[str]) -> None:
        """One digest, the same for all."""
        same = len(first.union(*others)) == 1
        self.say(f"digest: {what}", min(first)[:12], "equal", held=same)
        self.broken |= not same

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.took.append(f"{name} {time.perf_counter() - begin:.0f}")


def main() -> int:
    """Print the table; 1 where something is out of bounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=20_000_000)
    parser.add_argument("--master", default="", help="of a Spark cluster on this machine; one is started otherwise")
    parser.add_argument("--quick", action="store_true", help="a small world, to see that everything runs")
    options = parser.parse_args()
    meters = (1_000_000 if options.quick else options.readings) // INTERVALS // ZONE_METERS * ZONE_METERS
    report = Report()
    print(f"{'what':<64} {'figure':>13}  allowed")
    with TemporaryDirectory(prefix="murmurate-gather-") as folder, report.part("all"):
        with report.part("making readings"):
            where = world(Path(folder) / "world", meters)
            table = _pinned(report, where)
        with report.part("one process"):
            demand = _one_process(report, where, table)
        with report.part("Spark"):
            _spark(report, where, table, demand, options.master)
        with report.part("oracle"):
            _oracle(report, where, table, demand)
        with report.part("sizes"):
            _sizes(report, Path(folder), QUICK_SIZES if options.quick else SIZES)
        with report.part("appends"):
            _appends(report, Path(folder))
    print(f"seconds: {', '.join(report.took)}")
    return int(report.broken)


def _pinned(report: Report, where: World) -> MeterTable:
    begin = time.perf_counter()
    table = where.table()
    took = time.perf_counter() - begin
    bytes_on_disk = sum(path.stat().st_size for path in where.files())
    pinned = sum(path.stat().st_size for path in table.folder.iterdir())
    report.say("readings", f"{where.readings:,}")
    report.say("meters", f"{table.meters:,}")
    report.say("zones", f"{len(table.zones):,}")
    report.say("a reading on disk, meters in no order", f"{bytes_on_disk / where.readings:.2f} B")
    report.say("a meter in the pinned table", f"{pinned / table.meters:.1f} B")
    report.say("pinning the meter table", f"{took:.2f} s")
    return table


def _one_process(report: Report, where: World, table: MeterTable) -> frozenset[str]:
    """Beside Polars and beside the bare kernel; returns the digest of the demand."""
    shards = {shard: load_shard(table.folder, shard) for shard in table.shards}
    keys = [(start_s, shard) for shard in table.shards for start_s in where.starts_s]
    files = {key: sorted(where.landing.shard(*key).glob("*.parquet")) for key in keys}
    ours = Contestant(name="ours", run=partial(close_and_gather, where, table, where.starts_s), ready=where.reopen)
    polars = Contestant(name="polars", run=partial(by_polars, where, table))
    kernel = Contestant(name="kernel", run=partial(kernel_alone, files, shards))
    cost = alternately([ours, polars, kernel])
    own = cost["ours"]
    report.say("one process: close, check, gather", f"{own.core_s:.2f} core s")
    report.say("one process: readings a second", f"{where.readings / own.wall_s / 1e6:.1f} M")
    report.gate("one process: Polars / ours", cost["polars"].core_s / own.core_s, least=0.8)
    report.gate("one process: ours / decoding and kernel alone", own.core_s / cost["kernel"].core_s, most=1.6)
    report.equal("ours, Polars", own.digests, cost["polars"].digests)
    return own.digests


@contextmanager
def _master(folder: Path, given: str) -> Iterator[str]:
    """The master that was asked for, or a cluster of one and two workers that is gone afterwards."""
    if given:
        yield given
        return
    cluster = importlib.import_module("tests.gathering.cluster").cluster
    with cluster(folder, workers=2, cores=1, memory="2g", settings=JVM) as it:
        os.environ.update(it.environment)
        yield it.url


def _spark(report: Report, where: World, table: MeterTable, demand: frozenset[str], master: str) -> None:
    begin = time.perf_counter()
    with _master(where.landing.root.parent / "cluster", master) as url:
        up = time.perf_counter()
        spark = session(url)
        try:
            spark.range(1).count()
            started = time.perf_counter()
            beside_sum, beside_hand = _contests_on_spark(spark, where, table)
        finally:
            spark.stop()
    ours, one, hand = (beside_hand[name] for name in ("ours", "one process", "by hand"))
    report.say("Spark: cluster up, session and first job", f"{up - begin:.0f} + {started - up:.0f} s")
    report.say("Spark: gather", f"{ours.core_s:.2f} core s")
    report.say("Spark: readings a second on two cores", f"{where.readings / ours.wall_s / 1e6:.1f} M")
    report.gate("Spark: ours / the same plan by hand", ours.core_s / hand.core_s, most=1.15)
    ratio = beside_sum["ours"].core_s / beside_sum["bare sum"].core_s
    report.gate("Spark: ours / its own bare sum", ratio, most=6)
    report.say("Spark: ours / ours in one process", f"{ours.core_s / one.core_s:.2f}")
    everyone = (*beside_sum.values(), *beside_hand.values())
    report.equal("ours on Spark, by hand, one process", demand, *(each.digests for each in everyone))


def _contests_on_spark(spark: Any, where: World, table: MeterTable) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Beside Spark's own sum; beside the same plan by hand and one process."""
    closings = close_all(where.landing, where.starts_s, table)
    plan = Plan(
        root=str(where.landing.root),
        meters=str(table.folder),
        shard_meters=where.landing.shard_meters,
        shards=table.shards,
        starts=tuple((start_s, where.landing.interval(start_s).name) for start_s in where.starts_s),
    )

    def bare() -> None:
        assert bare_sum(spark, where.landing.root, ZONE_NUMBERS) >= INTERVALS * len(table.zones)

    on_cluster = on_spark(spark)
    ours = Contestant(name="ours", run=lambda: demand_table(gather(where.landing, table, closings, on_cluster)))
    hand = Contestant(name="by hand", run=partial(by_hand, spark, plan, table.zones))
    plain = Contestant(name="bare sum", run=bare)
    one = Contestant(name="one process", run=lambda: demand_table(gather(where.landing, table, closings)))
    # The bare sum first: it takes the longest to warm up. The pair that should differ least gets the most rounds.
    return alternately([ours, plain], settle_s=0.3), alternately([ours, hand, one], rounds=7, settle_s=0.3)


def _oracle(report: Report, where: World, table: MeterTable, demand: frozenset[str]) -> None:
    """SQL over the raw files gives the same; and where one reading is changed, both give the same other demand."""
    oracle = once(partial(by_duckdb, where))
    report.say("DuckDB: the same in plain SQL", f"{oracle.core_s:.1f} core s")
    report.equal("DuckDB", oracle.digests, demand)
    ours = partial(close_and_gather, where, table, [FIRST_S])
    before = once(ours).digests
    change_one(where)
    where.reopen()
    after = once(ours).digests
    report.equal("one reading changed: ours, DuckDB", after, once(partial(by_duckdb, where, stamp(FIRST_S))).digests)
    report.say("digest: one reading changed", min(after)[:12], "another", held=after != before)
    report.broken |= after == before


def _sizes(report: Report, folder: Path, sizes: tuple[int, ...]) -> None:
    """A reading costs the same in a world of any size."""
    worlds = {meters: world(folder / str(meters), meters) for meters in sizes}
    for where in worlds.values():
        where.table()
    alone = in_processes_of_their_own({meters: folder / str(meters) for meters in sizes})
    readings = {meters: where.readings for meters, where in worlds.items()}
    each_ns = {meters: 1e9 * cost.gathering_s / readings[meters] for meters, cost in alone.items()}
    for meters, cost in alone.items():
        closing_ns = 1e9 * cost.closing_s / readings[meters]
        what = f"{readings[meters]:,} readings: to gather one, to close one"
        report.say(what, f"{each_ns[meters]:.0f}, {closing_ns:.0f} ns")
    report.gate("to gather one: the most / the least", max(each_ns.values()) / min(each_ns.values()), most=1.2)
    largest = max(sizes)
    report.gate(f"peak memory, {readings[largest]:,} readings", alone[largest].peak_gib, most=2, unit=" GiB")


def _appends(report: Report, folder: Path) -> None:
    """Appends in no order to one shard, each durable when it returns."""
    landing = Landing.create(folder / "appends")
    rng = np.random.default_rng(1)
    for start_s, count, times in ((FIRST_S, 1000, 20), (FIRST_S + landing.interval_s, 100_000, 5)):
        readings = Readings.of(meter=rng.permutation(count), energy_wh=rng.integers(0, 1400, count))
        cost = once(partial(_append, landing, start_s, readings, times))
        size = sum(path.stat().st_size for path in landing.interval(start_s).rglob("*.parquet"))
        name, readings_in_all = f"durable append of {count:,}:", count * times
        report.say(f"{name} a reading on disk", f"{size / readings_in_all:.2f} B")
        report.say(f"{name} core time of a reading", f"{1e9 * cost.core_s / readings_in_all:.0f} ns")
        report.say(f"{name} readings a second", f"{readings_in_all / cost.wall_s / 1e6:.2f} M")


def _append(landing: Landing, start_s: int, readings: Readings, times: int) -> None:
    for _ in range(times):
        assert append(landing, start_s, readings)


if __name__ == "__main__":
    sys.exit(main())
