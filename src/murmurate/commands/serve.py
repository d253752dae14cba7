"""`murmurate serve`: run the processes of a service."""

from __future__ import annotations

import logging
import os
import signal
import time
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Annotated

import typer

from murmurate.errors import MurmurateError
from murmurate.extras import require_extra
from murmurate.files import describe_os_error
from murmurate.operations.options import Log, State, complete_words
from murmurate.service.logging_setup import configure_logging

logger = logging.getLogger(__name__)


def run_service(
    settings_file: Annotated[
        Path | None, typer.Argument(metavar="[SETTINGS]", help="Settings of the service (TOML).", dir_okay=False)
    ] = None,
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
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana.")] = False,
) -> int:
    """Run one of the processes here, or all of them as children until a signal ends them.

    Returns the exit status. An error is a line of the log, as all messages of a service are.
    """
    if alerts or dashboard:
        shown = files("murmurate.service.operator_api") / ("alerts.yml" if alerts else "dashboard.json")
        typer.echo(shown.read_text(encoding="utf-8"), nl=False)
        return 0
    if settings_file is None and not example:
        remedy = "murmurate serve --example > service.toml writes some to begin with"
        raise MurmurateError("the settings file", "missing", remedy)
    if only != "public":
        require_extra("service", "msgspec", "pyarrow", "opendp", "scipy")
    if not example:
        configure_logging(only or "supervisor")  # before other modules are loaded: they may warn
    from murmurate.service.settings import EXAMPLE_SETTINGS, PROCESSES, load_settings  # noqa: PLC0415
    from murmurate.service.watchdog import PARENT_VARIABLE  # noqa: PLC0415

    if settings_file is None:
        typer.echo(EXAMPLE_SETTINGS, nl=False)
        return 0
    try:
        settings = load_settings(settings_file)
        if parent := os.environ.get(PARENT_VARIABLE):
            Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()
        if only not in {*PROCESSES, None}:
            raise MurmurateError("--only", only, f"must be one of {', '.join(PROCESSES)}")  # noqa: TRY301  logged below
        if only is None:
            from murmurate.service.supervisor import run_all_processes  # noqa: PLC0415

            return run_all_processes(settings_file, settings, state, log)
        process = import_module(f"murmurate.service.processes.{only}")  # no other: each loads what it needs
        process.run_process(settings, state=state, log=log)
    except (MurmurateError, OSError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        logger.error("ended by an error", extra={"reason": reason})  # noqa: TRY400
        return 2
    return 0


def _exit_with_parent(parent_pid: int) -> None:
    """End this process when the one that started it is gone: its port would stay taken."""
    while os.getppid() == parent_pid:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
