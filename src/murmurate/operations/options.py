"""Options that commands share, what a shell completes for them, and imports that a base install lacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from murmurate.files import read_secret

MAX_OFFERED = 100
_SELECT_ZONES = "SELECT zone FROM public_log.claim WHERE starts_with(zone, %s) ORDER BY zone LIMIT %s"
_TIMEOUT_S = 2


def _read_connection_string(context: typer.Context, option: typer.CallbackParam, value: str) -> str:
    """Return the value of an option, of its variable, or of the file that the variable with _FILE names."""
    source = context.get_parameter_source(option.name or "")
    if context.resilient_parsing or (source is not None and source.name == "COMMANDLINE"):
        return value
    return read_secret(str(option.envvar), os.environ) or ""


State = Annotated[
    str,
    typer.Option(
        envvar="MURMURATE_STATE",
        callback=_read_connection_string,
        show_default=False,
        help="Connection string of the state (PostgreSQL). MURMURATE_STATE_FILE may name a file that has it.",
    ),
]
Log = Annotated[
    str,
    typer.Option(
        envvar="MURMURATE_LOG",
        callback=_read_connection_string,
        show_default=False,
        help="Connection string of the public log, or s3://bucket/prefix. MURMURATE_LOG_FILE may name a file with it.",
    ),
]
Keys = Annotated[
    Path, typer.Option(envvar="MURMURATE_KEYS", file_okay=False, help="Folder of keys that murmurate init created.")
]
LandingAddress = Annotated[
    str, typer.Option("--landing", help="Folder or bucket of readings that murmurate init created.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")]
Grace = Annotated[int, typer.Option(help="Seconds to wait for readings after an interval has ended.", min=0)]
ComparedTable = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        show_default="that of a running service",
        help="Meter table, CSV or Parquet: the plan must hide each of its households.",
    ),
]
LogPlans = Annotated[list[Path] | None, typer.Option("--plan", help="A plan.json that the log does not hold.")]


@contextmanager
def optional_imports() -> Iterator[None]:
    """Skip imports whose packages a base install lacks: `--help` works there, and the command names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "murmurate":
            raise


def complete_words(*words: str) -> Callable[[str], list[str]]:
    """Return a function that offers those of some words that begin as the given one."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_zone(incomplete: str) -> list[str]:
    """Offer the zones of the log that MURMURATE_LOG names; none if it does not answer at once."""
    try:
        dsn = read_secret("MURMURATE_LOG", os.environ)
        if not dsn:
            return []
        import psycopg  # noqa: PLC0415

        with psycopg.connect(dsn, connect_timeout=_TIMEOUT_S, options=f"-c statement_timeout={_TIMEOUT_S}s") as log:
            return [row[0] for row in log.execute(_SELECT_ZONES, (incomplete, MAX_OFFERED))]
    except Exception:  # noqa: BLE001  a shell that completes a word shows no errors
        return []
