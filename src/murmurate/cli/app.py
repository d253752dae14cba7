"""The app that commands hang on, the options they share, and what they say where a part is missing."""

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


def stop(why: str, status: int) -> None:
    typer.echo(f"murmurate: {why}", err=True)
    sys.exit(status)


State = Annotated[
    str, typer.Option(envvar="MURMURATE_STATE", show_default=False, help="Connection string of the state (PostgreSQL).")
]
Log = Annotated[
    str, typer.Option(envvar="MURMURATE_LOG", show_default=False, help="Connection string of the public log.")
]
Keys = Annotated[
    Path, typer.Option(envvar="MURMURATE_KEYS", file_okay=False, help="Folder that murmurate keys has made.")
]


def need_service() -> None:
    need("psycopg", extra="service", install="'psycopg[binary]'")


def need_gathering() -> None:
    need("psycopg", "pyarrow", extra="service", install="'psycopg[binary]' pyarrow")


def need(*modules: str, extra: str, install: str = "") -> None:
    """Stop with the remedy where an optional part is not installed."""
    from importlib.util import find_spec  # noqa: PLC0415

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        stop(f"the {extra} needs more than is installed. Run: pip install {install or ' '.join(missing)}", 2)
