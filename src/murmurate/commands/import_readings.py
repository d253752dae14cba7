"""`murmurate readings import`: files of readings become the readings, meter table and zone file of a zone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from murmurate.commands.json_output import print_json
from murmurate.errors import MurmurateError, ReadingError
from murmurate.lab.evaluate.readings_file import MIN_DAYS
from murmurate.reading_import.cell_values import DecimalMark, EnergyUnit
from murmurate.reading_import.columns import ColumnNames
from murmurate.reading_import.file_import import FileOptions
from murmurate.reading_import.import_run import ImportOutput, ImportSummary, import_readings
from murmurate.reading_import.local_time import DateOrder
from murmurate.reading_import.output_files import METERS_NAME, READINGS_NAME, USUAL_BOUND_WH
from murmurate.time_zones import load_time_zone
from murmurate.types import check_zone_name
from murmurate.units import SECONDS_PER_DAY

Choice = TypeVar("Choice")
_LONG_FILE_BYTES = 5_000_000  # from which a bar is shown


def make_file_options(
    *,
    clock: tuple[str | None, str, str | None],
    minutes: tuple[int, int | None],
    unit: str | None,
    decimal: str | None,
    names: ColumnNames,
) -> FileOptions:
    """Return how files are read, from the options of the command line.

    `clock` is time zone, stamps and order of dates, `minutes` the interval of the zone and of the files. Raises
    MurmurateError for a value that is not allowed.
    """
    time_zone, stamps, dates = clock
    interval_minutes, source_minutes = minutes
    if time_zone is not None:
        load_time_zone(time_zone)
    if SECONDS_PER_DAY % (60 * interval_minutes) or (60 % interval_minutes and interval_minutes % 60):
        raise ReadingError("--interval-minutes", interval_minutes, "must divide an hour, or be hours that divide a day")
    units = {each.value.lower(): each for each in EnergyUnit}
    marks = {"point": DecimalMark.POINT, "comma": DecimalMark.COMMA}
    return FileOptions(
        interval_s=60 * interval_minutes,
        time_zone=time_zone,
        unit=_choose("--unit", unit, units, "kWh or Wh"),
        decimal=_choose("--decimal", decimal, marks, "point or comma"),
        date_order=_choose("--dates", dates, {each.value: each for each in DateOrder}, "dmy or mdy"),
        source_length_s=None if source_minutes is None else 60 * source_minutes,
        is_end=_choose("--stamps", stamps, {"start": False, "end": True}, "start or end") is True,
        names=names,
    )


def _choose(option: str, text: str | None, known: Mapping[str, Choice], allowed: str) -> Choice | None:
    if text is None:
        return None
    if text.lower() not in known:
        raise ReadingError(option, text, f"must be {allowed}")
    return known[text.lower()]


def make_output(folder: Path, zone: str, interval_minutes: int, bound_wh: int | None) -> ImportOutput:
    """Return where the outputs go. Raises MurmurateError for a name that no zone can have."""
    try:
        check_zone_name(zone)
    except MurmurateError as error:
        raise ReadingError("--zone", error.value, error.allowed) from None
    return ImportOutput(folder, zone, bound_wh or max(USUAL_BOUND_WH * interval_minutes // 15, 1))


def import_files(
    files: Sequence[Path], options: FileOptions, output: ImportOutput, *, max_places: int, as_json: bool
) -> ImportSummary:
    """Import files with a progress bar, and print what was taken and what not."""
    size = sum(path.stat().st_size for path in files)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=size < _LONG_FILE_BYTES)
    with bar:
        task = bar.add_task("reading", total=size)
        summary = import_readings(
            files, options, output, max_places=max_places, advance=lambda done: bar.advance(task, done)
        )
    if as_json:
        print_json(summary.to_document() | {"folder": str(output.folder)})
    else:
        _print_summary(summary, options, output)
    return summary


def _print_summary(summary: ImportSummary, options: FileOptions, output: ImportOutput) -> None:
    console = Console(highlight=False, soft_wrap=True, markup=False)
    for file in summary.files:
        console.print(_describe_file(file))
    found = summary.to_document()
    column = "" if summary.household_column is None else f" (column {summary.household_column})"
    console.print(
        f"Taken: {summary.readings:,} readings of {options.interval_s // 60} minutes from {len(summary.meters):,} "
        f"meters of {summary.households:,} households{column}, {found['first']} to {found['last']}."
    )
    for sentence in summary.warnings:
        console.print(f"Warning: {sentence}")
    days = (summary.last_s + options.interval_s - summary.first_s) / SECONDS_PER_DAY
    if days < MIN_DAYS:
        console.print(
            f"That is {days:.1f} days: evaluate and forecast need {MIN_DAYS}. Import the weeks before it as well."
        )
    if summary.repeated:
        console.print(f"{summary.repeated:,} were there more than once and count once.")
    if summary.above_bound:
        share = 100 * summary.above_bound / summary.readings
        console.print(f"{share:.2g} % are above --bound-wh {output.bound_wh}: the service counts them as the bound.")
    console.print(f"Not taken: {summary.refused.total:,} cells." if summary.refused.total else "Nothing was refused.")
    for reason, count in sorted(summary.refused.counts.items(), key=lambda item: (-item[1], item[0])):
        places = summary.refused.places[reason]
        more = " ..." if count > len(places) else ""
        console.print(f"  {count:,} {reason}\n    {'; '.join(places)}{more}")
    console.print(f"Written to {output.folder}/: {READINGS_NAME}, {METERS_NAME}, {', '.join(summary.zone_files)}.")


def _describe_file(file: dict[str, object]) -> str:
    details = [str(file["format"])]
    details += [str(file["layout"])] if "layout" in file else []
    minutes = " and ".join(f"{each:g}" for each in file["minutes"])  # type: ignore[attr-defined]
    details += [f"{minutes} minutes"]
    source = f" (from {file['unit_from']})" if "unit_from" in file else ""
    details += [f"{file['unit']}{source}"]
    if "decimal" in file:
        details += [f"decimal mark: {file['decimal']}"]
    return f"{file['file']}: {file['rows']:,} rows; {'; '.join(details)}."
