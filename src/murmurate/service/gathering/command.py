"""`murmurate landing`, `murmurate gather` and `murmurate forget`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.curator.gathering import Tally
from murmurate.errors import MeterError, MurmurateError
from murmurate.publication.publisher import Outcome
from murmurate.service.clock import begin_of
from murmurate.service.databases import Database, failures_in_one_line
from murmurate.service.gathering import demandfile
from murmurate.service.gathering.closing import Closing, closed, forget, late, refuse_forgotten
from murmurate.service.gathering.handover import hand_over
from murmurate.service.gathering.job import Gathered, Run, Task, close_all, gather, in_one_process
from murmurate.service.gathering.layout import Landing, stamp
from murmurate.service.gathering.metertable import MeterTable, pin, pinned
from murmurate.service.office import aside, out, status, zones_word
from murmurate.service.state import PostgresState


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where the tasks run: in this process, or on the Spark cluster of a master."""

    name: str = "process"
    master: str = "local[*]"

    def __post_init__(self) -> None:
        if self.name not in {"process", "spark"}:
            raise MurmurateError("--engine", self.name, "must be process or spark")

    def run(self) -> Run:
        if self.name == "process":
            return _with_a_bar
        from murmurate.service.gathering.spark import on_spark, session  # noqa: PLC0415  an extra

        with aside.status(f"starting a session on {self.master}"):
            return on_spark(session(self.master))


def new_landing(root: Path, minutes: int, shard_meters: int) -> None:
    """`murmurate landing`."""
    landing = Landing.create(root, interval_s=60 * minutes, shard_meters=shard_meters)
    example = landing.shard(int(time.time()) // landing.interval_s * landing.interval_s, 0)
    out.print(f"Readings go to {example}/*.parquet")
    out.print(f"and so on: a folder for each {minutes} min of UTC, in it one for each {shard_meters:,} meters.")
    out.print("Columns: meter, interval_start, energy_wh. Keep it where only the curator can read.")


def gather_intervals(
    root: Path, meters: Path | None, interval: str | None, *, to: Path | None, state: str, grace_s: int, engine: Engine
) -> int:
    """`murmurate gather`: the demand goes to a file if one is named, else to the state."""
    if to is None and not state:
        raise MurmurateError("--out", "missing", "say where the demand goes: --out demand.parquet, or --state")
    if to is not None and not to.absolute().parent.is_dir():
        raise MurmurateError("--out", to, "must be in a folder that exists")
    landing = Landing.open(root.resolve())
    starts_s = _over(landing, interval, grace_s)
    with aside.status("closing"):
        jobs = [(table, close_all(landing, some, table)) for table, some in _by_table(landing, meters, starts_s)]
    run = engine.run()
    gathered = [one for table, closings in jobs for one in gather(landing, table, closings, run)]
    _say(landing, [closing for _, closings in jobs for closing in closings], gathered)
    if to is not None:
        demandfile.write(to, gathered)
        out.print(f"Demand, confidential, written to {to}.")
        return 0
    database, zones = Database("state", state), _zones(gathered)
    database.check()
    with failures_in_one_line():
        left = hand_over(PostgresState(database.dsn), landing.interval_s, gathered)
    handed = len(zones - left.keys())
    out.print(f"Demand of {handed:,} of {len(zones):,} {zones_word(zones)} handed over to the state.")
    return status(Outcome(aside=left), set())


def forget_readings(root: Path, days: float) -> None:
    """`murmurate forget`."""
    landing = Landing.open(root)
    count = forget(landing, int(time.time() - days * 86_400))
    out.print(f"Readings of {count:,} interval{'' if count == 1 else 's'} forgotten.")


def _over(landing: Landing, interval: str | None, grace_s: int) -> list[int]:
    """When the intervals begin that are asked for [s of UTC]; refused while one of them is still open."""
    step, now = landing.interval_s, time.time()
    if interval is None:
        return [int(now - grace_s) // step * step - step]
    first, _, end = interval.partition("/")
    begin_s = begin_of(first, step, "--interval")
    end_s = begin_of(end, step, "--interval") if end else begin_s + step
    if end_s <= begin_s:
        raise MurmurateError("--interval", interval, "must end after it begins")
    if end_s + grace_s > now:
        left = f"{end_s + grace_s - now:,.0f} s"
        raise MurmurateError("--interval", interval, f"is still open; it can be closed in {left}")
    return list(range(begin_s, end_s, step))


def _by_table(
    landing: Landing, meters: Path | None, starts_s: Sequence[int]
) -> Iterator[tuple[MeterTable, Sequence[int]]]:
    """Intervals with the meter table they go by: the one handed in, else the one each was closed under."""
    if meters is not None:
        yield pin(landing, meters), starts_s
        return
    found = []
    for start_s in starts_s:
        if (closing := closed(landing, start_s)) is None:
            example = "is needed to close an interval, for example --meters meters.csv"
            raise MeterError("--meters", f"missing for {stamp(start_s)}", example)
        refuse_forgotten(closing)
        found.append((closing.meters, start_s))
    for version, some in groupby(found, key=lambda pair: pair[0]):
        yield pinned(landing, version), [start_s for _, start_s in some]


def _with_a_bar(jobs: Sequence[Task]) -> Iterator[tuple[int, Tally]]:
    columns = (TextColumn("gathering"), BarColumn(), MofNCompleteColumn(), TextColumn("shards"), TimeRemainingColumn())
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as bar:
        for task in bar.track(jobs):
            yield from in_one_process([task])


def _zones(gathered: Sequence[Gathered]) -> set[str]:
    return {zone for one in gathered for zone in one.demand.zones}


def _say(landing: Landing, closings: Sequence[Closing], gathered: Sequence[Gathered]) -> None:
    """What an operator should know; never a number that depends on what a meter measured."""
    first, zones = datetime.fromtimestamp(gathered[0].start_s, UTC), _zones(gathered)
    more = f" and {len(gathered) - 1:,} more" if len(gathered) > 1 else ""
    reported = sum(int(one.demand.reported.sum()) for one in gathered)
    expected = reported + sum(int(one.demand.imputed.sum()) for one in gathered)
    out.print(
        f"Interval {first:%Y-%m-%d %H:%M} UTC{more}: {len(zones):,} {zones_word(zones)},"
        f" {reported:,} of {expected:,} readings are there."
    )
    left_out = (
        (sum(one.unknown for one in gathered), "reading", "of meters that the table does not have there"),
        (sum(one.astray for one in gathered), "reading", "with the time of another interval"),
        (sum(len(closing.unfinished) for closing in closings), "file", "not finished"),
        (sum(len(set(late(landing, c)) - set(c.unfinished)) for c in closings), "file", "come late"),
    )
    for count, thing, why in left_out:
        if count:
            out.print(f"Left out: {count:,} {thing}{'' if count == 1 else 's'} {why}.")
