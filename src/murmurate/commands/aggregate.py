"""`murmurate step aggregate`: close intervals, and sum the readings of each zone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.aggregation import Tally
from murmurate.commands.console import print_blocked, stderr, stdout, zones_word
from murmurate.commands.json_output import format_utc, print_json
from murmurate.errors import MeterError, MurmurateError
from murmurate.service.aggregation.job import (
    ShardTask,
    TaskRunner,
    aggregate_landing,
    close_intervals,
    run_in_process,
    write_demand,
)
from murmurate.service.aggregation.submit_demand import submit_demand
from murmurate.service.clock import parse_interval_start
from murmurate.service.landing.interval_manifest import IntervalManifest, check_not_purged, late_files, manifest_of
from murmurate.service.landing.layout import Landing, interval_name
from murmurate.service.landing.maintenance import purge_intervals
from murmurate.service.landing.meter_table import MeterTable, pin_table, pinned_table
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.types import Demand
from murmurate.units import SECONDS_PER_DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationEngine:
    """Where the tasks run: in this process, or on the Spark cluster of a master."""

    name: str = "process"
    master: str = "local[*]"

    def __post_init__(self) -> None:
        if self.name not in {"process", "spark"}:
            raise MurmurateError("--engine", self.name, "must be process or spark")

    def task_runner(self) -> TaskRunner:
        if self.name == "process":
            return _run_with_progress
        from murmurate.service.aggregation.spark import spark_session, spark_task_runner  # noqa: PLC0415  an extra

        with stderr.status(f"starting a session on {self.master}"):
            return spark_task_runner(spark_session(self.master))


def aggregate_intervals(
    root: Path,
    meters: Path | None,
    interval: str | None,
    *,
    to: Path | None,
    state: str,
    grace_s: int,
    engine: AggregationEngine,
    keep_days: float | None = None,
    as_json: bool = False,
) -> int:
    """`murmurate step aggregate`: the demand goes to a file if one is named, else to the state."""
    if to is None and not state:
        raise MurmurateError("--out", "missing", "name where the demand goes: --out demand.parquet, or --state")
    if to is not None and not to.absolute().parent.is_dir():
        raise MurmurateError("--out", to, "must be in a folder that exists")
    landing = Landing.open(root.resolve())
    if to is None:
        Database("state", state).check_reachable()
    starts_s = _requested_starts(landing, interval, grace_s)
    with stderr.status("closing"):
        jobs = [
            (table, close_intervals(landing, group, table)) for table, group in _by_table(landing, meters, starts_s)
        ]
    run = engine.task_runner()
    demands: dict[int, Demand] = {}
    for table, manifests in jobs:
        demands |= aggregate_landing(landing, table, manifests, run)
    zones = {zone for demand in demands.values() for zone in demand.zones}
    summary = _summarize(landing, [manifest for _, manifests in jobs for manifest in manifests], demands, zones)
    if not as_json:
        _print_summary(summary, min(demands), zones)
    if to is not None:
        write_demand(to, demands)
        summary["purged"] = _purge(landing, keep_days)
        if as_json:
            print_json(summary | {"file": str(to), "submitted": None, "blocked": {}})
        else:
            stdout.print(f"Demand, confidential, written to {to}.")
            _print_purged(summary["purged"])
        return 0
    with mask_database_errors():
        unusable = submit_demand(PostgresStateStore(state), landing.interval_s, demands)
    summary["purged"] = _purge(landing, keep_days)
    submitted = len(zones - unusable.keys())
    if as_json:
        print_json(summary | {"file": None, "submitted": submitted, "blocked": dict(sorted(unusable.items()))})
    else:
        stdout.print(f"Demand of {submitted:,} of {len(zones):,} {zones_word(zones)} submitted to the state.")
        _print_purged(summary["purged"])
    print_blocked(unusable)
    return 1 if unusable else 0


def _purge(landing: Landing, keep_days: float | None) -> int | None:
    """Delete old readings. Return the number of their intervals."""
    return None if keep_days is None else purge_intervals(landing, int(time.time() - keep_days * SECONDS_PER_DAY))


def _print_purged(intervals: int | None) -> None:
    if intervals is not None:
        stdout.print(f"Readings of {intervals:,} interval{'' if intervals == 1 else 's'} purged.")


def _requested_starts(landing: Landing, interval: str | None, grace_s: int) -> list[int]:
    """Starts of the requested intervals [s of UTC]. Raises MurmurateError while one of them is still open."""
    step, now = landing.interval_s, time.time()
    if interval is None:
        return [int(now - grace_s) // step * step - step]
    first, _, end = interval.partition("/")
    begin_s = parse_interval_start(first, step, "--interval")
    end_s = parse_interval_start(end, step, "--interval") if end else begin_s + step
    if end_s <= begin_s:
        raise MurmurateError("--interval", interval, "must end after it begins")
    if end_s + grace_s > now:
        left = f"{end_s + grace_s - now:,.0f} s"
        raise MurmurateError("--interval", interval, f"is still open; it can be closed in {left}")
    return list(range(begin_s, end_s, step))


def _by_table(
    landing: Landing, meters: Path | None, starts_s: Sequence[int]
) -> Iterator[tuple[MeterTable, Sequence[int]]]:
    """Groups of intervals, each with its meter table: the given one, else the one they were closed under."""
    if meters is not None:
        yield pin_table(landing, meters), starts_s
        return
    versions = []
    for start_s in starts_s:
        if (manifest := manifest_of(landing, start_s)) is None:
            example = "is needed to close an interval, for example --meters meters.csv"
            raise MeterError("--meters", f"missing for {interval_name(start_s)}", example)
        check_not_purged(manifest)
        versions.append((manifest.table_version, start_s))
    for version, group in groupby(versions, key=lambda pair: pair[0]):
        yield pinned_table(landing, version), [start_s for _, start_s in group]


def _run_with_progress(tasks: Sequence[ShardTask]) -> Iterator[tuple[int, Tally]]:
    columns = (
        TextColumn("aggregating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("shards"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        for task in bar.track(tasks):
            yield from run_in_process([task])


def _summarize(
    landing: Landing, manifests: Sequence[IntervalManifest], demands: Mapping[int, Demand], zones: set[str]
) -> dict[str, Any]:
    """Counts of readings and files. No number depends on what a meter measured."""
    reported = sum(int(demand.reported.sum()) for demand in demands.values())
    return {
        "intervals": [format_utc(start_s) for start_s in demands],
        "zones": len(zones),
        "reported": reported,
        "expected": reported + sum(int(demand.imputed.sum()) for demand in demands.values()),
        "unknown_meter": sum(demand.unknown_meter for demand in demands.values()),
        "wrong_interval": sum(demand.wrong_interval for demand in demands.values()),
        "unfinished_files": sum(len(manifest.unfinished) for manifest in manifests),
        "late_files": sum(len(set(late_files(landing, m)) - set(m.unfinished)) for m in manifests),
    }


def _print_summary(summary: Mapping[str, Any], first_s: int, zones: set[str]) -> None:
    first, intervals = datetime.fromtimestamp(first_s, UTC), len(summary["intervals"])
    more = f" and {intervals - 1:,} more" if intervals > 1 else ""
    stdout.print(
        f"Interval {first:%Y-%m-%d %H:%M} UTC{more}: {len(zones):,} {zones_word(zones)},"
        f" {summary['reported']:,} of {summary['expected']:,} readings are there."
    )
    left_out = (
        ("unknown_meter", "reading", "of meters that the table does not have there"),
        ("wrong_interval", "reading", "with the time of another interval"),
        ("unfinished_files", "file", "not finished"),
        ("late_files", "file", "come late"),
    )
    for member, noun, reason in left_out:
        if count := summary[member]:
            stdout.print(f"Left out: {count:,} {noun}{'' if count == 1 else 's'} {reason}.")
