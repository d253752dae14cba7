"""The command line. Each command imports its own body when it runs, so that `--help` is quick.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from murmurate import __version__
from murmurate.cli.app import app, stop
from murmurate.errors import MurmurateError
from murmurate.files import describe_os_error

from murmurate.cli import readings, evaluate, research, backtest, run, operate, check, watch  # isort: skip  # noqa: F401  the order of --help


def main() -> None:
    """Run a command; say what went wrong in one line that a person can act on."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± gets a question mark, not a traceback
    try:
        app()
    except MurmurateError as error:
        stop(str(error), 2)
    except OSError as error:
        stop(describe_os_error(error), 2)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"murmurate {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
