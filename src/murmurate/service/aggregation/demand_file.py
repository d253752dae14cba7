"""The demand as a Parquet file: one row for each interval and zone. Confidential: readable by its owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.planning.household_bounds import encode_bounds
from murmurate.service.aggregation.job import IntervalDemand
from murmurate.service.storage import durable

_DEMAND_COLUMNS = ("energy_wh", "reported", "imputed")
DEMAND_SCHEMA = pa.schema(
    [
        ("interval_start", pa.timestamp("ms", "UTC")),
        ("zone", pa.string()),
        *((name, pa.int64()) for name in _DEMAND_COLUMNS),
        ("bounds", pa.string()),
    ]
)


def demand_table(demands: Sequence[IntervalDemand]) -> pa.Table:
    """The rows, by interval and zone."""
    start_ms = np.repeat(
        np.array([interval.start_s * 1000 for interval in demands], np.int64),
        [len(interval.demand.zones) for interval in demands],
    )
    zones = [zone for interval in demands for zone in interval.demand.zones]
    columns = [np.concatenate([getattr(interval.demand, name) for interval in demands]) for name in _DEMAND_COLUMNS]
    start = pa.array(start_ms, DEMAND_SCHEMA.field("interval_start").type)
    bounds = [
        encode_bounds(interval.demand.bounds_at(row))
        for interval in demands
        for row in range(len(interval.demand.zones))
    ]
    return pa.table(
        [start, pa.array(zones, pa.string()), *columns, pa.array(bounds, pa.string())], schema=DEMAND_SCHEMA
    )


def write_demand(path: Path, demands: Sequence[IntervalDemand]) -> None:
    """Write the demand, whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(demand_table(demands), sink)
    durable.write_file(path, memoryview(sink.getvalue()))
