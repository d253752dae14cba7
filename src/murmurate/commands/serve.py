"""`murmurate serve`: run the processes of a service."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from threading import Thread

from murmurate.errors import MurmurateError
from murmurate.files import describe_os_error
from murmurate.service.processes import run_private, run_public, run_worker
from murmurate.service.settings import load_settings
from murmurate.service.storage.databases import Database, Databases
from murmurate.service.supervisor import PROCESSES, run_all_processes
from murmurate.service.watchdog import PARENT_VARIABLE

logger = logging.getLogger(__name__)


def run_service(settings_file: Path, state: str, log: str, only: str | None) -> int:
    """Run one of the processes here, or all of them as children until a signal ends them.

    Returns the exit status. An error is a line of the log, as everything is that a service has to say.
    """
    try:
        settings = load_settings(settings_file)
        if parent := os.environ.get(PARENT_VARIABLE):
            Thread(target=_exit_with_parent, args=(int(parent),), daemon=True).start()
        if only is None:
            return run_all_processes(settings_file, settings, state, log)
        if only not in PROCESSES:
            raise MurmurateError("--only", only, f"must be one of {', '.join(PROCESSES)}")  # noqa: TRY301  logged below
        if only == "public":
            run_public(settings, Database("log", log))
        else:
            run = run_private if only == "private" else run_worker
            run(settings, Databases.from_dsns(state=state, log=log))
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
