"""Gather from a table of a lake (Delta, Iceberg, any Spark DataFrame) instead of a landing.

The readings are moved once, so that those of a shard meet on one machine; the kernel and the merge are the same. What a
closing is to a landing, a snapshot is to a lake: hand in the table at a version, and the same version gives the same
demand for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from murmurate.curator.gathering import Tally, tally
from murmurate.errors import ReadingError
from murmurate.quantities import Readings
from murmurate.service.gathering.job import Gathered, total
from murmurate.service.gathering.metertable import MeterTable, load, load_shard
from murmurate.service.gathering.spark import decode, encode, slices_for

_MICRO = 10**6
_WHOLE = ("bigint", "int", "smallint", "tinyint")


def gather_table(
    readings: Any, table: MeterTable, starts_s: Sequence[int], *, slices: int | None = None
) -> list[Gathered]:
    """The demand of these intervals [begin, s of UTC] from a DataFrame of meter, interval_start and energy_wh.

    Readings of other intervals are passed over and not counted. Workers need the folder of the pinned meter table.
    """
    _check(dict(readings.dtypes))
    asked = readings.selectExpr(
        f"CAST(meter AS BIGINT) DIV {table.shard_meters} AS shard",
        "unix_micros(interval_start) AS start_us",
        "CAST(meter AS BIGINT) AS meter",
        "CAST(energy_wh AS BIGINT) AS energy_wh",
    ).where(f"start_us IN ({', '.join(str(start_s * _MICRO) for start_s in starts_s)})")
    moved = asked.dropna().repartition(slices or slices_for(readings.sparkSession, most=len(table.shards)), "shard")
    grouped = moved.sortWithinPartitions("shard", "start_us")
    found: dict[int, list[Tally]] = {start_s: [] for start_s in starts_s}
    for row in grouped.mapInArrow(partial(_tallies, str(table.folder)), "tally binary").collect():
        start_s, part = decode(bytes(row["tally"]))
        found[start_s].append(part)
    return [total(start_s, [*parts, *_silent(parts, table)], table) for start_s, parts in found.items()]


def _check(kinds: dict[str, str]) -> None:
    """A cast would round what is not whole."""
    wanted = {"meter": _WHOLE, "energy_wh": _WHOLE, "interval_start": ("timestamp",)}
    for name, allowed in wanted.items():
        if kinds.get(name) not in allowed:
            raise ReadingError(name, kinds.get(name, "missing"), f"must be a column of type {' or '.join(allowed)}")


def _silent(parts: Sequence[Tally], table: MeterTable) -> Iterator[Tally]:
    """Shards that nobody has heard of count too: all their meters are silent."""
    for shard in sorted(set(table.shards).difference(*(part.shards for part in parts))):
        yield tally([], load_shard(table.folder, shard))


def _tallies(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: the tally of each shard and interval that comes by, in their order."""
    known = load(Path(folder)).shards
    for number, pieces in groupby(_pieces(batches), key=lambda piece: piece[0]):
        if number not in known:
            continue
        shard = load_shard(Path(folder), number)
        for start_us, some in groupby(pieces, key=lambda piece: piece[1]):
            part = tally((readings for *_, readings in some), shard)
            blob = encode(start_us // _MICRO, part)
            yield pa.record_batch([pa.array([blob], pa.binary())], names=["tally"])


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Readings]]:
    """Batches cut where a shard or an interval ends."""
    for batch in batches:
        shard, start_us, meter, energy_wh = (column.to_numpy() for column in batch.columns)
        ends = np.flatnonzero((np.diff(shard) != 0) | (np.diff(start_us) != 0)) + 1
        for begin, end in pairwise([0, *ends.tolist(), len(shard)]):
            readings = Readings(meter=meter[begin:end], energy_wh=energy_wh[begin:end])
            if len(readings):
                yield int(shard[begin]), int(start_us[begin]), readings
