"""The Typer app, the options that commands share, and the message when an optional package is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Publish real-time electricity rates without publishing who is home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EVALUATE, RUN, OPERATE, CHECK = "Plan and evaluate", "Run", "Operate", "Check"  # groups of commands in `--help`

State = Annotated[
    str, typer.Option(envvar="MURMURATE_STATE", show_default=False, help="Connection string of the state (PostgreSQL).")
]
Log = Annotated[
    str, typer.Option(envvar="MURMURATE_LOG", show_default=False, help="Connection string of the public log.")
]
Keys = Annotated[Path, typer.Option(envvar="MURMURATE_KEYS", file_okay=False, help="Folder created by murmurate keys.")]
LandingFolder = Annotated[Path, typer.Option("--landing", help="Folder created by murmurate landing.", file_okay=False)]
Grace = Annotated[int, typer.Option(help="Seconds to wait for readings after an interval has ended.", min=0)]


def stop(message: str, status: int) -> None:
    """Print a message on standard error and exit."""
    typer.echo(f"murmurate: {message}", err=True)
    sys.exit(status)


def require_database() -> None:
    require("psycopg", extra="service", install="'psycopg[binary]'")


def require_readings() -> None:
    require("psycopg", "pyarrow", extra="service", install="'psycopg[binary]' pyarrow")


def require_service() -> None:
    require_readings()
    servers = "starlette uvicorn httptools paho-mqtt"
    require("starlette", "uvicorn", "httptools", "paho", extra="service", install=servers)


def require(*modules: str, extra: str, install: str = "") -> None:
    """Exit with the command to run when an optional package is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        stop(f"the {extra} needs more than is installed. Run: pip install {install or ' '.join(missing)}", 2)
