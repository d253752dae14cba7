"""The aggregation job: closed intervals in, demand out. Its tasks run in one process, or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from murmurate.aggregation import Tally, demand_from_tally, merge_tallies, tally_readings
from murmurate.errors import MeterError
from murmurate.planning.household_bounds import encode_bounds
from murmurate.service.landing.interval_manifest import IntervalManifest, check_not_purged, close_interval
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import MeterTable, load_shards
from murmurate.service.landing.readings_file import LandedFile, read_readings
from murmurate.service.storage import durable
from murmurate.service.storage.open_store import open_store
from murmurate.types import Demand, Readings
from murmurate.units import MICROSECONDS_PER_SECOND

INTERVALS_PER_TASK = 8
MAX_SHARDS_PER_TASK = 64  # of 131,072 meters, with 56 bytes each in memory
_NO_METER = -1
_DEMAND_COLUMNS = ("energy_wh", "reported", "imputed", "silent_bound_wh", "silent_export_bound_wh")
DEMAND_SCHEMA = pa.schema(
    [
        ("interval_start", pa.timestamp("ms", "UTC")),
        ("zone", pa.string()),
        *((name, pa.int64()) for name in _DEMAND_COLUMNS),
        ("bounds", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """Neighbouring shards in a few intervals, their files, and everything a machine must know to tally them."""

    landing: str  # its address
    table_version: str
    shards: tuple[int, ...]
    shard_meters: int
    meters: range  # whose readings it counts, in files of any meters; those of all tasks cover every number
    files: tuple[tuple[int, tuple[LandedFile, ...]], ...]  # (begin of the interval [s of UTC], its files)


TaskRunner = Callable[[Sequence[ShardTask]], Iterable[tuple[int, Tally]]]


def close_intervals(landing: Landing, starts_s: Iterable[int], table: MeterTable) -> list[IntervalManifest]:
    """The manifests of these intervals, all under this table."""
    manifests = [close_interval(landing, start_s, table.version) for start_s in starts_s]
    for manifest in manifests:
        check_not_purged(manifest)
        if manifest.table_version != table.version:
            interval = interval_name(manifest.start_s)
            allowed = f"must be {manifest.table_version[:12]}, under which interval {interval} was closed"
            raise MeterError("version of the meter table", table.version[:12], allowed)
    return manifests


def shard_tasks(
    landing: Landing, table: MeterTable, manifests: Sequence[IntervalManifest], min_tasks: int
) -> list[ShardTask]:
    """One task for neighbouring shards and a few intervals. A shard without files has meters to impute.

    Where all files lie in the folders of shards, a task has one shard. Otherwise it has as many as leave `min_tasks`:
    a file that holds any meters is opened by every task. Their number is a power of two, since row groups end there.
    """
    by_shard: list[tuple[int, dict[int | None, list[LandedFile]]]] = []
    for manifest in manifests:
        files: dict[int | None, list[LandedFile]] = {}
        for file in manifest.files:
            files.setdefault(file.shard, []).append(file)
        by_shard.append((manifest.start_s, files))
    shards_per_task = 1
    if any(None in files for _, files in by_shard):
        most = min(MAX_SHARDS_PER_TASK, len(table.shards) // min_tasks)
        shards_per_task = 1 << max(0, most.bit_length() - 1)
    groups = [tuple(group) for _, group in groupby(table.shards, lambda shard: shard // shards_per_task)]
    begins = [-(2**63) if group is groups[0] else group[0] * landing.shard_meters for group in groups]
    return [  # of the same shards one after the other: a process that runs them in a row reads its meters once
        ShardTask(
            landing=landing.store.address,
            table_version=table.version,
            shards=shards,
            shard_meters=landing.shard_meters,
            meters=range(begin, end),
            files=tuple(
                (start_s, tuple(file for shard in (None, *shards) for file in files.get(shard, ())))
                for start_s, files in by_shard[at : at + INTERVALS_PER_TASK]
            ),
        )
        for shards, begin, end in zip(groups, begins, [*begins[1:], 2**63], strict=True)
        for at in range(0, len(by_shard), INTERVALS_PER_TASK)
    ]


def run_task(task: ShardTask) -> Iterator[tuple[int, Tally]]:
    """Tally some shards, interval by interval. Holds their meters and one batch of readings."""
    store = open_store(task.landing)
    shard = load_shards(store, task.table_version, task.shards)

    def read_files(files: Iterable[LandedFile]) -> Iterator[Readings]:
        for file in files:
            own = None if file.shard is None else file.shard * task.shard_meters
            for batch in read_readings(store, file, task.meters if own is None else None):
                if own is None or len(task.shards) == 1:
                    yield batch
                else:  # a meter of another shard is unknown here, although this task may have it
                    is_own = (batch.meter >= own) & (batch.meter < own + task.shard_meters)
                    yield replace(batch, meter=np.where(is_own, batch.meter, _NO_METER))

    for start_s, files in task.files:
        yield start_s, tally_readings(read_files(files), shard, start_s * MICROSECONDS_PER_SECOND)


def run_in_process(tasks: Sequence[ShardTask]) -> Iterator[tuple[int, Tally]]:
    for task in tasks:
        yield from run_task(task)


def aggregate_landing(
    landing: Landing,
    table: MeterTable,
    manifests: Sequence[IntervalManifest],
    run_tasks: TaskRunner = run_in_process,
    min_tasks: int = 1,
) -> dict[int, Demand]:
    """Return the demand of closed intervals, by their begin [s of UTC].

    It is the same for every `run_tasks`, or an error is raised. `min_tasks` says how many can run at once.
    """
    tallies: dict[int, list[Tally]] = {manifest.start_s: [] for manifest in manifests}
    for start_s, tally in run_tasks(shard_tasks(landing, table, manifests, min_tasks)):
        tallies[start_s].append(tally)
    demands, known = {}, set(table.shards)
    for manifest in manifests:
        demand = total_demand(tallies[manifest.start_s], table)
        unknown = [file for file in manifest.files if file.shard is not None and file.shard not in known]
        count = sum(len(batch) for file in unknown for batch in read_readings(landing.store, file))
        demands[manifest.start_s] = replace(
            demand, readings=demand.readings + count, unknown_meter=demand.unknown_meter + count
        )
    return demands


def total_demand(parts: Iterable[Tally], table: MeterTable) -> Demand:
    """The demand of an interval from the tallies of all its shards."""
    return demand_from_tally(merge_tallies(parts), table.zones, len(table.shards), table.bounds)


def demand_table(demands: Mapping[int, Demand]) -> pa.Table:
    """The demand as rows, by interval and zone."""
    start_ms = np.repeat(
        np.array([start_s * 1000 for start_s in demands], np.int64), [len(demand.zones) for demand in demands.values()]
    )
    zones = [zone for demand in demands.values() for zone in demand.zones]
    columns = [np.concatenate([getattr(demand, name) for demand in demands.values()]) for name in _DEMAND_COLUMNS]
    start = pa.array(start_ms, DEMAND_SCHEMA.field("interval_start").type)
    encoded: dict[int, list[str | None]] = {}  # demands under one meter table share their bounds
    for demand in demands.values():
        if id(demand.bounds) not in encoded:
            encoded[id(demand.bounds)] = [encode_bounds(demand.bounds_at(row)) for row in range(len(demand.zones))]
    bounds = [text for demand in demands.values() for text in encoded[id(demand.bounds)]]
    return pa.table(
        [start, pa.array(zones, pa.string()), *columns, pa.array(bounds, pa.string())], schema=DEMAND_SCHEMA
    )


def write_demand(path: Path, demands: Mapping[int, Demand]) -> None:
    """Write the demand as Parquet, whole or not at all. It is confidential: readable by its owner alone."""
    sink = pa.BufferOutputStream()
    pq.write_table(demand_table(demands), sink)
    durable.write_file(path, memoryview(sink.getvalue()))
