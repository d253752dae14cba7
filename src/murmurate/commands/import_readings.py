"""`murmurate readings import`: files of readings become the readings, meter table and zone file of a zone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from murmurate.commands.json_output import print_json
from murmurate.errors import MurmurateError, ReadingError
from murmurate.planning.household_bounds import round_household_count
from murmurate.planning.plan_prediction import recommended_promise
from murmurate.readings.cell_values import DateOrder, DecimalMark, EnergyUnit
from murmurate.readings.columns import ColumnNames
from murmurate.readings.file_import import FileOptions
from murmurate.readings.import_run import METERS_NAME, READINGS_NAME, ImportOutput, ImportSummary, run_import
from murmurate.readings.imported_file import MIN_DAYS
from murmurate.readings.meter_columns import MeterPlace
from murmurate.time_zones import load_time_zone
from murmurate.types import check_zone_name
from murmurate.units import SECONDS_PER_DAY

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
    """Return folder, zone and bound of the outputs. Raises MurmurateError for a name that no zone can have."""
    try:
        check_zone_name(zone)
    except MurmurateError as error:
        raise ReadingError("--zone", error.value, error.allowed) from None
    return ImportOutput(folder, zone, bound_wh or max(_USUAL_BOUND_WH * interval_minutes // 15, 1))


def import_readings(
    files: Sequence[Path],
    options: FileOptions,
    output: ImportOutput,
    max_places: int = 5,
    advance: Callable[[int], None] = lambda _: None,
) -> ImportSummary:
    """Import files, and write readings, meter table and a zone file for each zone."""
    summary = run_import(files, options, output, check_zone_name, max_places=max_places, advance=advance)
    minutes, time_zone = options.interval_s // 60, options.time_zone or "UTC"
    zones = sorted({place.zone for place in summary.places})
    summary.zone_files = ["zone.toml"] if len(zones) == 1 else [f"{zone}.toml" for zone in zones]
    for zone, name in zip(zones, summary.zone_files, strict=True):
        places = [place for place in summary.places if place.zone == zone]
        text = _write_zone_file(zone, places, minutes, time_zone, output.bound_wh)
        (output.folder / name).write_text(text, encoding="utf-8")
    return summary


def _write_zone_file(zone: str, places: Sequence[MeterPlace], minutes: int, time_zone: str, bound_wh: int) -> str:
    """Return a zone file to begin with, which names the meter table."""
    homes = round_household_count(len({place.household or place.meter for place in places}))
    laws = {"away_wh": 3 * bound_wh // 10, "home_wh": 6 * bound_wh // 10}
    kinds = [
        _KIND_TEXT.format(name=json.dumps(kind, ensure_ascii=False), meters=METERS_NAME, **laws)
        for kind in sorted({place.kind for place in places})
    ]
    return _ZONE_TEXT.format(
        name=json.dumps(zone, ensure_ascii=False),
        minutes=minutes,
        time_zone=json.dumps(time_zone),
        promise=recommended_promise(homes),
        alpha=f"{0.16 / homes:.6f}",
        kinds="".join(kinds),
    )


def import_files(
    files: Sequence[Path], options: FileOptions, output: ImportOutput, *, max_places: int, as_json: bool
) -> ImportSummary:
    """Import files with a progress bar, and print what was taken and what not."""
    size = sum(path.stat().st_size for path in files)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=size < _LONG_FILE_BYTES)
    with bar:
        task = bar.add_task("reading", total=size)
        summary = import_readings(files, options, output, max_places, lambda done: bar.advance(task, done))
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
