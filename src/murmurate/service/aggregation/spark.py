"""The aggregation job on a Spark cluster: the same tasks, run on any worker, merged on the driver.

A task opens the files of its shard itself, so readings never travel between machines and a meter's duplicates meet
where they lie. Spark decides where a task runs and runs it again when a machine is lost; what comes back is one small
tally for each task. Workers need this package, and the landing under the same path.

`aggregate_table` aggregates a table of a data lake (Delta, Iceberg, any Spark DataFrame) instead of a landing. The
readings are moved once, so that those of a shard meet on one machine; the kernel and the merge are the same. The
snapshot of a table takes the part of an interval's manifest: the same version of the table always gives the same
demand.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from murmurate import errors
from murmurate.aggregation import Tally, tally_readings
from murmurate.errors import MurmurateError, ReadingError
from murmurate.service.aggregation.job import ShardTask, TaskRunner, run_task, total_demand
from murmurate.service.landing.meter_table import MeterTable, load_shards, load_table
from murmurate.service.storage.open_store import open_store
from murmurate.types import Demand, Readings
from murmurate.units import MICROSECONDS_PER_SECOND

_SLICES_PER_CORE = 4
_INTEGER_TYPES = ("bigint", "int", "smallint", "tinyint")
_TALLY_COLUMNS = ("zones", "energy_wh", "reported", "imputed", "silent_bound_wh", "silent_export_bound_wh")


def spark_task_runner(spark: Any, *, slices: int | None = None) -> TaskRunner:
    """Run the tasks of `job.aggregate_landing` on this session, in this many slices.

    A Databricks or EMR job gives its own session:
    ``aggregate_landing(landing, table, manifests, spark_task_runner(spark), min_tasks=8)``, with four for each core.
    """

    def run(jobs: Sequence[ShardTask]) -> Iterator[tuple[int, Tally]]:
        numbers = spark.range(0, len(jobs), 1, slices or slice_count(spark, max_slices=len(jobs)))
        try:
            packed = [pickle.dumps(job) for job in jobs]  # every slice gets all of them, and unpacks its own
            rows = numbers.mapInArrow(partial(_run_slice, packed), "tally binary, refusal string").collect()
        except Exception as error:  # Spark has many kinds, and each is a page long
            raise MurmurateError("Spark", "failed", _last_line(error)) from error
        for row in rows:
            if row["refusal"] is not None:
                kind, *facts = json.loads(row["refusal"])
                refusal: MurmurateError = getattr(errors, kind)(*facts)
                raise refusal
            yield decode_tally(bytes(row["tally"]))

    return run


def spark_session(master: str) -> Any:
    """A Spark session of our own, quiet, with the Python that runs here."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  only a session of our own needs it: a job has one already

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log}"
    if master.startswith("local") or "//127.0.0.1:" in master or "//localhost:" in master:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.master(master).appName("murmurate step aggregate")
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise MurmurateError("--master", master, f"no session there. {_last_line(error)}") from error


def check_session(spark: Any) -> None:
    """Wait until a machine runs a task of this package. Raise MurmurateError where it cannot."""
    try:
        spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").collect()
    except Exception as error:
        raise MurmurateError("Spark", "without a machine that runs tasks", _last_line(error)) from error


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _last_line(error: Exception) -> str:
    """What a page of a worker's and Java's traces comes to: the line before Java begins."""
    lines = str(error).partition("\n\tat ")[0].splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), type(error).__name__)


def slice_count(spark: Any, max_slices: int) -> int:
    """How many slices a job has: a few for each core, where the session knows the number of cores."""
    context: Any = getattr(spark, "_sc", None)  # a Spark Connect session has none
    slices = max_slices if context is None else _SLICES_PER_CORE * int(context.defaultParallelism)
    return max(1, min(slices, max_slices))


def _run_slice(pickled_tasks: Sequence[bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a Spark worker: the tallies of the tasks with these numbers, or the error of one, in one batch.

    Raised here, Spark would retry the task and return a Java error.
    """
    blobs: list[bytes] = []
    refusal = None
    for number in [number for batch in batches for number in batch.column(0).to_pylist()]:  # all input is read
        task: ShardTask = pickle.loads(pickled_tasks[number])  # noqa: S301  from our own driver, as this function itself is
        try:
            blobs += [encode_tally(start_s, part) for start_s, part in run_task(task)]
        except MurmurateError as error:
            blobs, refusal = [b""], json.dumps([type(error).__name__, error.field, str(error.value), error.allowed])
            break
    columns = [pa.array(blobs, pa.binary()), pa.array([refusal] * len(blobs), pa.string())]
    yield pa.record_batch(columns, names=["tally", "refusal"])


def encode_tally(start_s: int, part: Tally) -> bytes:
    """A tally of some shards as bytes: whole numbers, the head first, then column after column."""
    counts = [part.readings, part.wrong_interval, part.unknown_meter]
    head = [start_s, *counts, len(part.shards), *sorted(part.shards)]
    return np.concatenate([np.array(head, np.int64), *(getattr(part, name) for name in _TALLY_COLUMNS)]).tobytes()


def decode_tally(blob: bytes) -> tuple[int, Tally]:
    numbers = np.frombuffer(blob, np.int64)
    start_s, readings, wrong_interval, unknown_meter, shard_count = numbers[:5].tolist()
    columns = dict(zip(_TALLY_COLUMNS, numbers[5 + shard_count :].reshape(len(_TALLY_COLUMNS), -1), strict=True))
    shards = frozenset(numbers[5 : 5 + shard_count].tolist())
    return start_s, Tally(
        shards=shards, readings=readings, wrong_interval=wrong_interval, unknown_meter=unknown_meter, **columns
    )


def aggregate_table(
    readings: Any, table: MeterTable, starts_s: Sequence[int], *, slices: int | None = None
) -> dict[int, Demand]:
    """The demand of these intervals [begin, s of UTC] from a DataFrame of meter, interval_start and energy_wh.

    Readings of other intervals are passed over and not counted. Workers need the landing, for its meter table.
    """
    required = {"meter": _INTEGER_TYPES, "energy_wh": _INTEGER_TYPES, "interval_start": ("timestamp",)}
    for name, allowed in required.items():  # a cast would round what is not whole
        if (kind := dict(readings.dtypes).get(name, "missing")) not in allowed:
            raise ReadingError(name, kind, f"must be a column of type {' or '.join(allowed)}")
    selected = readings.selectExpr(
        f"CAST(meter AS BIGINT) DIV {table.shard_meters} AS shard",
        "unix_micros(interval_start) AS start_us",
        "CAST(meter AS BIGINT) AS meter",
        "CAST(energy_wh AS BIGINT) AS energy_wh",
    ).where(f"start_us IN ({', '.join(str(start_s * MICROSECONDS_PER_SECOND) for start_s in starts_s)})")
    by_shard = selected.dropna().repartition(
        slices or slice_count(readings.sparkSession, max_slices=len(table.shards)), "shard"
    )
    grouped = by_shard.sortWithinPartitions("shard", "start_us")
    tallies: dict[int, list[Tally]] = {start_s: [] for start_s in starts_s}
    for row in grouped.mapInArrow(
        partial(_tally_partition, table.store.address, table.version), "tally binary"
    ).collect():
        start_s, part = decode_tally(bytes(row["tally"]))
        tallies[start_s].append(part)
    for parts in tallies.values():  # shards without any reading count too: all their meters are imputed
        for shard in sorted(set(table.shards).difference(*(part.shards for part in parts))):
            parts.append(tally_readings([], load_shards(table.store, table.version, (shard,))))
    return {start_s: total_demand(parts, table) for start_s, parts in tallies.items()}


def _tally_partition(landing: str, version: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: the tally of each shard and interval that comes by, in their order."""

    def split_batches() -> Iterator[tuple[int, int, Readings]]:
        """Cut batches where a shard or an interval ends."""
        for batch in batches:
            shard, start_us, meter, energy_wh = (column.to_numpy() for column in batch.columns)
            ends = np.flatnonzero((np.diff(shard) != 0) | (np.diff(start_us) != 0)) + 1
            for begin, end in pairwise([0, *ends.tolist(), len(shard)]):
                if begin < end:
                    readings = Readings(meter=meter[begin:end], energy_wh=energy_wh[begin:end])
                    yield int(shard[begin]), int(start_us[begin]), readings

    store = open_store(landing)
    known = load_table(store, version).shards
    for number, pieces in groupby(split_batches(), key=lambda piece: piece[0]):
        if number not in known:
            continue
        shard = load_shards(store, version, (number,))
        for start_us, group in groupby(pieces, key=lambda piece: piece[1]):
            part = tally_readings((readings for *_, readings in group), shard)
            blob = encode_tally(start_us // MICROSECONDS_PER_SECOND, part)
            yield pa.record_batch([pa.array([blob], pa.binary())], names=["tally"])
