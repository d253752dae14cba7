"""Request bodies for the ingest API, and the rows of the batch that is read from them."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

INTERVAL_S = 900
START_S = 1_767_225_600  # 2026-01-01T00:00:00Z
CANARY = 8675309

names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
starts = st.integers(0, 2**31 // INTERVAL_S).map(lambda k: k * INTERVAL_S)
energy = st.integers(0, 2**53 - 1)
zones = st.integers(-12 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
rows = st.lists(st.tuples(names, starts, energy, st.none() | st.binary(min_size=1, max_size=64).map(bytes.hex)))


def rfc_3339(seconds: int, zone: tzinfo = UTC) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()


def columns(batch: Any) -> list[tuple[Any, ...]]:
    signatures = batch.signature or [None] * len(batch)
    return list(zip(list(batch.meter), batch.start_s.tolist(), batch.energy_wh.tolist(), signatures, strict=True))


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def table(meters: Sequence[object], start_s: Any, energy_wh: Any, unit: str = "us") -> pa.Table:
    meter = pa.array(meters, pa.string() if meters and isinstance(meters[0], str) else pa.int64())
    start = pa.array(start_s, pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    name = "meter_id" if pa.types.is_string(meter.type) else "meter"
    return pa.table({name: meter, "interval_start": start, "energy_wh": pa.array(energy_wh, pa.int64())})


def readings_parquet(meters: Sequence[int], start_s: int, energy_wh: Any) -> bytes:
    """Readings of one interval as a Parquet file."""
    return parquet(table([*meters], [start_s] * len(meters), energy_wh))


def line(**changes: object) -> bytes:
    return json.dumps({"meter": "a", "interval_start": START_S, "energy_wh": 5} | changes).encode()
