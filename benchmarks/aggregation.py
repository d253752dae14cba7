"""The cost of aggregation and of other engines, as ratios of core seconds measured in one run.

    python -m benchmarks.aggregation [--readings 20000000] [--master spark://...] [--quick]

Makes a landing in a temporary folder. The demand is computed by our single process, by our job on a Spark cluster with
one master and two workers, by Polars, by the same plan written by hand for Spark, and by plain SQL in DuckDB. All
digests must be equal. A figure is the median of three rounds or more after a warm-up round, and a ratio the median of
the ratios in each round. `--master` is the URL of a Spark cluster on this machine; without it one is started. With
`--quick` only a digest that differs is an error.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.spark_cluster import cluster

from benchmarks.aggregation_data import (
    FIRST_S,
    INTERVALS,
    ZONE_METERS,
    SampleLanding,
    change_one_reading,
    make_sample_landing,
    meter_rows,
)
from benchmarks.aggregation_polars_duckdb import aggregate_with_duckdb, aggregate_with_polars, tally_only
from benchmarks.aggregation_spark import Plan, aggregate_by_hand
from benchmarks.cpu_seconds import Cost, Engine, measure_in_turn, measure_once
from benchmarks.goals import Goals, read_options
from murmurate.service.aggregation.job import aggregate_landing, close_intervals, demand_table
from murmurate.service.aggregation.spark import spark_session, spark_task_runner
from murmurate.service.aggregation.spark_driver import SparkEngine
from murmurate.service.landing.append import append_readings
from murmurate.service.landing.interval_manifest import IntervalManifest
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import MeterTable, load_shards, pin_table
from murmurate.types import Readings

SIZES = (100_000, 1_000_000, 5_000_000)  # meters, of ten intervals
QUICK_SIZES = (100_000, 200_000)
ROUNDS = 3
APPENDS = ((1_000, 1_000, 20), (131_072, 100_000, 10), (10**8, 100_000, 10))  # of so many meters: readings, times
_SERVICE_S = 300.0  # for a worker's engine to sum
_SPARK_ROUNDS, _SPARK_WARM_UP = 15, 14  # the first jobs cost up to twice as much, since Java compiles
# The tests' cluster is tuned to start quickly. Here Spark gets its default JVM.
JVM = {"spark.driver.extraJavaOptions": "-server", "spark.executor.extraJavaOptions": "-server"}
JVM |= {"spark.driver.memory": "1g", "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"}


class Report(Goals):
    """Goals of which those of time do not count where there are few readings."""

    def __init__(self, *, is_quick: bool) -> None:
        super().__init__()
        self._is_quick = is_quick

    def print_time(
        self, what: str, figure: float, unit: str = "", *, at_most: float = inf, at_least: float = -inf
    ) -> None:
        limits = {} if self._is_quick else {"at_most": at_most, "at_least": at_least}
        self.print_figure(what, figure, unit, **limits)

    def check_equal(self, what: str, first: frozenset[str], *others: frozenset[str]) -> None:
        """Check that all digests are the same."""
        self.check(f"digests are equal: {what}", min(first)[:12], held=len(first.union(*others)) == 1)


def main() -> int:
    """Print the figures. Return 1 where a digest differs or a figure misses its goal."""
    options = read_options(__doc__, readings=20_000_000, master="", quick=False)
    meters = (1_000_000 if options.quick else options.readings) // INTERVALS // ZONE_METERS * ZONE_METERS
    report = Report(is_quick=options.quick)
    with TemporaryDirectory(prefix="murmurate-aggregation-") as folder:
        sample = make_sample_landing(Path(folder) / "sample", meters)
        table = _pinned(report, sample)
        demand = _one_process(report, sample, table)
        _spark(report, sample, table, demand, options.master)
        _oracle(report, sample, table, demand)
        _sizes(report, Path(folder), QUICK_SIZES if options.quick else SIZES)
        _appends(report, Path(folder))
        _any_order(report, Path(folder), meters)
    return report.exit_status()


def _pinned(report: Report, sample: SampleLanding) -> MeterTable:
    table = sample.table()
    bytes_on_disk = sum(path.stat().st_size for path in sample.files())
    pinned = sum((sample.landing.root / name).stat().st_size for name in table.names)
    print(f"{sample.readings:,} readings of {table.meters:,} meters in {len(table.zones):,} zones")
    report.print_figure("a reading on disk", bytes_on_disk / sample.readings, "bytes")
    report.print_figure("a meter in the pinned table", pinned / table.meters, "bytes")
    return table


def _one_process(report: Report, sample: SampleLanding, table: MeterTable) -> frozenset[str]:
    """Compare our single process with Polars and with tallying alone. Return the digest of the demand."""
    shards = {shard: load_shards(table.store, table.version, (shard,)) for shard in table.shards}
    keys = [(start_s, shard) for shard in table.shards for start_s in sample.starts_s]
    files = {key: sorted(sample.landing.shard_folder(*key).glob("*.parquet")) for key in keys}
    ours = Engine(name="ours", run=partial(close_and_aggregate, sample, table, sample.starts_s), prepare=sample.reopen)
    polars = Engine(name="polars", run=partial(aggregate_with_polars, sample, table))
    tally = Engine(name="tally", run=partial(tally_only, files, shards))
    digests = Engine(name="digests", run=partial(_hash_files, sample))
    cost = measure_in_turn([ours, polars, tally, digests], rounds=15)
    own = cost["ours"]
    report.print_figure("one process: close, check, aggregate", own.core_s, "core s")
    report.print_figure("one process: readings a second", sample.readings / own.wall_s / 1e6, "M")
    report.print_time("one process: Polars / ours", cost["polars"].ratio_to(own), at_least=2.5)
    ratio = own.ratio_to(cost["tally"])
    report.print_time("one process: ours / decoding and tallying alone", ratio, at_most=1.6)
    report.print_figure("one process: SHA-256 of the files alone / ours", cost["digests"].ratio_to(own))
    report.check_equal("ours, Polars", own.digests, cost["polars"].digests)
    return own.digests


def _hash_files(sample: SampleLanding) -> None:
    """Hash each file, as every engine of ours does. Where the processor has no instructions for it, this is dear."""
    for path in sample.files():
        hashlib.sha256(path.read_bytes())


@contextmanager
def _master(folder: Path, given: str) -> Iterator[str]:
    """Yield the given master, or run a cluster of one master and two workers during the block."""
    if given:
        yield given
        return
    with cluster(folder, workers=2, cores=1, memory="2g", settings=JVM) as it:
        os.environ.update(it.environment)
        yield it.url


def _spark(report: Report, sample: SampleLanding, table: MeterTable, demand: frozenset[str], master: str) -> None:
    begin = time.perf_counter()
    with _master(sample.landing.root.parent / "cluster", master) as url:
        spark = spark_session(url)
        try:
            spark.range(1).count()
            started = time.perf_counter()
            plan_costs = _measure_on_spark(spark, sample, table)
        finally:
            spark.stop()
        service_costs = _measure_in_a_service(url, sample, table)
    ours, one, hand = (plan_costs[name] for name in ("ours", "one process", "by hand"))
    report.print_figure("Spark: cluster, session and first job", started - begin, "s")
    report.print_figure("Spark: aggregate", ours.core_s, "core s")
    report.print_time("Spark: ours / the same plan by hand", ours.ratio_to(hand), at_most=1.15)
    ratio = service_costs["in a service"].ratio_to(service_costs["one process"]) * one.ratio_to(hand)
    report.print_time("Spark: ours in a service / the same plan by hand, by one process", ratio, at_most=1.2)
    report.print_figure("Spark: ours / ours in one process", ours.ratio_to(one))
    all_costs = (*plan_costs.values(), *service_costs.values())
    report.check_equal("ours on Spark, by hand, one process", demand, *(each.digests for each in all_costs))


def _measure_on_spark(spark: Any, sample: SampleLanding, table: MeterTable) -> dict[str, Cost]:
    """Measure ours against the same plan by hand and one process."""
    manifests = close_intervals(sample.landing, sample.starts_s, table)
    plan = Plan(
        root=str(sample.landing.root),
        meters={at: f"{sample.landing.root}/{name}" for at, name in zip(table.shards, table.names[:-1], strict=True)},
        shard_meters=sample.landing.shard_meters,
        shards=table.shards,
        starts=tuple((start_s, sample.landing.interval_folder(start_s).name) for start_s in sample.starts_s),
    )
    on_cluster = spark_task_runner(spark)
    ours = Engine(
        name="ours", run=lambda: demand_table(aggregate_landing(sample.landing, table, manifests, on_cluster))
    )
    hand = Engine(name="by hand", run=partial(aggregate_by_hand, spark, plan, table.zones))
    one = Engine(name="one process", run=lambda: demand_table(aggregate_landing(sample.landing, table, manifests)))
    return measure_in_turn([ours, hand, one], rounds=_SPARK_ROUNDS, warm_up=_SPARK_WARM_UP, settle_s=0.3)


def _measure_in_a_service(url: str, sample: SampleLanding, table: MeterTable) -> dict[str, Cost]:
    """Measure the worker's engine, whose driver is a process of its own, and one process beside it.

    Another session on the cluster would have its idle Java counted here, and this one there.
    """
    manifests = close_intervals(sample.landing, sample.starts_s, table)
    service = SparkEngine(url)

    def fail(_: object) -> NoReturn:
        raise AssertionError("Spark failed")

    def run() -> pa.Table:
        run_tasks, slices = service.task_runner(fail, limit_s=_SERVICE_S, on_progress=lambda: None)
        return demand_table(aggregate_landing(sample.landing, table, manifests, run_tasks, slices))

    in_service = Engine(name="in a service", run=run)
    one = Engine(name="one process", run=lambda: demand_table(aggregate_landing(sample.landing, table, manifests)))
    try:
        return measure_in_turn([in_service, one], rounds=_SPARK_ROUNDS, warm_up=_SPARK_WARM_UP, settle_s=0.3)
    finally:
        service.close()


def _oracle(report: Report, sample: SampleLanding, table: MeterTable, demand: frozenset[str]) -> None:
    """Compare with SQL over the raw files, before and after one reading is changed."""
    oracle = measure_once(partial(aggregate_with_duckdb, sample))
    report.print_figure("DuckDB: the same in plain SQL", oracle.core_s, "core s")
    report.check_equal("DuckDB", oracle.digests, demand)
    ours = partial(close_and_aggregate, sample, table, [FIRST_S])
    before = measure_once(ours).digests
    change_one_reading(sample)
    after = measure_once(ours).digests
    report.check_equal(
        "one reading changed: ours, DuckDB",
        after,
        measure_once(partial(aggregate_with_duckdb, sample, interval_name(FIRST_S))).digests,
    )
    report.check("digest is another: one reading changed", min(after)[:12], held=after != before)


def close_and_aggregate(sample: SampleLanding, table: MeterTable, starts_s: Sequence[int]) -> pa.Table:
    """Compute the demand from the files: close the intervals, check each file, aggregate."""
    return demand_table(aggregate_landing(sample.landing, table, close_intervals(sample.landing, starts_s, table)))


def measure_round(folder: Path, meters: int) -> tuple[float, float, float]:
    """Return the core seconds of closing and of aggregation, and the peak memory of this process so far [GiB]."""
    sample = make_sample_landing(folder, meters)
    table = sample.table()
    sample.reopen()
    begin = time.process_time()
    manifests = close_intervals(sample.landing, sample.starts_s, table)
    closed = time.process_time()
    demand_table(aggregate_landing(sample.landing, table, manifests))
    end = time.process_time()
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())  # getrusage includes a larger parent
    assert peak is not None
    return closed - begin, end - closed, int(peak[1]) / 2**20


def _sizes(report: Report, folder: Path, sizes: tuple[int, ...]) -> None:
    """Check that a reading costs no more where there are more meters."""
    samples = {meters: make_sample_landing(folder / str(meters), meters) for meters in sizes}
    for sample in samples.values():
        sample.table()
    rounds: dict[int, list[tuple[float, ...]]] = {meters: [] for meters in sizes}
    with ExitStack() as stack:  # a process for each size, measured in turn; its first round is not counted
        spawn = multiprocessing.get_context("spawn")
        processes = {meters: stack.enter_context(spawn.Pool(1)) for meters in sizes}
        for _ in range(1 + ROUNDS):
            for meters, process in processes.items():
                rounds[meters].append(process.apply(measure_round, (folder / str(meters), meters)))
    readings = {meters: sample.readings for meters, sample in samples.items()}
    closing_s, core_s = ({meters: median(r[n] for r in rounds[meters][1:]) for meters in sizes} for n in (0, 1))
    each_ns = {meters: 1e9 * core_s[meters] / readings[meters] for meters in sizes}
    for meters in sizes:
        report.print_figure(f"{readings[meters]:,} readings: to aggregate one", each_ns[meters], "ns")
        closing_ns = 1e9 * closing_s[meters] / readings[meters]
        report.print_figure(f"{readings[meters]:,} readings: to close one", closing_ns, "ns")
    ratio = max(each_ns[more] / each_ns[fewer] for fewer, more in combinations(sorted(sizes), 2))
    report.print_time("to aggregate one: of more readings / of fewer", ratio, at_most=1.2)
    peak_gib = max(each[2] for each in rounds[max(sizes)])
    report.print_figure(f"peak memory, {max(readings.values()):,} readings", peak_gib, "GiB", at_most=2)


def _appends(report: Report, folder: Path) -> None:
    """Measure durable appends of unordered readings: of one shard, and of as many as 10^8 meters have."""
    landing = Landing.create(folder / "appends")
    rng = np.random.default_rng(1)
    of_one_ns = 0.0
    for number, (meters, count, times) in enumerate(APPENDS):
        start_s = FIRST_S + number * landing.interval_s
        commits = [
            Readings(meter=rng.choice(meters, count, replace=False), energy_wh=rng.integers(0, 1400, count))
            for _ in range(1 + times)
        ]
        _append(landing, start_s, commits[:1])  # not measured
        cost = measure_once(partial(_append, landing, start_s, commits[1:]))
        sizes = [path.stat().st_size for path in landing.interval_folder(start_s).rglob("*.parquet")]
        shards, total = -(-meters // landing.shard_meters), count * times
        name, each_ns = f"durable append of {count:,} over {shards:,} shards:", 1e9 * cost.core_s / total
        report.print_figure(f"{name} a reading on disk", sum(sizes) / (total + count), "bytes")
        report.print_figure(f"{name} core time of a reading", each_ns, "ns")
        report.print_figure(f"{name} readings a second", total / cost.wall_s / 1e6, "M")
        report.print_figure(f"{name} files of a commit", len(sizes) / len(commits), at_most=2)
        if (meters, count) == APPENDS[1][:2]:
            of_one_ns = each_ns
        elif count == APPENDS[1][1]:
            report.print_time(f"{name} core time over one shard's", each_ns / of_one_ns, at_most=2)


def _append(landing: Landing, start_s: int, commits: Sequence[Readings]) -> None:
    for readings in commits:
        assert append_readings(landing, start_s, readings)


def _any_order(report: Report, folder: Path, meters: int) -> None:
    """Aggregate an interval of commits of 100,000 meters in any order, and one of commits of neighbours."""
    landing = Landing.create(folder / "order" / "landing")
    source = folder / "order" / "meters.parquet"
    pq.write_table(meter_rows(meters), source)
    table = pin_table(landing, source)
    rng = np.random.default_rng(2)
    energy_wh = rng.integers(0, 1400, meters)
    starts_s = {"neighbours": FIRST_S, "any order": FIRST_S + landing.interval_s}
    for name, start_s in starts_s.items():
        order = np.arange(meters) if name == "neighbours" else rng.permutation(meters)
        for some in np.array_split(order, max(1, meters // 100_000)):
            assert append_readings(landing, start_s, Readings(meter=some, energy_wh=energy_wh[some]))
    manifests = dict(zip(starts_s, close_intervals(landing, starts_s.values(), table), strict=True))
    run = partial(aggregate_landing, landing, table)
    demands = {name: run([manifest])[manifest.start_s] for name, manifest in manifests.items()}
    same = np.array_equal(demands["neighbours"].energy_wh, demands["any order"].energy_wh)
    report.check("demand is equal: commits of neighbours, in any order", f"{meters:,} meters", held=same)

    def sum_one(manifest: IntervalManifest) -> None:
        run([manifest])

    engines = [Engine(name=name, run=partial(sum_one, manifest)) for name, manifest in manifests.items()]
    cost = measure_in_turn(engines)
    ratio = cost["any order"].ratio_to(cost["neighbours"])
    report.print_time("commits in any order / of neighbours, aggregated", ratio, at_most=2)


if __name__ == "__main__":
    sys.exit(main())
