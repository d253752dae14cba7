"""Aggregate from a table of a data lake (Delta, Iceberg, any Spark DataFrame) instead of a landing.

The readings are moved once, so that those of a shard meet on one machine; the kernel and the merge are the same. The
snapshot of a table takes the part of an interval's manifest: the same version of the table always gives the same
demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from murmurate.aggregation import Tally, tally_readings
from murmurate.errors import ReadingError
from murmurate.service.aggregation.job import IntervalDemand, total_demand
from murmurate.service.aggregation.spark_engine import decode_tally, encode_tally, slice_count
from murmurate.service.landing.meter_table import MeterTable, load_shard, load_table
from murmurate.types import Readings
from murmurate.units import MICROSECONDS_PER_SECOND

_INTEGER_TYPES = ("bigint", "int", "smallint", "tinyint")


def aggregate_table(
    readings: Any, table: MeterTable, starts_s: Sequence[int], *, slices: int | None = None
) -> list[IntervalDemand]:
    """The demand of these intervals [begin, s of UTC] from a DataFrame of meter, interval_start and energy_wh.

    Readings of other intervals are passed over and not counted. Workers need the folder of the pinned meter table.
    """
    _check_columns(dict(readings.dtypes))
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
    for row in grouped.mapInArrow(partial(_tally_partition, str(table.folder)), "tally binary").collect():
        start_s, part = decode_tally(bytes(row["tally"]))
        tallies[start_s].append(part)
    return [
        total_demand(start_s, [*parts, *_missing_shard_tallies(parts, table)], table)
        for start_s, parts in tallies.items()
    ]


def _check_columns(column_types: dict[str, str]) -> None:
    """A cast would round what is not whole."""
    required = {"meter": _INTEGER_TYPES, "energy_wh": _INTEGER_TYPES, "interval_start": ("timestamp",)}
    for name, allowed in required.items():
        if column_types.get(name) not in allowed:
            raise ReadingError(
                name, column_types.get(name, "missing"), f"must be a column of type {' or '.join(allowed)}"
            )


def _missing_shard_tallies(parts: Sequence[Tally], table: MeterTable) -> Iterator[Tally]:
    """Shards without any reading count too: all their meters are imputed."""
    for shard in sorted(set(table.shards).difference(*(part.shards for part in parts))):
        yield tally_readings([], load_shard(table.folder, shard))


def _tally_partition(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: the tally of each shard and interval that comes by, in their order."""
    known = load_table(Path(folder)).shards
    for number, pieces in groupby(_split_batches(batches), key=lambda piece: piece[0]):
        if number not in known:
            continue
        shard = load_shard(Path(folder), number)
        for start_us, group in groupby(pieces, key=lambda piece: piece[1]):
            part = tally_readings((readings for *_, readings in group), shard)
            blob = encode_tally(start_us // MICROSECONDS_PER_SECOND, part)
            yield pa.record_batch([pa.array([blob], pa.binary())], names=["tally"])


def _split_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Readings]]:
    """Batches cut where a shard or an interval ends."""
    for batch in batches:
        shard, start_us, meter, energy_wh = (column.to_numpy() for column in batch.columns)
        ends = np.flatnonzero((np.diff(shard) != 0) | (np.diff(start_us) != 0)) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(shard)]):
            readings = Readings(meter=meter[begin:end], energy_wh=energy_wh[begin:end])
            if len(readings):
                yield int(shard[begin]), int(start_us[begin]), readings
