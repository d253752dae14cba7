"""`murmurate readings import`: files of readings become the readings, meter table and zone file of a zone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from murmurate.errors import MurmurateError, ReadingError
from murmurate.extras import require_extra
from murmurate.operations.console import print_json, stderr, stdout
from murmurate.operations.options import AsJson, optional_imports
from murmurate.time_zones import load_time_zone
from murmurate.types import check_zone_name
from murmurate.units import SECONDS_PER_DAY

with optional_imports():
    from murmurate.lab.sample_homes import SAMPLE_HOMES, SAMPLE_ZONE, write_sample
    from murmurate.planning.household_bounds import round_household_count
    from murmurate.planning.plan_prediction import recommended_promise
    from murmurate.readings.cell_values import DateOrder, DecimalMark, EnergyUnit
    from murmurate.readings.columns import ColumnNames
    from murmurate.readings.file_import import ImportOptions
    from murmurate.readings.import_run import METERS_NAME, READINGS_NAME, ImportSummary, run_import
    from murmurate.readings.imported_file import MIN_DAYS

Choice = TypeVar("Choice")
_LONG_FILE_BYTES = 5_000_000  # from which a bar is shown
_USUAL_BOUND_WH = 1000  # of a quarter hour, as in the example of `murmurate plan`
_ZONE_TEXT = """\
# Made by murmurate readings import. What stands here is public: choose it without looking at the readings.
name = {name}
currency = "EUR"
interval_minutes = {minutes}
time_zone = {time_zone}
promise = ["{promise}"]

[tariff]                                    # money/kWh: alpha per kWh of demand, on top of beta
alpha = "{alpha}"
beta = "0.08"
tick = "0.00001"
floor = "0"
cap = "2"

[occupancy.resident]                        # chances to arrive or leave at some point during a period
periods = {{ morning = "07:00", noon = "08:00", evening = "16:00", night = "23:00" }}
arrive = {{ morning = 0.98, noon = 0.05, evening = 0.99, night = 0.01 }}
leave = {{ morning = 0.05, noon = 0.95, evening = 0.05, night = 0.995 }}
{kinds}
[forecast]                                  # prices are predicted from the releases and what is expected above
from = "occupancy"
"""
_KIND_TEXT = """
[[households]]
name = {name}
meters = "{meters}"
away = {{ uniform_to = {away_wh} }}
home = {{ uniform_to = {home_wh} }}
occupancy = "resident"
"""

FileZone = Annotated[
    str | None,
    typer.Option("--timezone", help="Whose clocks times without an offset are read on: UTC, Europe/Zurich, ..."),
]
SourceMinutes = Annotated[
    int | None,
    typer.Option(min=1, max=60, show_default="from the times", help="Length of an interval of the files."),
]
DateText = Annotated[
    str | None, typer.Option(help="Order of dates with slashes: dmy or mdy.", show_default="from the first rows")
]
HouseholdColumn = Annotated[
    str | None,
    typer.Option(help="Name of the column of the household or customer: meters with the same value are one household."),
]
MeterBound = Annotated[
    int | None,
    typer.Option(min=1, show_default="1000 a quarter hour", help="The most that a meter may add to an interval."),
]
ExportBound = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default="no column: readings below zero count as zero",
        help="The most that a meter may feed in within an interval.",
    ),
]
ExportFiles = Annotated[
    list[Path] | None,
    typer.Option("--export-file", help="File of energy fed in: subtracted.", exists=True, dir_okay=False),
]
ExampleFolder = Annotated[
    Path | None, typer.Option("--example", help="Write a made file of 200 homes to this folder, and stop.")
]


def import_files(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="CSV, Parquet or Green Button (XML).", exists=True, dir_okay=False, show_default=False),
    ] = None,
    time_zone: FileZone = None,
    unit: Annotated[str | None, typer.Option(help="kWh or Wh.", show_default="from the header")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the outputs.", file_okay=False)] = Path("imported"),
    interval_minutes: Annotated[int, typer.Option(help="Length of an interval of the zone.", min=1, max=1440)] = 15,
    source_minutes: SourceMinutes = None,
    stamps: Annotated[str, typer.Option(help="Whether a time is the start or the end of its interval.")] = "start",
    decimal: Annotated[str | None, typer.Option(help="point or comma.", show_default="from the first rows")] = None,
    dates: DateText = None,
    meter_column: Annotated[str | None, typer.Option(help="Name of the column of the meter.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Name of the column of the time or day.")] = None,
    energy_column: Annotated[str | None, typer.Option(help="Name of the column of the energy.")] = None,
    export_column: Annotated[str | None, typer.Option(help="Name of a column of energy fed in: subtracted.")] = None,
    export_file: ExportFiles = None,
    household_column: HouseholdColumn = None,
    zone_column: Annotated[str | None, typer.Option(help="Name of the column of the zone, instead of --zone.")] = None,
    kind_column: Annotated[str | None, typer.Option(help="Name of the column of the kind of household.")] = None,
    zone: Annotated[str, typer.Option(help="Zone of the meters, for meters.csv and zone.toml.")] = "imported",
    bound_wh: MeterBound = None,
    export_bound_wh: ExportBound = None,
    show: Annotated[int, typer.Option(help="Places shown for each reason.", min=1, max=1000)] = 5,
    example: ExampleFolder = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a cell was refused.")] = False,
    as_json: AsJson = False,
) -> int:
    """Import files with a progress bar, and print what was taken and what not."""
    if example is not None:
        return _write_example(example)
    files = [*(files or []), *(export_file or [])]
    if not files:
        raise MurmurateError("the file", "missing", "murmurate readings import --example . writes one to begin with")
    require_extra("service", "pyarrow")
    _check_names(time_zone, interval_minutes, zone)
    options = ImportOptions(
        folder=out,
        zone=zone,
        bound_wh=bound_wh or max(_USUAL_BOUND_WH * interval_minutes // 15, 1),
        interval_s=60 * interval_minutes,
        time_zone=time_zone,
        unit=_choose("--unit", unit, {each.value.lower(): each for each in EnergyUnit}, "kWh or Wh"),
        decimal=_choose("--decimal", decimal, {"point": DecimalMark("."), "comma": DecimalMark(",")}, "point or comma"),
        date_order=_choose("--dates", dates, {each.value: each for each in DateOrder}, "dmy or mdy"),
        source_length_s=None if source_minutes is None else 60 * source_minutes,
        is_end=_choose("--stamps", stamps, {"start": False, "end": True}, "start or end") is True,
        names=ColumnNames(
            meter_column, time_column, energy_column, household_column, zone_column, kind_column, export_column
        ),
        export_files=tuple(export_file or ()),
        export_bound_wh=export_bound_wh,
    )
    summary = _import_with_bar(files, options, show)
    if as_json:
        print_json(summary.to_document() | {"folder": str(out)})
    else:
        _print_summary(summary, options)
    return 1 if strict and summary.refused.total else 0


def _write_example(folder: Path) -> int:
    require_extra("service", "scipy")
    path = write_sample(folder)
    stdout.print(f"{path}: half hours of {SAMPLE_HOMES} simulated homes, on the clocks of {SAMPLE_ZONE}. Next:")
    stdout.print(f"murmurate readings import {path} --timezone {SAMPLE_ZONE} --out imported")
    return 0


def _import_with_bar(files: Sequence[Path], options: ImportOptions, max_places: int) -> ImportSummary:
    size = sum(path.stat().st_size for path in files)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=size < _LONG_FILE_BYTES) as bar:
        task = bar.add_task("reading", total=size)
        return import_readings(files, options, max_places, lambda done: bar.advance(task, done))


def _check_names(time_zone: str | None, interval_minutes: int, zone: str) -> None:
    """Raise MurmurateError for a time zone, an interval or a zone that no zone can have."""
    if time_zone is not None:
        load_time_zone(time_zone)
    if SECONDS_PER_DAY % (60 * interval_minutes) or (60 % interval_minutes and interval_minutes % 60):
        raise ReadingError("--interval-minutes", interval_minutes, "must divide an hour, or be hours that divide a day")
    try:
        check_zone_name(zone)
    except MurmurateError as error:
        raise ReadingError("--zone", error.value, error.allowed) from None


def _choose(option: str, text: str | None, known: Mapping[str, Choice], allowed: str) -> Choice | None:
    if text is None:
        return None
    if text.lower() not in known:
        raise ReadingError(option, text, f"must be {allowed}")
    return known[text.lower()]


def import_readings(
    files: Sequence[Path],
    options: ImportOptions,
    max_places: int = 5,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportSummary:
    """Import files, and write readings, meter table and a zone file for each zone."""
    summary = run_import(files, options, check_zone_name, max_places=max_places, advance=advance)
    zones = sorted({place.zone for place in summary.places})
    summary.zone_files = ["zone.toml"] if len(zones) == 1 else [f"{zone}.toml" for zone in zones]
    laws = {"away_wh": 3 * options.bound_wh // 10, "home_wh": 6 * options.bound_wh // 10}
    for zone, name in zip(zones, summary.zone_files, strict=True):
        places = [place for place in summary.places if place.zone == zone]
        homes = round_household_count(len({place.household or place.meter for place in places}))
        kinds = [
            _KIND_TEXT.format(name=json.dumps(kind, ensure_ascii=False), meters=METERS_NAME, **laws)
            for kind in sorted({place.kind for place in places})
        ]
        text = _ZONE_TEXT.format(
            name=json.dumps(zone, ensure_ascii=False),
            minutes=options.interval_s // 60,
            time_zone=json.dumps(options.time_zone or "UTC"),
            promise=recommended_promise(homes),
            alpha=f"{0.16 / homes:.6f}",
            kinds="".join(kinds),
        )
        (options.folder / name).write_text(text, encoding="utf-8")
    return summary


def _print_summary(summary: ImportSummary, options: ImportOptions) -> None:
    for file in summary.files:
        stdout.print(_describe_file(file))
    found = summary.to_document()
    minutes = options.interval_s // 60
    column = "" if summary.household_column is None else f" (column {summary.household_column})"
    stdout.print(
        f"Taken: {summary.readings:,} readings of {minutes} minute{'s' * (minutes > 1)} from {len(summary.meters):,} "
        f"meters of {summary.households:,} households{column}, {found['first']} to {found['last']}."
    )
    for sentence in summary.warnings:
        stdout.print(f"Warning: {sentence}")
    days = (summary.last_s + options.interval_s - summary.first_s) / SECONDS_PER_DAY
    if days < MIN_DAYS:
        stdout.print(
            f"That is {days:.1f} days: evaluate and forecast need {MIN_DAYS}. Import the weeks before it as well."
        )
    if summary.repeated:
        stdout.print(f"{summary.repeated:,} cells were there before, with the same reading: each reading counts once.")
    if summary.above_bound:
        share = 100 * summary.above_bound / summary.readings
        stdout.print(f"{share:.3g} % are above --bound-wh {options.bound_wh}: the service counts them as the bound.")
    if summary.below_zero and options.export_bound_wh is not None:
        share = 100 * summary.below_export_bound / summary.below_zero
        stdout.print(
            f"{summary.below_zero:,} readings of {summary.feeding_meters:,} meters are below zero, as these feed in; "
            f"{share:.3g} % of them feed in more than --export-bound-wh {options.export_bound_wh} and count as it."
        )
    stdout.print(f"Not taken: {summary.refused.total:,} cells." if summary.refused.total else "Nothing was refused.")
    for reason, count in sorted(summary.refused.counts.items(), key=lambda item: (-item[1], item[0])):
        places = summary.refused.places[reason]
        more = " ..." if count > len(places) else ""
        stdout.print(f"  {count:,} {reason}\n    {'; '.join(places)}{more}")
    stdout.print(f"Written to {options.folder}/: {READINGS_NAME}, {METERS_NAME}, {', '.join(summary.zone_files)}.")


def _describe_file(file: dict[str, object]) -> str:
    details = [str(file["format"])]
    details += [str(file["layout"])] if "layout" in file else []
    minutes = " and ".join(f"{each:g}" for each in file["minutes"])  # type: ignore[attr-defined]
    details += [f"{minutes} minutes"]
    source = f" (from {file['unit_from']})" if "unit_from" in file else ""
    details += [f"{file['unit']}{source}"]
    if "decimal" in file:
        details += [f"decimal mark: {file['decimal']}"]
    if "subtracted" in file:
        details += [f"{file['subtracted']} is export: it is subtracted"]
    if "unused_export" in file:
        details += [f"the column {file['unused_export']} is not used: --export-column subtracts it"]
    return f"{file['file']}: {file['rows']:,} rows; {'; '.join(details)}."
