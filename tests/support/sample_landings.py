"""Small landings with every kind of reading, and their demand computed in plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from murmurate.service.aggregation.job import aggregate_landing, close_intervals
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.meter_table import MeterTable, pin_table, table_folder
from murmurate.service.landing.readings_file import encode_readings
from murmurate.types import UNPROTECTED_KIND, Demand, Readings
from murmurate.units import IntArray

START_S = 1_740_830_400  # 2025-03-01 12:00 UTC
STEP_S = 900
SHARD_METERS = 3
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


COLUMNS = ("meter", "zone", "bound_wh", "imputed_wh", "protected", "kind", "household", "export_bound_wh")


class Meter(NamedTuple):
    number: int
    zone: str
    bound_wh: int
    imputed_wh: int = 0
    protected: bool = True
    kind: str = ""
    household: str | None = None  # none: a household of its own
    export_bound_wh: int = 0


class Row(NamedTuple):
    """A reading as a file holds it; None is a null."""

    meter: int | None
    energy_wh: int | None
    start_s: int | None = START_S


class Line(NamedTuple):
    """The demand of a zone."""

    energy_wh: int
    reported: int
    imputed: int
    bounds: dict[str, int]


METERS = (
    Meter(0, "hill", 3000, 120),
    Meter(1, "hill", 3000, 120),
    Meter(2, "harbour", 5000, 200, export_bound_wh=30),
    Meter(4, "harbour", 9000, 70, protected=False),  # silent
    Meter(7, "hill", 4000, 33),  # its clock is wrong
    Meter(8, "mill", 2500, 0),
)
ROWS = (
    *(Row(0, 250), Row(0, 900), Row(0, 251), Row(0, 900)),  # which of them counts?
    *(Row(1, 5000), Row(1, -7)),  # clipped
    *(Row(2, -40), Row(2, -45)),  # no less than what it may feed in
    Row(7, 1234, START_S - STEP_S),
    Row(8, 333),
    *(Row(5, 100), Row(99, 100)),  # unknown meters: in a shard of the table, and in one outside it
)
HONEST = tuple(row for row in ROWS if row.start_s == START_S)  # what a writer appends that checks the time
BY_HAND = {
    "harbour": Line(-30 + 70, 1, 1, {"": 5030, UNPROTECTED_KIND: 9000}),
    "hill": Line(900 + 3000 + 33, 2, 1, {"": 4000}),
    "mill": Line(333, 1, 0, {"": 2500}),
}


def folder_of(table: MeterTable) -> Path:
    """Where a version of the meter table is pinned."""
    return Path(table.store.address) / table_folder(table.version)


def file_of(table: MeterTable, shard: int) -> Path:
    """The file of a shard in a pinned table."""
    return Path(table.store.address) / table.names[table.shards.index(shard)]


def by_hand(meters: Sequence[Meter], rows: Iterable[Row], start_s: int = START_S) -> dict[str, Line]:
    """The demand of each zone, in plain Python."""
    largest: dict[int, int] = {}
    for meter, energy_wh, when in rows:
        if meter is not None and energy_wh is not None and when == start_s:
            largest[meter] = max(energy_wh, largest.get(meter, energy_wh))
    lines = {}
    for zone in sorted({meter.zone for meter in meters}):
        here = [meter for meter in meters if meter.zone == zone]
        counted = [
            min(max(largest[meter.number], -meter.export_bound_wh), meter.bound_wh)
            for meter in here
            if meter.number in largest
        ]
        silent = [meter.imputed_wh for meter in here if meter.number not in largest]
        lines[zone] = Line(sum(counted) + sum(silent), len(counted), len(silent), bounds_by_hand(here))
    return lines


def bounds_by_hand(here: Sequence[Meter]) -> dict[str, int]:
    """The largest range of a household by kind, in plain Python."""
    largest: dict[str, int] = {}
    for house in {meter.household or meter.number for meter in here}:
        mine = [meter for meter in here if (meter.household or meter.number) == house]
        kinds = {mine[0].kind} if mine[0].protected else {mine[0].kind, UNPROTECTED_KIND} - {""}
        for kind in kinds:
            ranges = (meter.bound_wh + meter.export_bound_wh for meter in mine)
            largest[kind] = max(largest.get(kind, 0), sum(ranges))
    return largest


def left_out(
    meters: Sequence[Meter], rows: Iterable[Row], start_s: int, shard_meters: int, *, in_shards: bool = True
) -> tuple[int, int, int]:
    """Counts of all readings, of those of another interval and of those of unknown meters.

    Each row is in the folder of its shard, or none is `in_shards`.
    """
    known = {meter.number for meter in meters}
    shards = {number // shard_meters for number in known}
    if not in_shards:
        shards |= {(row.meter or 0) // shard_meters for row in rows}
    whole = [row for row in rows if None not in row]
    beyond = [row for row in whole if (row.meter or 0) // shard_meters not in shards]
    inside = [row for row in whole if (row.meter or 0) // shard_meters in shards]
    wrong_interval = [row for row in inside if row.start_s != start_s]
    unknown = [row for row in inside if row.start_s == start_s and row.meter not in known]
    return len(whole), len(wrong_interval), len(unknown) + len(beyond)


def lines(demand: Demand) -> dict[str, Line]:
    columns = (demand.energy_wh, demand.reported, demand.imputed)
    assert demand.bounds is not None
    rows = zip(*(column.tolist() for column in columns), demand.bounds, strict=True)
    return {zone: Line(*line) for zone, line in zip(demand.zones, rows, strict=True)}


def meter_rows(meters: Sequence[Meter]) -> pa.Table:
    """The columns that these meters need."""
    columns = dict(zip(COLUMNS, map(list, zip(*meters, strict=True)), strict=True))
    if not any(columns["kind"]):
        del columns["kind"]
    if not any(columns["household"]):
        del columns["household"]
    else:
        columns["household"] = [name or f"meter {number}" for number, name in enumerate(columns["household"])]
    return pa.table(columns)


def meter_csv(path: Path, meters: Sequence[Meter] = METERS) -> Path:
    columns = meter_rows(meters)
    cells = zip(*(column.to_pylist() for column in columns.columns), strict=True)
    rows = [",".join(str(cell).lower() if isinstance(cell, bool) else str(cell) for cell in row) for row in cells]
    path.write_text("\n".join([",".join(columns.column_names), *rows]) + "\n", encoding="utf-8")
    return path


def reading_rows(rows: Iterable[Row], *, unit: str = "us", whole: pa.DataType | None = None) -> pa.Table:
    """Rows as a file of readings has them."""
    meter, energy_wh, start_s = zip(*rows, strict=True) if (rows := list(rows)) else ((), (), ())
    start = [None if when is None else when * _PER_S[unit] for when in start_s]
    return pa.table(
        {
            "meter": pa.array(meter, whole or pa.int64()),
            "interval_start": pa.array(start, pa.int64()).cast(pa.timestamp(unit, "UTC")),
            "energy_wh": pa.array(energy_wh, whole or pa.int64()),
        }
    )


def leave(
    landing: Landing,
    start_s: int,
    rows: Iterable[Row],
    name: str = "a",
    *,
    row_group_size: int | None = None,
    in_shards: bool = True,
    **how: Any,
) -> list[Path]:
    """Write files as another program would: one for each shard, or one. A null lands in the first shard."""
    shards: dict[str, list[Row]] = {}
    for row in rows:
        shards.setdefault(f"shard={(row.meter or 0) // landing.shard_meters}" if in_shards else "", []).append(row)
    paths = []
    for shard, some in shards.items():
        paths.append(landing.interval_folder(start_s) / shard / f"{name}.parquet")
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(reading_rows(some, **how), paths[-1], row_group_size=row_group_size)
    return paths


def parquet_of(start_s: int, meter: IntArray, energy_wh: IntArray) -> bytes:
    """A file of readings of one shard, as the appender encodes it."""
    return encode_readings(start_s, Readings(meter=meter, energy_wh=energy_wh), 2**40)[0]


def readings(rows: Iterable[Row]) -> Readings:
    """Rows as a writer passes them to `append_readings`."""
    meter, energy_wh, _ = zip(*rows, strict=True)
    return Readings(meter=np.array(meter), energy_wh=np.array(energy_wh))


def a_landing(folder: Path, meters: Sequence[Meter] = METERS, **make: int) -> tuple[Landing, MeterTable]:
    """A new landing with its meter table."""
    landing = Landing.create(folder / "landing", **{"shard_meters": SHARD_METERS} | make)
    return landing, pin_table(landing, meter_csv(folder / "meters.csv", meters))


def close_and_aggregate(landing: Landing, table: MeterTable, starts_s: Sequence[int] = (START_S,)) -> dict[int, Demand]:
    """Close the intervals and aggregate them, as the command does."""
    return aggregate_landing(landing, table, close_intervals(landing, starts_s, table))


def demand_of(landing: Landing, table: MeterTable, start_s: int = START_S) -> dict[str, Line]:
    return lines(close_and_aggregate(landing, table, [start_s])[start_s])


def files_in(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, byte for byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@st.composite
def in_households(draw: st.DrawFn, meters: Sequence[Meter]) -> list[Meter]:
    """The same meters, some of a zone in one household, each household with a kind and protected or not."""
    known: dict[str | None, dict[str, Any]] = {}
    found = []
    for meter in meters:
        household = draw(st.sampled_from([None, f"{meter.zone} 1", f"{meter.zone} 2"]))
        if household is None or household not in known:
            known[household] = {"kind": draw(st.sampled_from(["", "flat", "mill"])), "protected": draw(st.booleans())}
        found.append(meter._replace(household=household, **known[household]))
    return found


@contextmanager
def no_waiting() -> Iterator[None]:
    """Skip fsync. Without a power cut nothing changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def quick_disk() -> Iterator[None]:
    with no_waiting():
        yield
