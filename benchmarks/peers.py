"""The same private sum by us and by our peers: seconds, core seconds and errors, side by side.

    python -m benchmarks.peers [--python PEER=INTERPRETER ...] [NAME ...]
    python -m benchmarks.peers --one NAME

The job: 1,000,000 rows of 1,000 zones with 1,000 homes each, in no order; whole Wh, clipped to 0 .. 3000; the sum of
each zone with Laplace noise of scale 3000, epsilon 1. Warm, the median of three. What can be made ready before the
readings come is not timed. Tumult and OpenDP read Parquet, which is quicker for them than a frame in memory; the others
find the rows in memory. python-dp and diffprivlib know no groups: NumPy sorts for them. Contestants whose name ends in
-ids count each home once whatever it sends, as ours does; the others trust the rows.

Our peers exclude one another, so each runs in a process of its own, if need be under another interpreter, which needs
NumPy and that peer and not us. `--one` runs one here and prints a line of JSON. Without it a table is printed, with the
ratios to the first; whoever is not installed is named, and how to install it. Ends with status 1 if a sum is wrong (an
error beyond 20 scales, or errors whose mean is not the scale within a fifth) or a contestant fails.
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
    def some(cls) -> Rows:
        """From a fixed seed; one reading in seven exceeds the bound."""
        rng = np.random.default_rng(1)
        home = rng.permutation(ZONES * HOMES)
        return cls(home // HOMES, home, rng.integers(0, BOUND_WH * 7 // 6, ZONES * HOMES))

    def apart(self) -> list[NDArray[np.int64]]:
        """The readings of each zone, for a library without groups."""
        order = np.argsort(self.zone.astype(np.int16), kind="stable")
        return np.split(self.energy_wh[order], np.cumsum(np.bincount(self.zone, minlength=ZONES))[:-1])


def our_noise() -> Job:
    noise = import_module("murmurate.privacy.noise")
    return partial(noise.SystemNoise().draw, noise.NoiseLaw.LAPLACE, np.full(ZONES, BOUND_WH / EPSILON))


def ours(rows: Rows) -> Job:
    gathering, quantities = map(import_module, ("murmurate.curator.gathering", "murmurate.quantities"))
    zones, zone = tuple(map(str, range(ZONES))), np.repeat(np.arange(ZONES), HOMES)
    meters = quantities.Meters(zones=zones, zone=zone, bound_wh=np.full_like(zone, BOUND_WH), imputed_wh=0 * zone)
    readings, draw = quantities.Readings.of(meter=rows.home, energy_wh=rows.energy_wh), our_noise()
    return lambda: gathering.gather([readings], meters).energy_wh + draw()


def polars(rows: Rows, *, ids: bool = False) -> Job:
    pl, draw = import_module("polars"), our_noise()
    plan = pl.DataFrame(rows._asdict()).lazy()
    plan = plan.group_by("home").agg(pl.col("zone").first(), pl.col("energy_wh").max()) if ids else plan
    plan = plan.group_by("zone").agg(pl.col("energy_wh").clip(0, BOUND_WH).sum()).sort("zone")
    return lambda: plan.collect()["energy_wh"].to_numpy() + draw()


def python_dp(rows: Rows) -> Job:
    bounded_sum = import_module("pydp.algorithms.laplacian").BoundedSum
    terms = {"epsilon": EPSILON, "delta": 0, "lower_bound": 0, "upper_bound": BOUND_WH, "dtype": "int"}
    return lambda: [bounded_sum(**terms).quick_result(zone.tolist()) for zone in rows.apart()]


def diffprivlib(rows: Rows) -> Job:
    total = partial(import_module("diffprivlib.tools").sum, epsilon=EPSILON, bounds=(0, BOUND_WH), dtype=int)
    return lambda: list(map(total, rows.apart()))


def opendp(rows: Rows, *, ids: bool = False, ready: bool = True) -> Job:
    """`ready`: the measurement is found once; else each release has a context, which searches for the scale anew."""
    pl, dp = import_module("polars"), import_module("opendp.prelude")
    dp.enable_features("contrib")
    pl.DataFrame(rows._asdict()).write_parquet("rows.parquet")
    frame, keys = pl.scan_parquet("rows.parquet"), pl.LazyFrame({"zone": np.arange(ZONES)})
    unit = dp.unit_of(contributions=1, identifier=pl.col("home")) if ids else dp.unit_of(contributions=1)
    promise = {"privacy_unit": unit, "privacy_loss": dp.loss_of(epsilon=float(EPSILON)), "split_evenly_over": 1}
    margins = [dp.polars.Margin(by=["zone"], invariant="keys", max_length=HOMES)]

    def query() -> Any:
        asked = dp.Context.compositor(data=frame, margins=margins, **promise).query()
        once = asked.truncate_per_group(1) if ids else asked
        sums = once.group_by("zone").agg(pl.col("energy_wh").fill_null(0).dp.sum((0, BOUND_WH)))
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
    asked, keys = analytics.QueryBuilder("rows"), analytics.KeySet.from_dict({"zone": list(range(ZONES))})
    once = asked.enforce(analytics.MaxRowsPerID(1)) if ids else asked
    query = once.groupby(keys).sum("energy_wh", low=0, high=BOUND_WH, name="sum")
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


_POLARS = ("polars", "whole, exact", "polars, beside murmurate")
_OPENDP = ("opendp", "whole, exact", "'opendp[polars]'")
_TUMULT = ("tmlt.analytics", "whole, exact", "tmlt.analytics (Python 3.10 to 3.12, Java 8 to 17)")
_PIPELINE = ("pipeline-dp", "float on a grid", "pipeline-dp (Python 3.11 to 3.13)")
CONTESTANTS: dict[str, tuple[Callable[[Rows], Job], str, str, str]] = {  # (.., package, noise, to install)
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
    """Core seconds so far of all processes that descend from this one, dead or, like Spark's JVM, alive."""
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
    """(seconds, core seconds of this process and its descendants, what came out)"""
    before, own, begin = descendants_s(), time.process_time(), time.perf_counter()
    sums = job()
    seconds, own = time.perf_counter() - begin, time.process_time() - own
    return seconds, own + descendants_s() - before, sums


def one(name: str) -> dict[str, Any]:
    """Runs a contestant in this process."""
    rows, (prepare, package, noise, needs) = Rows.some(), CONTESTANTS[name]
    try:
        job = prepare(rows)
    except ImportError as error:
        return {"name": name, "trouble": f"not installed ({error}): pip install {needs}"}
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


def alone(name: str, interpreter: str) -> dict[str, Any]:
    """Runs a contestant in a process of its own."""
    command, here = [interpreter, "-m", "benchmarks.peers", "--one", name], Path(__file__).parents[1]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return {"name": name, "trouble": f"FAILED with status {done.returncode}: {done.stderr.strip()[-500:]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def report(result: dict[str, Any], first: dict[str, Any]) -> bool:
    """Prints a row of the table; whether there is nothing wrong with it."""
    if "trouble" in result:
        print(f"{result['name']:<15} {result['trouble']}", flush=True)
        return "FAILED" not in result["trouble"]
    cells = "{name:<15} {version:<8} {noise:<17}".format(**result)
    for key in ("seconds", "core_seconds"):
        cells += f"{np.median(result[key]):9.3f} {np.median(result[key]) / np.median(first.get(key, np.nan)):8.1f} "
    errors = np.array([result["max_error_wh"], result["mean_error_wh"]]) * EPSILON / BOUND_WH
    right = bool(errors[0] <= 20 and 0.8 <= errors[1] <= 1.2)
    print(f"{cells} {errors[0]:9.2f} {errors[1]:9.2f}{'' if right else '  WRONG'}", flush=True)
    return right


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(CONTESTANTS)}")
    parser.add_argument("--python", action="append", default=[], metavar="PEER=INTERPRETER")
    parser.add_argument("--one", choices=CONTESTANTS, metavar="NAME")
    asked, results, held = parser.parse_args(), [], []
    if asked.one:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.chdir(folder)  # for Parquet, and for what Spark leaves behind
            print(json.dumps(one(asked.one)))
        return 0
    other = dict(pair.split("=", 1) for pair in asked.python)
    print(f"{'':<42}{'seconds':>9} {'ratio':>8} {'core s':>9} {'ratio':>8}  {'max':>9} {'mean':>9} error, in scales")
    for name in asked.names or CONTESTANTS:
        results.append(alone(name, str(other.get(name, other.get(name.partition("-")[0], sys.executable)))))
        held.append(report(results[-1], results[0]))
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
