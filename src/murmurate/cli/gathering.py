"""Commands from readings to demand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import State, app, need, need_gathering


@app.command(epilog="Example: murmurate landing landing/ --minutes 15")
def landing(
    folder: Annotated[Path, typer.Argument(help="Folder for the readings.", file_okay=False)],
    minutes: Annotated[int, typer.Option(help="Length of an interval.", min=1)] = 15,
    shard_meters: Annotated[int, typer.Option(help="Meters that share a folder.", min=1)] = 131_072,
) -> None:
    """Make the folder that readings land in."""
    need_gathering()
    from murmurate.service.gathering import command  # noqa: PLC0415

    command.new_landing(folder, minutes, shard_meters)


@app.command(epilog="Example: murmurate gather --readings landing/ --meters meters.csv --out demand.parquet")
def gather(
    readings: Annotated[Path, typer.Option(help="Folder that readings land in.", file_okay=False)],
    meters: Annotated[
        Path | None, typer.Option(help="Meter table, CSV or Parquet; not needed to gather an interval again.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(help="Its begin, or BEGIN/END for several; otherwise the last that is over.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Parquet file for the demand; otherwise it goes to the state.", dir_okay=False)
    ] = None,
    state: State = "",
    grace: Annotated[int, typer.Option(help="Seconds that an interval waits for its readings.", min=0)] = 60,
    engine: Annotated[str, typer.Option(help="process, or spark.")] = "process",
    master: Annotated[str, typer.Option(help="Spark master, such as spark://host:7077.")] = "local[*]",
) -> None:
    """Close intervals and add up the readings of each zone: the demand that a release is made of."""
    need_gathering()
    if engine == "spark":
        need("pyspark", "pandas", extra="spark engine", install="'pyspark>=4' 'pandas<3'")
    from murmurate.service.gathering import command  # noqa: PLC0415

    where = command.Engine(name=engine, master=master)
    done = command.gather_intervals(readings, meters, interval, to=out, state=state, grace_s=grace, engine=where)
    raise typer.Exit(done)


@app.command(epilog="Example, from cron, each night: murmurate forget landing/ --days 7")
def forget(
    folder: Annotated[Path, typer.Argument(help="Folder that readings land in.", file_okay=False)],
    days: Annotated[float, typer.Option(help="Keep the readings of so many days.", min=0)] = 7,
) -> None:
    """Delete old readings. Intervals that are forgotten can never be gathered again."""
    need_gathering()
    from murmurate.service.gathering import command  # noqa: PLC0415

    command.forget_readings(folder, days)
