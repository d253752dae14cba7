"""The Typer app, the options that commands share, and which commands need which optional packages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from murmurate.errors import require_extra

app = typer.Typer(
    help="Publish real-time electricity rates without publishing who is home.",
    epilog="Exit status: 0 done, 1 something is not well, 2 not done, 3 a plan is missing: docs/reference/exit-status",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EVALUATE, RUN, OPERATE, CHECK = "Plan and evaluate", "Run", "Operate", "Check"  # panels of `--help`


def _make_group(name: str, panel: str, summary: str) -> typer.Typer:
    group = typer.Typer(help=summary, no_args_is_help=True)
    app.add_typer(group, name=name, rich_help_panel=panel)
    return group


readings_group = _make_group("readings", EVALUATE, "Files of readings: import, ingest.")
zone_group = _make_group("zone", OPERATE, "Zones of the public log: open, change, close.")
keys_group = _make_group("keys", OPERATE, "Keys that sign releases: rotate.")
step_group = _make_group("step", OPERATE, "Single steps of the service, for other schedulers: aggregate, release.")
log_group = _make_group("log", CHECK, "The public log: verify, export, repair, archive.")

State = Annotated[
    str, typer.Option(envvar="MURMURATE_STATE", show_default=False, help="Connection string of the state (PostgreSQL).")
]
Log = Annotated[
    str, typer.Option(envvar="MURMURATE_LOG", show_default=False, help="Connection string of the public log.")
]
Keys = Annotated[
    Path, typer.Option(envvar="MURMURATE_KEYS", file_okay=False, help="Folder of keys that murmurate init created.")
]
LandingFolder = Annotated[
    Path, typer.Option("--landing", help="Folder of readings that murmurate init created.", file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Grace = Annotated[int, typer.Option(help="Seconds to wait for readings after an interval has ended.", min=0)]


def stop(message: str, status: int) -> None:
    """Print a message on standard error and exit."""
    typer.echo(f"murmurate: {message}", err=True)
    sys.exit(status)


def require_planning() -> None:
    require_extra("plan", "scipy", "opendp")


def require_lab() -> None:
    require_extra("lab", "matplotlib", "scipy", "opendp")


def require_database() -> None:
    require_extra("service", "psycopg")


def require_parquet() -> None:
    require_extra("service", "pyarrow")


def require_readings() -> None:
    require_extra("service", "psycopg", "pyarrow")


def require_publisher() -> None:
    require_extra("service", "psycopg", "opendp")


def require_service(extra: str = "service") -> None:
    servers = ("starlette", "uvicorn", "httptools", "jinja2", "msgspec", "paho", "prometheus_client")
    require_extra(extra, "psycopg", "psycopg_pool", "pyarrow", "opendp", "scipy", *servers)
