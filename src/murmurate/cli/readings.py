"""The command that imports files of readings: import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import AsJson, readings_group, require_parquet, stop
from murmurate.errors import require_extra

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="CSV, Parquet or Green Button (XML).", exists=True, dir_okay=False, show_default=False),
]
FileZone = Annotated[
    str | None,
    typer.Option("--timezone", help="Whose clocks times without an offset are read on: UTC, Europe/Zurich, ..."),
]
FileUnit = Annotated[str | None, typer.Option("--unit", help="kWh or Wh.", show_default="from the header")]
OutputFolder = Annotated[Path, typer.Option("--out", help="Folder for the outputs.", file_okay=False)]
ZoneMinutes = Annotated[int, typer.Option(help="Length of an interval of the zone.", min=1, max=1440)]
SourceMinutes = Annotated[
    int | None,
    typer.Option(min=1, max=60, show_default="from the times", help="Length of an interval of the files."),
]
TimeStamps = Annotated[str, typer.Option(help="Whether a time is the start or the end of its interval.")]
DecimalText = Annotated[str | None, typer.Option(help="point or comma.", show_default="from the first rows")]
DateText = Annotated[
    str | None, typer.Option(help="Order of dates with slashes: dmy or mdy.", show_default="from the first rows")
]
MeterColumn = Annotated[str | None, typer.Option(help="Name of the column of the meter.")]
TimeColumn = Annotated[str | None, typer.Option(help="Name of the column of the time or day.")]
EnergyColumn = Annotated[str | None, typer.Option(help="Name of the column of the energy.")]
HouseholdColumn = Annotated[
    str | None,
    typer.Option(help="Name of the column of the household or customer: meters with the same value are one household."),
]
ZoneColumn = Annotated[str | None, typer.Option(help="Name of the column of the zone, instead of --zone.")]
KindColumn = Annotated[str | None, typer.Option(help="Name of the column of the kind of household.")]
OutputZone = Annotated[str, typer.Option(help="Zone of the meters, for meters.csv and zone.toml.")]
MeterBound = Annotated[
    int | None,
    typer.Option(min=1, show_default="1000 a quarter hour", help="The most that a meter may add to an interval."),
]
ShownPlaces = Annotated[int, typer.Option(help="Places shown for each reason.", min=1, max=1000)]
ExampleFolder = Annotated[
    Path | None, typer.Option("--example", help="Write a made file of 200 homes to this folder, and stop.")
]


@readings_group.command(
    name="import",
    epilog="Example: murmurate readings import meters-2025.csv --timezone Europe/Zurich --out imported "
    "(murmurate readings import --example . writes a file to try it with)",
)
def run_import_command(
    files: Files = None,
    time_zone: FileZone = None,
    unit: FileUnit = None,
    out: OutputFolder = Path("imported"),
    interval_minutes: ZoneMinutes = 15,
    source_minutes: SourceMinutes = None,
    stamps: TimeStamps = "start",
    decimal: DecimalText = None,
    dates: DateText = None,
    meter_column: MeterColumn = None,
    time_column: TimeColumn = None,
    energy_column: EnergyColumn = None,
    household_column: HouseholdColumn = None,
    zone_column: ZoneColumn = None,
    kind_column: KindColumn = None,
    zone: OutputZone = "imported",
    bound_wh: MeterBound = None,
    show: ShownPlaces = 5,
    example: ExampleFolder = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a cell was refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn your files of readings into what evaluate, plan and ingest read, and say what was not taken and why."""
    if example is not None:
        require_extra("service", "scipy")
        from murmurate.commands.import_example import write_example  # noqa: PLC0415

        write_example(example)
        return
    if not files:
        stop("a file is needed; murmurate readings import --example . writes one to begin with", 2)
        return
    require_parquet()
    from murmurate.commands.import_readings import import_files, make_file_options, make_output  # noqa: PLC0415
    from murmurate.readings.columns import ColumnNames  # noqa: PLC0415

    clock = (time_zone, stamps, dates)
    minutes = (interval_minutes, source_minutes)
    names = ColumnNames(meter_column, time_column, energy_column, household_column, zone_column, kind_column)
    options = make_file_options(clock=clock, minutes=minutes, unit=unit, decimal=decimal, names=names)
    output = make_output(out, zone, interval_minutes, bound_wh)
    summary = import_files(files, options, output, max_places=show, as_json=as_json)
    if strict and summary.refused.total:
        raise typer.Exit(1)
