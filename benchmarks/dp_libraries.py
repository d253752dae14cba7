"""The same private sum by murmurate and by other libraries: seconds, core seconds and errors.

    python -m benchmarks.dp_libraries [--python LIBRARY=INTERPRETER ...] [NAME ...]
    python -m benchmarks.dp_libraries --one NAME

The job: 1,000,000 unordered rows of 1,000 zones with 1,000 homes each; whole Wh, clipped to 0 .. 3000; the sum of each
zone with Laplace noise of scale 3000, epsilon 1. Warm, the median of three. Preparation before the readings arrive is
not timed. Tumult and OpenDP read Parquet, which is faster for them than a frame in memory; the others read the rows
from memory. python-dp and diffprivlib have no groups: NumPy sorts for them. Engines whose name ends in -ids count each
home once, as ours does; the others count every row.

The libraries cannot be installed together, so each runs in a separate process, if necessary under another interpreter,
which needs NumPy and that library only. `--one` runs one engine in this process and prints a line of JSON. Without it
a table is printed, with the ratios to the first engine. A library that is not installed is named, with its install
command. The exit status is 1 if a sum is wrong (an error beyond 20 scales, or a mean error that differs from the scale
by more than a fifth) or an engine fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

ZONES, HOMES, BOUND_WH, EPSILON = 1000, 1000, 3000, 1
ROUNDS, WARM_S = 3, 30.0

Job = Callable[[], Any]  # the noisy sums, [zone]


class Rows(NamedTuple):
    zone: NDArray[np.int64]
    home: NDArray[np.int64]
    energy_wh: NDArray[np.int64]

    @classmethod
    def sample(cls) -> Rows:
        """Return rows from a fixed seed. One reading in seven exceeds the bound."""
        rng = np.random.default_rng(1)
        home = rng.permutation(ZONES * HOMES)
        return cls(home // HOMES, home, rng.integers(0, BOUND_WH * 7 // 6, ZONES * HOMES))

    def by_zone(self) -> list[NDArray[np.int64]]:
        """Return the readings of each zone, for a library without groups."""
        order = np.argsort(self.zone.astype(np.int16), kind="stable")
        return np.split(self.energy_wh[order], np.cumsum(np.bincount(self.zone, minlength=ZONES))[:-1])


def our_noise() -> Job:
    noise = import_module("murmurate.privacy.noise")
    return partial(noise.SystemNoise().draw, noise.NoiseDistribution.LAPLACE, np.full(ZONES, BOUND_WH / EPSILON))


def ours(rows: Rows) -> Job:
    aggregation, types = map(import_module, ("murmurate.aggregation", "murmurate.types"))
    zones, zone = tuple(map(str, range(ZONES))), np.repeat(np.arange(ZONES), HOMES)
    meters = types.Meters(zones=zones, zone=zone, bound_wh=np.full_like(zone, BOUND_WH), imputed_wh=0 * zone)
    readings, draw = types.Readings.from_columns(meter=rows.home, energy_wh=rows.energy_wh), our_noise()
    return lambda: aggregation.aggregate([readings], meters).energy_wh + draw()


def polars(rows: Rows, *, ids: bool = False) -> Job:
    pl, draw = import_module("polars"), our_noise()
    plan = pl.DataFrame(rows._asdict()).lazy()
    plan = plan.group_by("home").agg(pl.col("zone").first(), pl.col("energy_wh").max()) if ids else plan
    plan = plan.group_by("zone").agg(pl.col("energy_wh").clip(0, BOUND_WH).sum()).sort("zone")
    return lambda: plan.collect()["energy_wh"].to_numpy() + draw()


def python_dp(rows: Rows) -> Job:
    bounded_sum = import_module("pydp.algorithms.laplacian").BoundedSum
    terms = {"epsilon": EPSILON, "delta": 0, "lower_bound": 0, "upper_bound": BOUND_WH, "dtype": "int"}
    return lambda: [bounded_sum(**terms).quick_result(zone.tolist()) for zone in rows.by_zone()]


def diffprivlib(rows: Rows) -> Job:
    total = partial(import_module("diffprivlib.tools").sum, epsilon=EPSILON, bounds=(0, BOUND_WH), dtype=int)
    return lambda: list(map(total, rows.by_zone()))


def opendp(rows: Rows, *, ids: bool = False, ready: bool = True) -> Job:
    """`ready`: the measurement is made once; otherwise each release makes a context, which searches the scale again."""
    pl, dp = import_module("polars"), import_module("opendp.prelude")
    dp.enable_features("contrib")
    pl.DataFrame(rows._asdict()).write_parquet("rows.parquet")
    frame, keys = pl.scan_parquet("rows.parquet"), pl.LazyFrame({"zone": np.arange(ZONES)})
    unit = dp.unit_of(contributions=1, identifier=pl.col("home")) if ids else dp.unit_of(contributions=1)
    promise = {"privacy_unit": unit, "privacy_loss": dp.loss_of(epsilon=float(EPSILON)), "split_evenly_over": 1}
    margins = [dp.polars.Margin(by=["zone"], invariant="keys", max_length=HOMES)]

    def query() -> Any:
        query = dp.Context.compositor(data=frame, margins=margins, **promise).query()
        truncated = query.truncate_per_group(1) if ids else query
        sums = truncated.group_by("zone").agg(pl.col("energy_wh").fill_null(0).dp.sum((0, BOUND_WH)))
        return sums.with_keys(keys) if ids else sums

    release: Job = partial(query().resolve(), frame) if ready else lambda: query().release()
    return lambda: release().collect().sort("zone")["energy_wh"]


def tumult(rows: Rows, *, ids: bool = False) -> Job:
    analytics, arrow, parquet = map(import_module, ("tmlt.analytics", "pyarrow", "pyarrow.parquet"))
    parquet.write_table(arrow.table(rows._asdict()), "rows.parquet", row_group_size=len(rows.home) // 8)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.master": "local[*]", "spark.driver.memory": "4g", "spark.sql.shuffle.partitions": os.cpu_count()}
    spark = import_module("pyspark.sql").SparkSession.builder.config(map=settings).getOrCreate()
    frame = spark.read.parquet(str(Path("rows.parquet").absolute()))
    unit = analytics.AddRowsWithID(id_column="home") if ids else analytics.AddOneRow()
    session = analytics.Session.from_dataframe(analytics.PureDPBudget(float("inf")), "rows", frame, unit)
    builder, keys = analytics.QueryBuilder("rows"), analytics.KeySet.from_dict({"zone": list(range(ZONES))})
    limited = builder.enforce(analytics.MaxRowsPerID(1)) if ids else builder
    query = limited.groupby(keys).sum("energy_wh", low=0, high=BOUND_WH, name="sum")
    return lambda: [row["sum"] for row in sorted(session.evaluate(query, analytics.PureDPBudget(EPSILON)).collect())]


def pipelinedp(rows: Rows, *, ids: bool = False) -> Job:
    pdp = import_module("pipeline_dp")
    records = list(zip(*(column.tolist() for column in rows), strict=True))
    columns = pdp.DataExtractors((lambda row: row[1]) if ids else None, lambda row: row[0], lambda row: row[2])
    terms = {"metrics": [pdp.Metrics.SUM], "noise_kind": pdp.NoiseKind.LAPLACE, "min_value": 0, "max_value": BOUND_WH}
    terms |= {"max_partitions_contributed": 1, "max_contributions_per_partition": 1}
    terms |= {"contribution_bounds_already_enforced": not ids}

    def job() -> list[float]:
        budget = pdp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=0)
        engine = pdp.DPEngine(budget, pdp.LocalBackend())
        sums = engine.aggregate(records, pdp.AggregateParams(**terms), columns, public_partitions=list(range(ZONES)))
        budget.compute_budgets()
        return [total.sum for _, total in sorted(sums)]

    return job


_POLARS = ("polars", "whole, exact", "polars, with murmurate")
_OPENDP = ("opendp", "whole, exact", "'opendp[polars]'")
_TUMULT = ("tmlt.analytics", "whole, exact", "tmlt.analytics (Python 3.10 to 3.12, Java 8 to 17)")
_PIPELINE = ("pipeline-dp", "float on a grid", "pipeline-dp (Python 3.11 to 3.13)")
ENGINES: dict[str, tuple[Callable[[Rows], Job], str, str, str]] = {  # (.., package, noise, to install)
    "ours": (ours, "murmurate", "whole, exact", "murmurate"),
    "polars": (polars, *_POLARS),
    "polars-ids": (partial(polars, ids=True), *_POLARS),
    "python-dp": (python_dp, "python-dp", "whole, on a grid", "numpy python-dp"),
    "diffprivlib": (diffprivlib, "diffprivlib", "whole, by floats", "diffprivlib 'scikit-learn<1.8'"),
    "opendp": (opendp, *_OPENDP),
    "opendp-ids": (partial(opendp, ids=True), *_OPENDP),
    "opendp-context": (partial(opendp, ready=False), *_OPENDP),
    "tumult": (tumult, *_TUMULT),
    "tumult-ids": (partial(tumult, ids=True), *_TUMULT),
    "pipelinedp": (pipelinedp, *_PIPELINE),
    "pipelinedp-ids": (partial(pipelinedp, ids=True), *_PIPELINE),
}


def descendants_s() -> float:
    """Return the core seconds of all descendants of this process, ended or, like Spark's JVM, running."""
    family, tick = {}, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            field = stat.read_text().rpartition(")")[2].split()
            family[int(stat.parent.name)] = int(field[1]), sum(map(int, field[11:15])) / tick
    spent, parents = os.times().children_user + os.times().children_system, {os.getpid()}
    while parents := {pid for pid, (parent, _) in family.items() if parent in parents}:
        spent += sum(family[pid][1] for pid in parents)
    return spent


def timed(job: Job) -> tuple[float, float, Any]:
    """Return the seconds, the core seconds of this process and its descendants, and the sums."""
    before, own, begin = descendants_s(), time.process_time(), time.perf_counter()
    sums = job()
    seconds, own = time.perf_counter() - begin, time.process_time() - own
    return seconds, own + descendants_s() - before, sums


def run_here(name: str) -> dict[str, Any]:
    """Run an engine in this process."""
    rows, (prepare, package, noise, needs) = Rows.sample(), ENGINES[name]
    try:
        job = prepare(rows)
    except ImportError as error:
        return {"name": name, "problem": f"not installed ({error}): pip install {needs}"}
    warm = time.perf_counter() + WARM_S
    job()
    while time.perf_counter() < warm:
        job()
    seconds, core_seconds, sums = zip(*(timed(job) for _ in range(ROUNDS)), strict=True)
    truth = np.bincount(rows.zone, np.minimum(rows.energy_wh, BOUND_WH), ZONES)
    error_wh = np.abs(np.array(sums, np.float64) - truth)
    errors = {"max_error_wh": error_wh.max(), "mean_error_wh": error_wh.mean()}
    times = {"seconds": seconds, "core_seconds": core_seconds}
    return {"name": name, "version": metadata.version(package), "noise": noise, **times, **errors}


def run_in_process(name: str, interpreter: str) -> dict[str, Any]:
    """Run an engine in a separate process."""
    command, here = [interpreter, "-m", "benchmarks.dp_libraries", "--one", name], Path(__file__).parents[1]
    result = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)  # noqa: S603
    if result.returncode:
        return {"name": name, "problem": f"FAILED with status {result.returncode}: {result.stderr.strip()[-500:]}"}
    return dict(json.loads(result.stdout.splitlines()[-1]))


def report(result: dict[str, Any], first: dict[str, Any]) -> bool:
    """Print a row of the table. Return whether it is correct."""
    if "problem" in result:
        print(f"{result['name']:<15} {result['problem']}", flush=True)
        return "FAILED" not in result["problem"]
    cells = "{name:<15} {version:<8} {noise:<17}".format(**result)
    for key in ("seconds", "core_seconds"):
        cells += f"{np.median(result[key]):9.3f} {np.median(result[key]) / np.median(first.get(key, np.nan)):8.1f} "
    errors = np.array([result["max_error_wh"], result["mean_error_wh"]]) * EPSILON / BOUND_WH
    right = bool(errors[0] <= 20 and 0.8 <= errors[1] <= 1.2)
    print(f"{cells} {errors[0]:9.2f} {errors[1]:9.2f}{'' if right else '  WRONG'}", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(ENGINES)}")
    parser.add_argument("--python", action="append", default=[], metavar="LIBRARY=INTERPRETER")
    parser.add_argument("--one", choices=ENGINES, metavar="NAME")
    options, results, held = parser.parse_args(), [], []
    if options.one:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.chdir(folder)  # for Parquet, and for what Spark leaves behind
            print(json.dumps(run_here(options.one)))
        return 0
    other = dict(pair.split("=", 1) for pair in options.python)
    print(f"{'':<42}{'seconds':>9} {'ratio':>8} {'core s':>9} {'ratio':>8}  {'max':>9} {'mean':>9} error, in scales")
    for name in options.names or ENGINES:
        results.append(run_in_process(name, str(other.get(name, other.get(name.partition("-")[0], sys.executable)))))
        held.append(report(results[-1], results[0]))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
