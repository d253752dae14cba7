"""The aggregation job: closed intervals in, demand out. Its tasks run in one process, or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from murmurate.aggregation import Tally, demand_from_tally, merge_tallies, tally_readings
from murmurate.errors import MeterError
from murmurate.service.landing.interval_manifest import IntervalManifest, check_not_purged, close_interval
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.meter_table import MeterTable, load_shard
from murmurate.service.landing.readings_file import LandedFile, read_readings
from murmurate.types import Demand
from murmurate.units import MICROSECONDS_PER_SECOND

INTERVALS_PER_TASK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """The files of one shard in a few intervals, and everything a machine must know to tally them."""

    landing_root: str
    table_folder: str
    shard: int
    files: tuple[tuple[int, tuple[LandedFile, ...]], ...]  # (begin of the interval [s of UTC], its files)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalDemand:
    """The demand of an interval, and what was left out of it."""

    start_s: int
    demand: Demand
    readings: int
    wrong_interval: int
    unknown_meter: int


TaskRunner = Callable[[Sequence[ShardTask]], Iterable[tuple[int, Tally]]]


def close_intervals(landing: Landing, starts_s: Iterable[int], table: MeterTable) -> list[IntervalManifest]:
    """The manifests of these intervals, all under this table."""
    manifests = [close_interval(landing, start_s, table.version, sharded=table.sharded) for start_s in starts_s]
    for manifest in manifests:
        check_not_purged(manifest)
        if manifest.table_version != table.version:
            interval = interval_name(manifest.start_s)
            allowed = f"must be {manifest.table_version[:12]}, under which interval {interval} was closed"
            raise MeterError("version of the meter table", table.version[:12], allowed)
    return manifests


def shard_tasks(landing: Landing, table: MeterTable, manifests: Sequence[IntervalManifest]) -> list[ShardTask]:
    """One task for each shard and a few intervals; a shard without files has meters to impute."""
    tasks = []
    by_shard = [(manifest.start_s, _by_shard(manifest.files)) for manifest in manifests]
    for shard in table.shards:  # one after the other: a process that runs them in a row reads its meters once
        files = [(start_s, tuple(shards.get(shard, ()))) for start_s, shards in by_shard]
        for at in range(0, len(files), INTERVALS_PER_TASK):
            task_files = tuple(files[at : at + INTERVALS_PER_TASK])
            tasks.append(
                ShardTask(landing_root=str(landing.root), table_folder=str(table.folder), shard=shard, files=task_files)
            )
    return tasks


def _by_shard(files: Iterable[LandedFile]) -> dict[int, list[LandedFile]]:
    by_shard: dict[int, list[LandedFile]] = {}
    for file in files:
        by_shard.setdefault(file.shard or 0, []).append(file)
    return by_shard


def run_task(task: ShardTask) -> Iterator[tuple[int, Tally]]:
    """Tally a shard, interval by interval. Holds the shard's meters and one batch of readings."""
    shard = load_shard(Path(task.table_folder), task.shard)
    for start_s, files in task.files:
        batches = (batch for file in files for batch in read_readings(Path(task.landing_root), file))
        yield start_s, tally_readings(batches, shard, start_s * MICROSECONDS_PER_SECOND)


def run_in_process(tasks: Sequence[ShardTask]) -> Iterator[tuple[int, Tally]]:
    for task in tasks:
        yield from run_task(task)


def aggregate_landing(
    landing: Landing, table: MeterTable, manifests: Sequence[IntervalManifest], run_tasks: TaskRunner = run_in_process
) -> list[IntervalDemand]:
    """The demand of closed intervals. It is the same for every `run_tasks`, or an error is raised."""
    tasks = shard_tasks(landing, table, manifests)
    tallies: dict[int, list[Tally]] = {manifest.start_s: [] for manifest in manifests}
    for start_s, tally in run_tasks(tasks):
        tallies[start_s].append(tally)
    return [
        total_demand(
            manifest.start_s,
            tallies[manifest.start_s],
            table,
            unknown_meter_readings=_unknown_shard_readings(landing, table, manifest),
        )
        for manifest in manifests
    ]


def total_demand(
    start_s: int, parts: Iterable[Tally], table: MeterTable, *, unknown_meter_readings: int = 0
) -> IntervalDemand:
    """The demand of an interval from the tallies of all its shards.

    `unknown_meter_readings` are those in shards that the table does not have.
    """
    whole = merge_tallies(parts)
    return IntervalDemand(
        start_s=start_s,
        demand=demand_from_tally(whole, table.zones, len(table.shards), table.bounds),
        readings=whole.readings + unknown_meter_readings,
        wrong_interval=whole.wrong_interval,
        unknown_meter=whole.unknown_meter + unknown_meter_readings,
    )


def _unknown_shard_readings(landing: Landing, table: MeterTable, manifest: IntervalManifest) -> int:
    """How many readings are in shards that the table does not have."""
    known = set(table.shards)
    unknown = [file for file in manifest.files if (file.shard or 0) not in known]
    return sum(len(batch) for file in unknown for batch in read_readings(landing.root, file))
