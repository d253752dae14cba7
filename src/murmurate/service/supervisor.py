"""Start the processes of a service and restart them when they end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.settings import ServiceSettings
from murmurate.service.storage.databases import Databases

logger = logging.getLogger(__name__)


PROCESSES = ("private", "worker", "public")
PARENT_VARIABLE = "MURMURATE_SUPERVISOR_PID"  # of the process that starts the others
_RESTART_AFTER_S = 2.0
_STOP_TIMEOUT_S = 10.0


def run_all_processes(settings_file: Path, settings: ServiceSettings, state: str, log: str) -> int:
    """Start each process, restart it when it ends, and end them all with this process."""
    Databases.from_dsns(state=state, log=log).check_reachable()
    Landing.open(settings.landing)
    configure_logging("supervisor")
    stopped = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    environment = os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log, PARENT_VARIABLE: str(os.getpid())}
    environments = dict.fromkeys(PROCESSES, environment)
    environments["public"] = {
        variable: value for variable, value in environment.items() if variable != "MURMURATE_STATE"
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while not stopped.is_set():
            for name in PROCESSES:
                if name in running and running[name].poll() is not None:
                    logger.warning("process ended", extra={"ended": name, "status": running[name].returncode})
                    stopped.wait(_RESTART_AFTER_S)
                if not stopped.is_set() and (name not in running or running[name].poll() is not None):
                    command = [sys.executable, "-m", "murmurate", "serve", str(settings_file), "--only", name]
                    running[name] = subprocess.Popen(command, env=environments[name], start_new_session=True)  # noqa: S603
            stopped.wait(0.5)
    finally:
        _terminate(list(running.values()))
    return 0


def _terminate(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    end = time.monotonic() + _STOP_TIMEOUT_S
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
