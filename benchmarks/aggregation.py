"""The cost of aggregation and of other engines, as ratios of core seconds measured in one run.

    python -m benchmarks.aggregation [--readings 20000000] [--master spark://...] [--quick]

Makes a landing in a temporary folder. The demand is computed by our single process, by our job on a Spark cluster with
one master and two workers, by Polars, by the same plan written by hand for Spark, and by plain SQL in DuckDB. All
digests must be equal. A figure is the median of three rounds after a warm-up round. The exit status is 1 if a digest
differs or a figure misses its goal by more than a quarter.
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

from benchmarks.aggregation_data import (
    FIRST_S,
    INTERVALS,
    ZONE_METERS,
    ZONE_NUMBERS,
    SampleLanding,
    change_one_reading,
    make_sample_landing,
)
from benchmarks.aggregation_polars_duckdb import aggregate_with_duckdb, aggregate_with_polars, tally_only
from benchmarks.aggregation_process import close_and_aggregate, measure_separate_processes
from benchmarks.aggregation_spark import Plan, aggregate_by_hand, plain_spark_sum
from benchmarks.cpu_seconds import Cost, Engine, measure_in_turn, measure_once
from murmurate.service.aggregation.demand_file import demand_table
from murmurate.service.aggregation.job import aggregate_landing, close_intervals
from murmurate.service.aggregation.spark_engine import spark_session, spark_task_runner
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import MeterTable, load_shard
from murmurate.types import Readings

TOLERANCE = 1.25  # factor on a goal before the benchmark fails
SIZES = (100_000, 1_000_000, 5_000_000)  # meters, of ten intervals
QUICK_SIZES = (100_000, 200_000)
# The tests' cluster is tuned to start quickly. Here Spark gets its default JVM.
JVM = {"spark.driver.extraJavaOptions": "-server", "spark.executor.extraJavaOptions": "-server"}
JVM |= {"spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"}


@dataclass(slots=True)
class Report:
    """Prints the table row by row, and keeps whether a row missed its limit."""

    binding: bool = True  # without it goals are shown, and only a digest that differs is an error
    broken: bool = False
    took: list[str] = field(default_factory=list)

    def print_row(self, what: str, figure: str, allowed: str = "", *, held: bool = True) -> None:
        verdict = "" if not allowed else "ok" if held else "MISSED"
        print(f"{what:<64} {figure:>13}  {allowed:<13} {verdict}".rstrip(), flush=True)

    def check_limit(
        self, what: str, value: float, *, at_most: float = np.inf, at_least: float = 0.0, unit: str = ""
    ) -> None:
        allowed = f"at least {at_least:g}" if at_least else f"at most {at_most:g}"
        self.print_row(what, f"{value:.2f}{unit}", allowed, held=at_least <= value <= at_most)
        self.broken |= self.binding and (value > TOLERANCE * at_most or value * TOLERANCE < at_least)

    def check_equal(self, what: str, first: frozenset[str], *others: frozenset[str]) -> None:
        """Check that all digests are the same."""
        same = len(first.union(*others)) == 1
        self.print_row(f"digest: {what}", min(first)[:12], "equal", held=same)
        self.broken |= not same

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.took.append(f"{name} {time.perf_counter() - begin:.0f}")


def main() -> int:
    """Print the table. Return 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", type=int, default=20_000_000)
    parser.add_argument(
        "--master", default="", help="URL of a Spark cluster on this machine; without it one is started"
    )
    parser.add_argument("--quick", action="store_true", help="few readings; only a digest that differs is an error")
    options = parser.parse_args()
    meters = (1_000_000 if options.quick else options.readings) // INTERVALS // ZONE_METERS * ZONE_METERS
    report = Report(binding=not options.quick)
    print(f"{'what':<64} {'figure':>13}  allowed")
    with TemporaryDirectory(prefix="murmurate-aggregation-") as folder, report.stage("all"):
        with report.stage("making readings"):
            sample = make_sample_landing(Path(folder) / "sample", meters)
            table = _pinned(report, sample)
        with report.stage("one process"):
            demand = _one_process(report, sample, table)
        with report.stage("Spark"):
            _spark(report, sample, table, demand, options.master)
        with report.stage("oracle"):
            _oracle(report, sample, table, demand)
        with report.stage("sizes"):
            _sizes(report, Path(folder), QUICK_SIZES if options.quick else SIZES)
        with report.stage("appends"):
            _appends(report, Path(folder))
    print(f"seconds: {', '.join(report.took)}")
    return int(report.broken)


def _pinned(report: Report, sample: SampleLanding) -> MeterTable:
    begin = time.perf_counter()
    table = sample.table()
    took = time.perf_counter() - begin
    bytes_on_disk = sum(path.stat().st_size for path in sample.files())
    pinned = sum(path.stat().st_size for path in table.folder.iterdir())
    report.print_row("readings", f"{sample.readings:,}")
    report.print_row("meters", f"{table.meters:,}")
    report.print_row("zones", f"{len(table.zones):,}")
    report.print_row("a reading on disk, meters in no order", f"{bytes_on_disk / sample.readings:.2f} B")
    report.print_row("a meter in the pinned table", f"{pinned / table.meters:.1f} B")
    report.print_row("pinning the meter table", f"{took:.2f} s")
    return table


def _one_process(report: Report, sample: SampleLanding, table: MeterTable) -> frozenset[str]:
    """Compare our single process with Polars and with tallying alone. Return the digest of the demand."""
    shards = {shard: load_shard(table.folder, shard) for shard in table.shards}
    keys = [(start_s, shard) for shard in table.shards for start_s in sample.starts_s]
    files = {key: sorted(sample.landing.shard_folder(*key).glob("*.parquet")) for key in keys}
    ours = Engine(name="ours", run=partial(close_and_aggregate, sample, table, sample.starts_s), prepare=sample.reopen)
    polars = Engine(name="polars", run=partial(aggregate_with_polars, sample, table))
    tally = Engine(name="tally", run=partial(tally_only, files, shards))
    cost = measure_in_turn([ours, polars, tally])
    own = cost["ours"]
    report.print_row("one process: close, check, aggregate", f"{own.core_s:.2f} core s")
    report.print_row("one process: readings a second", f"{sample.readings / own.wall_s / 1e6:.1f} M")
    report.check_limit("one process: Polars / ours", cost["polars"].core_s / own.core_s, at_least=0.8)
    report.check_limit(
        "one process: ours / decoding and tallying alone", own.core_s / cost["tally"].core_s, at_most=1.6
    )
    report.check_equal("ours, Polars", own.digests, cost["polars"].digests)
    return own.digests


@contextmanager
def _master(folder: Path, given: str) -> Iterator[str]:
    """Yield the given master, or run a cluster of one master and two workers during the block."""
    if given:
        yield given
        return
    cluster = importlib.import_module("tests.support.spark_cluster").cluster
    with cluster(folder, workers=2, cores=1, memory="2g", settings=JVM) as it:
        os.environ.update(it.environment)
        yield it.url


def _spark(report: Report, sample: SampleLanding, table: MeterTable, demand: frozenset[str], master: str) -> None:
    begin = time.perf_counter()
    with _master(sample.landing.root.parent / "cluster", master) as url:
        up = time.perf_counter()
        spark = spark_session(url)
        try:
            spark.range(1).count()
            started = time.perf_counter()
            sum_costs, plan_costs = _measure_on_spark(spark, sample, table)
        finally:
            spark.stop()
    ours, one, hand = (plan_costs[name] for name in ("ours", "one process", "by hand"))
    report.print_row("Spark: cluster up, session and first job", f"{up - begin:.0f} + {started - up:.0f} s")
    report.print_row("Spark: aggregate", f"{ours.core_s:.2f} core s")
    report.print_row("Spark: readings a second on two cores", f"{sample.readings / ours.wall_s / 1e6:.1f} M")
    report.check_limit("Spark: ours / the same plan by hand", ours.core_s / hand.core_s, at_most=1.15)
    ratio = sum_costs["ours"].core_s / sum_costs["plain sum"].core_s
    report.check_limit("Spark: ours / Spark's plain sum", ratio, at_most=6)
    report.print_row("Spark: ours / ours in one process", f"{ours.core_s / one.core_s:.2f}")
    all_costs = (*sum_costs.values(), *plan_costs.values())
    report.check_equal("ours on Spark, by hand, one process", demand, *(each.digests for each in all_costs))


def _measure_on_spark(spark: Any, sample: SampleLanding, table: MeterTable) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Measure ours against Spark's plain sum, and ours against the same plan by hand and one process."""
    manifests = close_intervals(sample.landing, sample.starts_s, table)
    plan = Plan(
        root=str(sample.landing.root),
        meters=str(table.folder),
        shard_meters=sample.landing.shard_meters,
        shards=table.shards,
        starts=tuple((start_s, sample.landing.interval_folder(start_s).name) for start_s in sample.starts_s),
    )

    def run_plain_sum() -> None:
        assert plain_spark_sum(spark, sample.landing.root, ZONE_NUMBERS) >= INTERVALS * len(table.zones)

    on_cluster = spark_task_runner(spark)
    ours = Engine(
        name="ours", run=lambda: demand_table(aggregate_landing(sample.landing, table, manifests, on_cluster))
    )
    hand = Engine(name="by hand", run=partial(aggregate_by_hand, spark, plan, table.zones))
    plain = Engine(name="plain sum", run=run_plain_sum)
    one = Engine(name="one process", run=lambda: demand_table(aggregate_landing(sample.landing, table, manifests)))
    # The plain sum first: it takes longest to warm up. The engines that differ least get the most rounds.
    return measure_in_turn([ours, plain], settle_s=0.3), measure_in_turn([ours, hand, one], rounds=7, settle_s=0.3)


def _oracle(report: Report, sample: SampleLanding, table: MeterTable, demand: frozenset[str]) -> None:
    """Compare with SQL over the raw files, before and after one reading is changed."""
    oracle = measure_once(partial(aggregate_with_duckdb, sample))
    report.print_row("DuckDB: the same in plain SQL", f"{oracle.core_s:.1f} core s")
    report.check_equal("DuckDB", oracle.digests, demand)
    ours = partial(close_and_aggregate, sample, table, [FIRST_S])
    before = measure_once(ours).digests
    change_one_reading(sample)
    sample.reopen()
    after = measure_once(ours).digests
    report.check_equal(
        "one reading changed: ours, DuckDB",
        after,
        measure_once(partial(aggregate_with_duckdb, sample, interval_name(FIRST_S))).digests,
    )
    report.print_row("digest: one reading changed", min(after)[:12], "another", held=after != before)
    report.broken |= after == before


def _sizes(report: Report, folder: Path, sizes: tuple[int, ...]) -> None:
    """Check that a reading costs the same for any number of meters."""
    samples = {meters: make_sample_landing(folder / str(meters), meters) for meters in sizes}
    for sample in samples.values():
        sample.table()
    costs = measure_separate_processes({meters: folder / str(meters) for meters in sizes})
    readings = {meters: sample.readings for meters, sample in samples.items()}
    each_ns = {meters: 1e9 * cost.aggregation_s / readings[meters] for meters, cost in costs.items()}
    for meters, cost in costs.items():
        closing_ns = 1e9 * cost.closing_s / readings[meters]
        what = f"{readings[meters]:,} readings: to aggregate one, to close one"
        report.print_row(what, f"{each_ns[meters]:.0f}, {closing_ns:.0f} ns")
    report.check_limit(
        "to aggregate one: the most / the least", max(each_ns.values()) / min(each_ns.values()), at_most=1.2
    )
    largest = max(sizes)
    report.check_limit(f"peak memory, {readings[largest]:,} readings", costs[largest].peak_gib, at_most=2, unit=" GiB")


def _appends(report: Report, folder: Path) -> None:
    """Measure durable appends of unordered readings to one shard."""
    landing = Landing.create(folder / "appends")
    rng = np.random.default_rng(1)
    for start_s, count, times in ((FIRST_S, 1000, 20), (FIRST_S + landing.interval_s, 100_000, 5)):
        readings = Readings.from_columns(meter=rng.permutation(count), energy_wh=rng.integers(0, 1400, count))
        cost = measure_once(partial(_append, landing, start_s, readings, times))
        size = sum(path.stat().st_size for path in landing.interval_folder(start_s).rglob("*.parquet"))
        name, total_readings = f"durable append of {count:,}:", count * times
        report.print_row(f"{name} a reading on disk", f"{size / total_readings:.2f} B")
        report.print_row(f"{name} core time of a reading", f"{1e9 * cost.core_s / total_readings:.0f} ns")
        report.print_row(f"{name} readings a second", f"{total_readings / cost.wall_s / 1e6:.2f} M")


def _append(landing: Landing, start_s: int, readings: Readings, times: int) -> None:
    for _ in range(times):
        assert append_readings(landing, start_s, readings)


if __name__ == "__main__":
    sys.exit(main())
