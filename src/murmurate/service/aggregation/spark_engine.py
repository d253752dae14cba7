"""The aggregation job on a Spark cluster: the same tasks, run on any worker, merged on the driver.

A task opens the files of its shard itself, so readings never travel between machines and a meter's duplicates meet
where they lie. Spark decides where a task runs and runs it again when a machine is lost; what comes back is one small
tally for each task. Workers need this package, and the landing under the same path.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from murmurate import errors
from murmurate.aggregation import Tally
from murmurate.errors import MurmurateError
from murmurate.service.aggregation.job import ShardTask, TaskRunner, run_task

_SLICES_PER_CORE = 4
_TALLY_COLUMNS = ("zones", "energy_wh", "reported", "imputed")


def spark_task_runner(spark: Any, *, slices: int | None = None) -> TaskRunner:
    """Run the tasks of `job.aggregate_landing` on this session, in this many slices.

    A Databricks or EMR job gives its own session:
    ``aggregate_landing(landing, table, manifests, spark_task_runner(spark))``.
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
                raise _error_from_json(row["refusal"])
            yield decode_tally(bytes(row["tally"]))

    return run


def spark_session(master: str) -> Any:
    """A Spark session of our own, quiet, with the Python that runs here."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  only a session of our own needs it: a job has one already

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_local_master(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("murmurate aggregate")
    for key, value in _spark_settings(master).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise MurmurateError("--master", master, f"no session there. {_last_line(error)}") from error


def _spark_settings(master: str) -> dict[str, str]:
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log}"
    if _is_local_master(master):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _is_local_master(master: str) -> bool:
    return master.startswith("local") or "//127.0.0.1:" in master or "//localhost:" in master


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
    """On a Spark worker: the tallies of the tasks with these numbers."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _task_result(pickle.loads(pickled_tasks[number]))  # noqa: S301  from our own driver, as this function itself is


def _task_result(task: ShardTask) -> pa.RecordBatch:
    """The tallies of a task, or its error. Raised here, Spark would retry the task and return a Java error."""
    blobs: list[bytes | None]
    try:
        blobs, refusal = [encode_tally(start_s, part) for start_s, part in run_task(task)], None
    except MurmurateError as error:
        blobs, refusal = [None], json.dumps([type(error).__name__, error.field, str(error.value), error.allowed])
    columns = [pa.array(blobs, pa.binary()), pa.array([refusal] * len(blobs), pa.string())]
    return pa.record_batch(columns, names=["tally", "refusal"])


def _error_from_json(refusal: str) -> MurmurateError:
    """The error of a Spark worker, to be raised on the driver."""
    name, *facts = json.loads(refusal)
    kind: type[MurmurateError] = getattr(errors, name)
    return kind(*facts)


def encode_tally(start_s: int, part: Tally) -> bytes:
    """A tally of one shard as bytes: whole numbers, the head first, then column after column."""
    (shard,) = part.shards
    head = [start_s, shard, part.readings, part.wrong_interval, part.unknown_meter]
    return np.concatenate([np.array(head, np.int64), *(getattr(part, name) for name in _TALLY_COLUMNS)]).tobytes()


def decode_tally(blob: bytes) -> tuple[int, Tally]:
    numbers = np.frombuffer(blob, np.int64)
    start_s, shard, readings, wrong_interval, unknown_meter = (int(number) for number in numbers[:5])
    columns = dict(zip(_TALLY_COLUMNS, numbers[5:].reshape(len(_TALLY_COLUMNS), -1), strict=True))
    shards = frozenset({shard})
    return start_s, Tally(
        shards=shards, readings=readings, wrong_interval=wrong_interval, unknown_meter=unknown_meter, **columns
    )
