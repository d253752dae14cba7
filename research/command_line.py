"""What the programs of research share on the command line."""

from __future__ import annotations

import sys

import typer

from murmurate.errors import MurmurateError
from murmurate.files import describe_os_error


def run_program(app: typer.Typer, name: str) -> None:
    """Run a program. Print an error of its options or files in one line, and exit with status 2."""
    try:
        app()
    except (MurmurateError, OSError) as error:
        message = describe_os_error(error) if isinstance(error, OSError) else str(error)
        typer.echo(f"{name}: {message}", err=True)
        sys.exit(2)
