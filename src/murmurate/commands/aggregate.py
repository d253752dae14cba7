"""`murmurate step aggregate`: close intervals, and sum the readings of each zone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from murmurate.errors import MeterError, MurmurateError
from murmurate.extras import require_extra
from murmurate.operations.console import format_utc, print_blocked, print_json, stderr, stdout, zones_word
from murmurate.operations.options import AsJson, Grace, LandingAddress, State, complete_words, optional_imports
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    from murmurate.aggregation import Tally
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

_MAX_TASKS = 1024  # at once: each opens every file of the folder of an interval


def aggregate_intervals(
    root: LandingAddress,
    meters: Annotated[
        Path | None, typer.Option(help="Meter table, CSV or Parquet; not needed for an interval that is closed.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Its start, or START/END for several; by default the last that has ended.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Parquet file for the demand; by default it goes to the state.", dir_okay=False)
    ] = None,
    state: State = "",
    grace: Grace = 60,
    engine: Annotated[
        str, typer.Option(help="process, or spark.", autocompletion=complete_words("process", "spark"))
    ] = "process",
    master: Annotated[str, typer.Option(help="Spark master, such as spark://host:7077.")] = "local[*]",
    keep_days: Annotated[
        float | None,
        typer.Option(help="Then delete readings that are older: their intervals can never be aggregated again.", min=0),
    ] = None,
    *,
    as_json: AsJson = False,
) -> int:
    """Close the intervals and write their demand to a file if one is named, else to the state."""
    if engine not in {"process", "spark"}:
        raise MurmurateError("--engine", engine, "must be process or spark")
    if engine == "spark":
        require_extra("service,spark", "pyspark", "pandas")
    if out is None and not state:
        raise MurmurateError("--out", "missing", "name where the demand goes: --out demand.parquet, or --state")
    if out is not None and not out.absolute().parent.is_dir():
        raise MurmurateError("--out", out, "must be in a folder that exists")
    landing = Landing.open(root)
    if out is None:
        Database("state", state).check_reachable()
    with stderr.status("closing"):
        tables = _by_table(landing, meters, _requested_starts(landing, interval, grace))
        jobs = [(table, close_intervals(landing, group, table)) for table, group in tables]
    manifests = [manifest for _, group in jobs for manifest in group]
    run, min_tasks = _start_spark(master) if engine == "spark" else (_run_with_progress, 1)
    demands: dict[int, Demand] = {}
    for table, group in jobs:
        demands |= aggregate_landing(landing, table, group, run, min_tasks)
    summary, blocked = _summarize(landing, manifests, demands), dict[str, str]()
    if out is not None:
        write_demand(out, demands)
        summary |= {"file": str(out), "submitted": None}
    else:
        with mask_database_errors(), closing(PostgresStateStore(state)) as store:
            blocked = dict(sorted(submit_demand(store, landing.interval_s, demands).items()))
        zones = {zone for demand in demands.values() for zone in demand.zones}
        summary |= {"file": None, "submitted": len(zones - blocked.keys())}
    before_s = None if keep_days is None else int(time.time() - keep_days * SECONDS_PER_DAY)
    summary |= {"blocked": blocked, "purged": None if before_s is None else purge_intervals(landing, before_s)}
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)
    print_blocked(blocked)
    return 1 if blocked else 0


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


def _start_spark(master: str) -> tuple[TaskRunner, int]:
    """Return what runs the tasks, and how many of them it can divide."""
    from murmurate.service.aggregation.spark import slice_count, spark_session, spark_task_runner  # noqa: PLC0415

    with stderr.status(f"starting a session on {master}"):
        spark = spark_session(master)
        return spark_task_runner(spark), slice_count(spark, max_slices=_MAX_TASKS)


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
    landing: Landing, manifests: Sequence[IntervalManifest], demands: Mapping[int, Demand]
) -> dict[str, Any]:
    """Counts of readings and files. No number depends on what a meter measured."""
    reported = sum(int(demand.reported.sum()) for demand in demands.values())
    return {
        "intervals": [format_utc(start_s) for start_s in demands],
        "zones": len({zone for demand in demands.values() for zone in demand.zones}),
        "reported": reported,
        "expected": reported + sum(int(demand.imputed.sum()) for demand in demands.values()),
        "unknown_meter": sum(demand.unknown_meter for demand in demands.values()),
        "wrong_interval": sum(demand.wrong_interval for demand in demands.values()),
        "unfinished_files": sum(len(manifest.unfinished) for manifest in manifests),
        "late_files": sum(len(set(late_files(landing, m)) - set(m.unfinished)) for m in manifests),
    }


def _print_summary(summary: Mapping[str, Any]) -> None:
    first, intervals, zones = min(summary["intervals"]), len(summary["intervals"]), summary["zones"]
    more = f" and {intervals - 1:,} more" if intervals > 1 else ""
    stdout.print(
        f"Interval {first[:10]} {first[11:16]} UTC{more}: {zones:,} {zones_word(range(zones))},"
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
    if summary["file"] is not None:
        stdout.print(f"Demand, confidential, written to {summary['file']}.")
    else:
        words = f"{summary['submitted']:,} of {zones:,} {zones_word(range(zones))}"
        stdout.print(f"Demand of {words} submitted to the state.")
    if (purged := summary["purged"]) is not None:
        stdout.print(f"Readings of {purged:,} interval{'' if purged == 1 else 's'} purged.")
