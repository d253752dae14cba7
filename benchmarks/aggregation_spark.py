"""Aggregation on Spark written by hand for one landing.

This file imports nothing from murmurate: a worker needs only NumPy and PyArrow. The plan is the same as ours: a task
opens the files of its shard, and the driver adds up the results. It does not check the files.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_MICRO = 10**6
_SLICES = 8  # four per core
_NO_READING = -(2**63)  # no reading of the sample is as small


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings of every task."""

    root: str
    meters: Mapping[int, str]  # file of each shard of the pinned table
    shard_meters: int
    shards: tuple[int, ...]
    starts: tuple[tuple[int, str], ...]  # (begin [s of UTC], folder) of each interval


def aggregate_by_hand(spark: Any, plan: Plan, zones: Sequence[str]) -> pa.Table:
    """Return the demand of every interval and zone."""
    from pyspark import cloudpickle  # noqa: PLC0415  pyspark is an optional extra

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    tasks = spark.range(0, len(plan.shards), 1, min(_SLICES, len(plan.shards)))
    sums = np.zeros((3, len(plan.starts), len(zones)), np.int64)
    for row in tasks.mapInArrow(lambda batches: _work(plan, batches), "part binary").collect():
        numbers = np.frombuffer(row["part"], np.int64).reshape(1 + 3 * len(plan.starts), -1)
        sums[:, :, numbers[0]] += numbers[1:].reshape(3, len(plan.starts), -1)
    start = np.repeat([begin * _MICRO for begin, _ in plan.starts], len(zones))
    columns = {"interval_start": pa.array(start, pa.timestamp("us", "UTC")), "zone": list(zones) * len(plan.starts)}
    return pa.table(columns | dict(zip(("energy_wh", "reported", "imputed"), sums.reshape(3, -1), strict=True)))


def _work(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute the sums of some shards on a worker."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part = _one_shard(plan, plan.shards[number])
            yield pa.record_batch([pa.array([part.tobytes()], pa.binary())], names=["part"])


def _one_shard(plan: Plan, shard: int) -> Any:
    """Return the zones, then energy, reported and imputed of each interval.

    All arrays are indexed by the meter's number in its shard. Numbers without a meter have an extra zone, removed here.
    """
    table = pq.read_table(plan.meters[shard], use_threads=False, partitioning=None)
    column = {name: table[name].to_numpy() for name in table.column_names}
    first, size = shard * plan.shard_meters, plan.shard_meters
    at = column["meter"] - first
    meters_per_zone = np.bincount(column["zone"])
    zones = np.flatnonzero(meters_per_zone)
    of_meter = np.cumsum(meters_per_zone > 0)[column["zone"]] - 1
    zone, (bound_wh, imputed_wh, least_wh) = np.full(size, len(zones)), np.zeros((3, size), np.int64)
    zone[at], bound_wh[at], imputed_wh[at] = of_meter, column["bound_wh"], column["imputed_wh"]
    least_wh[at] = -column["export_bound_wh"]
    energy, imputed = [], []
    for start_s, folder in plan.starts:
        reading_wh = _largest_readings(Path(plan.root) / folder / f"shard={shard}", start_s * _MICRO, first, size)
        silent = reading_wh == _NO_READING
        counted = np.where(silent, imputed_wh, np.clip(reading_wh, least_wh, bound_wh))
        total = np.zeros(len(zones) + 1, np.int64)
        np.add.at(total, zone, counted)
        energy.append(total[:-1])
        imputed.append(np.bincount(zone[silent], minlength=len(zones) + 1)[:-1])
    return np.stack([zones, *energy, *(meters_per_zone[zones] - missing for missing in imputed), *imputed])


def _largest_readings(folder: Path, start_us: int, first: int, size: int) -> Any:
    """Return the largest reading of each meter, `_NO_READING` where there is none."""
    reading_wh = np.full(size, _NO_READING)
    for path in folder.glob("*.parquet"):
        with pq.ParquetFile(path, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(131_072, use_threads=False):
                meter, start, energy_wh = (column.view(pa.int64()).to_numpy() for column in batch.columns)
                np.maximum.at(reading_wh, meter - first, np.where(start == start_us, energy_wh, _NO_READING))
    return reading_wh
