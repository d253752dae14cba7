"""The demand as a Parquet file: one row for each interval and zone. Confidential: readable by its owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.curator.bounds import decode_bounds, encode_bounds
from murmurate.quantities import Demand
from murmurate.service.gathering import durable
from murmurate.service.gathering.job import Gathered

_COLUMNS = ("energy_wh", "reported", "imputed")
SCHEMA = pa.schema(
    [
        ("interval_start", pa.timestamp("ms", "UTC")),
        ("zone", pa.string()),
        *((name, pa.int64()) for name in _COLUMNS),
        ("bounds", pa.string()),
    ]
)


def table(gathered: Sequence[Gathered]) -> pa.Table:
    """The rows, by interval and zone."""
    start_ms = np.repeat(
        np.array([one.start_s * 1000 for one in gathered], np.int64), [len(one.demand.zones) for one in gathered]
    )
    zones = [zone for one in gathered for zone in one.demand.zones]
    columns = [np.concatenate([getattr(one.demand, name) for one in gathered]) for name in _COLUMNS]
    start = pa.array(start_ms, SCHEMA.field("interval_start").type)
    bounds = [encode_bounds(one.demand.bounds_at(place)) for one in gathered for place in range(len(one.demand.zones))]
    return pa.table([start, pa.array(zones, pa.string()), *columns, pa.array(bounds, pa.string())], schema=SCHEMA)


def write(path: Path, gathered: Sequence[Gathered]) -> None:
    """Write the demand, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(table(gathered), sink)
    durable.write(path, memoryview(sink.getvalue()))


def read(path: Path) -> dict[int, Demand]:
    """The demand of each interval in a file, by its begin [s of UTC]."""
    rows = pq.read_table(path, partitioning=None)
    start_ms = rows["interval_start"].cast(pa.int64()).to_numpy()
    found = {}
    for begin in np.unique(start_ms):
        some = rows.filter(pa.array(start_ms == begin))
        columns = {name: some[name].to_numpy() for name in _COLUMNS}
        bounds = tuple(map(decode_bounds, some["bounds"].to_pylist()))
        found[int(begin) // 1000] = Demand(zones=tuple(some["zone"].to_pylist()), bounds=bounds, **columns)
    return found
