"""The gather job: closed intervals in, demand out. One process runs its tasks in a row, Spark runs them anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from murmurate.curator.gathering import Tally, demand, merge, tally
from murmurate.errors import MeterError
from murmurate.quantities import Demand
from murmurate.service.gathering.closing import Closing, close, refuse_forgotten
from murmurate.service.gathering.layout import Landing, stamp
from murmurate.service.gathering.metertable import MeterTable, load_shard
from murmurate.service.gathering.readingsfile import Landed, read

INTERVALS_PER_TASK = 8
_MICRO = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The files of one shard in a few intervals, and everything a machine must know to tally them."""

    root: str
    meters: str
    shard: int
    files: tuple[tuple[int, tuple[Landed, ...]], ...]  # (begin of the interval [s of UTC], its files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The demand of an interval, and what was left out of it."""

    start_s: int
    demand: Demand
    readings: int
    astray: int
    unknown: int


Run = Callable[[Sequence[Task]], Iterable[tuple[int, Tally]]]


def close_all(landing: Landing, starts_s: Iterable[int], table: MeterTable) -> list[Closing]:
    """The closings of these intervals, all under this table."""
    closings = [close(landing, start_s, table.version, sharded=table.sharded) for start_s in starts_s]
    for closing in closings:
        refuse_forgotten(closing)
        if closing.meters != table.version:
            allowed = f"must be {closing.meters[:12]}, under which interval {stamp(closing.start_s)} was closed"
            raise MeterError("version of the meter table", table.version[:12], allowed)
    return closings


def tasks(landing: Landing, table: MeterTable, closings: Sequence[Closing]) -> list[Task]:
    """One task for each shard and a few intervals; a shard that nobody wrote to has silent meters to count."""
    jobs = []
    by_shard = [(closing.start_s, _by_shard(closing.files)) for closing in closings]
    for shard in table.shards:  # one after the other: whoever runs them in a row reads its meters once
        files = [(start_s, tuple(found.get(shard, ()))) for start_s, found in by_shard]
        for at in range(0, len(files), INTERVALS_PER_TASK):
            some = tuple(files[at : at + INTERVALS_PER_TASK])
            jobs.append(Task(root=str(landing.root), meters=str(table.folder), shard=shard, files=some))
    return jobs


def _by_shard(files: Iterable[Landed]) -> dict[int, list[Landed]]:
    found: dict[int, list[Landed]] = {}
    for file in files:
        found.setdefault(file.shard or 0, []).append(file)
    return found


def run_task(task: Task) -> Iterator[tuple[int, Tally]]:
    """Tally a shard, interval by interval. Holds the shard's meters and one batch of readings."""
    shard = load_shard(Path(task.meters), task.shard)
    for start_s, files in task.files:
        batches = (batch for file in files for batch in read(Path(task.root), file))
        yield start_s, tally(batches, shard, start_s * _MICRO)


def in_one_process(jobs: Sequence[Task]) -> Iterator[tuple[int, Tally]]:
    for task in jobs:
        yield from run_task(task)


def gather(
    landing: Landing, table: MeterTable, closings: Sequence[Closing], run: Run = in_one_process
) -> list[Gathered]:
    """The demand of closed intervals. The same for every `run`, or refused."""
    jobs = tasks(landing, table, closings)
    found: dict[int, list[Tally]] = {closing.start_s: [] for closing in closings}
    for start_s, part in run(jobs):
        found[start_s].append(part)
    return [
        total(closing.start_s, found[closing.start_s], table, strangers=_rows_beyond(landing, table, closing))
        for closing in closings
    ]


def total(start_s: int, parts: Iterable[Tally], table: MeterTable, *, strangers: int = 0) -> Gathered:
    """The demand of an interval from the tallies of all its shards; `strangers` are readings that none of them saw."""
    whole = merge(parts)
    return Gathered(
        start_s=start_s,
        demand=demand(whole, table.zones, len(table.shards), table.bounds),
        readings=whole.readings + strangers,
        astray=whole.astray,
        unknown=whole.unknown + strangers,
    )


def _rows_beyond(landing: Landing, table: MeterTable, closing: Closing) -> int:
    """Readings in shards that the table knows nothing of."""
    known = set(table.shards)
    beyond = [file for file in closing.files if (file.shard or 0) not in known]
    return sum(len(batch) for file in beyond for batch in read(landing.root, file))
