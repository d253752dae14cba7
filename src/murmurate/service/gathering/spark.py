"""The gather job on a Spark cluster: one process' tasks, run anywhere, merged here.

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
from murmurate.curator.gathering import Tally
from murmurate.errors import MurmurateError
from murmurate.service.gathering.job import Run, Task, run_task

_SLICES_PER_CORE = 4
_COLUMNS = ("zones", "energy_wh", "reported", "imputed")


def on_spark(spark: Any, *, slices: int | None = None) -> Run:
    """Run the tasks of `job.gather` on this session, in as many slices as wished.

    A Databricks or EMR job hands in the session it has: ``gather(landing, table, closings, on_spark(spark))``.
    """

    def run(jobs: Sequence[Task]) -> Iterator[tuple[int, Tally]]:
        numbers = spark.range(0, len(jobs), 1, slices or slices_for(spark, most=len(jobs)))
        try:
            packed = [pickle.dumps(job) for job in jobs]  # every slice gets all of them, and unpacks its own
            rows = numbers.mapInArrow(partial(_run, packed), "tally binary, refusal string").collect()
        except Exception as error:  # Spark has many kinds, and each is a page long
            raise MurmurateError("Spark", "failed", _last_line(error)) from error
        for row in rows:
            if row["refusal"] is not None:
                raise _refused(row["refusal"])
            yield decode(bytes(row["tally"]))

    return run


def session(master: str) -> Any:
    """A Spark session of our own, quiet, with the Python that runs here."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  only a session of our own needs it: a job has one already

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("murmurate gather")
    for key, value in _settings(master).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise MurmurateError("--master", master, f"no session there. {_last_line(error)}") from error


def _settings(master: str) -> dict[str, str]:
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    ours = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    ours["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log}"
    if _on_this_machine(master):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return ours


def _on_this_machine(master: str) -> bool:
    return master.startswith("local") or "//127.0.0.1:" in master or "//localhost:" in master


def _last_line(error: Exception) -> str:
    """What a page of a worker's and Java's traces comes to: the line before Java begins."""
    told = str(error).partition("\n\tat ")[0].splitlines()
    return next((line.strip() for line in reversed(told) if line.strip()), type(error).__name__)


def slices_for(spark: Any, most: int) -> int:
    """Into how many pieces to cut a job: a few for each core, where the session tells how many there are."""
    context: Any = getattr(spark, "_sc", None)  # a Spark Connect session has none
    wanted = most if context is None else _SLICES_PER_CORE * int(context.defaultParallelism)
    return max(1, min(wanted, most))


def _run(packed: Sequence[bytes], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: the tallies of the tasks whose numbers come in."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield _answer(pickle.loads(packed[number]))  # noqa: S301  from our own driver, as this function itself is


def _answer(task: Task) -> pa.RecordBatch:
    """The tallies of a task, or why it is refused: raised here, it would be tried again and come back as Java."""
    blobs: list[bytes | None]
    try:
        blobs, why = [encode(start_s, part) for start_s, part in run_task(task)], None
    except MurmurateError as error:
        blobs, why = [None], json.dumps([type(error).__name__, error.field, str(error.value), error.allowed])
    columns = [pa.array(blobs, pa.binary()), pa.array([why] * len(blobs), pa.string())]
    return pa.record_batch(columns, names=["tally", "refusal"])


def _refused(why: str) -> MurmurateError:
    """A worker's refusal, to be raised where it is read."""
    name, *facts = json.loads(why)
    kind: type[MurmurateError] = getattr(errors, name)
    return kind(*facts)


def encode(start_s: int, part: Tally) -> bytes:
    """A tally of one shard as bytes: whole numbers, the head first, then column after column."""
    (shard,) = part.shards
    head = [start_s, shard, part.readings, part.astray, part.unknown]
    return np.concatenate([np.array(head, np.int64), *(getattr(part, name) for name in _COLUMNS)]).tobytes()


def decode(blob: bytes) -> tuple[int, Tally]:
    numbers = np.frombuffer(blob, np.int64)
    start_s, shard, readings, astray, unknown = (int(number) for number in numbers[:5])
    columns = dict(zip(_COLUMNS, numbers[5:].reshape(len(_COLUMNS), -1), strict=True))
    shards = frozenset({shard})
    return start_s, Tally(shards=shards, readings=readings, astray=astray, unknown=unknown, **columns)
