"""Commands of the service: doors for readings, and the whole road."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import Log, State, app, need, need_gathering, stop

Zones = Annotated[list[str] | None, typer.Option("--zone", help="A zone whose meters it may speak for.")]


@app.command(epilog="Example: murmurate ingest readings.csv --readings landing/ --meters meters.csv")
def ingest(
    files: Annotated[list[Path], typer.Argument(help="CSV, Parquet, JSON lines (.jsonl) or Green Button (.xml).")],
    readings: Annotated[Path, typer.Option(help="Folder that readings land in.", file_okay=False)],
    meters: Annotated[Path, typer.Option(help="Meter table, CSV or Parquet.")],
    grace: Annotated[int, typer.Option(help="Seconds that an interval waits for its readings.", min=0)] = 60,
    zones: Zones = None,
) -> None:
    """Check the readings in files, and leave them where gather finds them."""
    need_gathering()
    from murmurate.service.doors import ingest_command  # noqa: PLC0415

    raise typer.Exit(ingest_command.ingest(files, readings, meters, zones or None, grace_s=grace))


@app.command(epilog="Example: murmurate client add head-end --zone harbour")
def client(
    what: Annotated[str, typer.Argument(help="add, remove or list.")],
    name: Annotated[str, typer.Argument(help="Name of the client.")] = "",
    zones: Zones = None,
    state: State = "",
    *,
    operator: Annotated[bool, typer.Option("--operator", help="It may see the operator's page.")] = False,
) -> None:
    """Say who may send readings, and for which zones. A client that is added again gets a new secret."""
    need_gathering()
    from murmurate.service import client_command  # noqa: PLC0415

    client_command.client(what, name, zones or [], state, operator=operator)


@app.command(epilog="Example: murmurate serve service.toml (murmurate serve --example > service.toml to begin)")
def serve(
    settings: Annotated[Path | None, typer.Argument(help="Settings of the service (TOML).", dir_okay=False)] = None,
    state: State = "",
    log: Log = "",
    only: Annotated[str | None, typer.Option(help="Only this part: private, road or public.")] = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print settings to start from.")] = False,
) -> None:
    """Take readings in, release rates on the clock, and give them to everybody."""
    _need_serving()
    if example:
        from murmurate.service.settings import EXAMPLE  # noqa: PLC0415

        typer.echo(EXAMPLE, nl=False)
        return
    if settings is None:
        stop("settings are needed; murmurate serve --example > service.toml writes some to begin with", 2)
        return
    from murmurate.service import serve as serving  # noqa: PLC0415

    raise typer.Exit(serving.serve(settings, state, log, only))


@app.command(epilog="Example: murmurate demo --postgres postgresql://postgres@127.0.0.1:5432/postgres")
def demo(
    postgres: Annotated[
        str, typer.Option(envvar="MURMURATE_POSTGRES", help="A PostgreSQL server on which databases may be made.")
    ] = "postgresql://postgres@127.0.0.1:5432/postgres",
    homes: Annotated[int, typer.Option(help="Homes in the town.", min=10, max=100_000)] = 1000,
    minutes: Annotated[float, typer.Option(help="How long it plays.", min=0.1)] = 5.0,
    speed: Annotated[float, typer.Option(help="How many times faster than life.", min=1)] = 60.0,
    port: Annotated[int, typer.Option(help="Port of the page; the next one takes readings.")] = 8080,
) -> None:
    """Watch a made-up town on the real service, and see what an attacker learns."""
    _need_serving()
    from murmurate.service.demo import command  # noqa: PLC0415

    raise typer.Exit(command.demo(postgres, homes=homes, minutes=minutes, speed=speed, port=port))


def _need_serving() -> None:
    need_gathering()
    need("starlette", "uvicorn", "httptools", "paho", extra="service", install="starlette uvicorn httptools paho-mqtt")
