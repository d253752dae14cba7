"""Start the processes of a service, restart them when they end or stand still, and end them all with this process."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event

from murmurate.errors import MeterError, MurmurateError
from murmurate.service.ingest.kafka_consumer import require_kafka
from murmurate.service.keyring import load_keyring
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.settings import PROCESSES, ServiceSettings, load_settings
from murmurate.service.storage.databases import Databases, DatabaseUnreachableError, ObjectLog
from murmurate.service.storage.open_store import check_log_has_own_key, without_landing_key
from murmurate.service.watchdog import PARENT_VARIABLE, PIPE_VARIABLE, REPORT_VARIABLE, read_progress
from murmurate.service.web.server import check_can_listen

logger = logging.getLogger(__name__)

MIN_RESTART_DELAY_S = 1.0
MAX_RESTART_DELAY_S = 60.0  # between two restarts of a process that ends again and again; there is no last restart
STEADY_S = 10.0  # a process that has run this long is restarted without a longer delay [s]
_STOP_TIMEOUT_S = 10.0
_SECRET_FILES = {"MURMURATE_STATE_FILE", "MURMURATE_LOG_FILE"}  # read here already
_NOT_FOR_PUBLIC = {"MURMURATE_STATE", "MURMURATE_KAFKA_PASSWORD", "MURMURATE_KAFKA_PASSWORD_FILE"}
_LOOK_EVERY_S = 0.25
_MAX_COUNTED_SILENCE_S = 1.0  # between two looks; if more time passes, this process or the machine was stopped too


def run_all_processes(settings_file: Path, settings: ServiceSettings, state: str, log: str) -> int:
    """Start each process, restart it when it ends, and end them all with this process.

    A database that is out of reach is no reason to end: the processes wait for it. SIGHUP restarts them one by one, and
    each reads its settings again.
    """
    configure_logging("supervisor")
    _check_settings(settings)
    databases = Databases.from_dsns(state=state, log=log)
    if isinstance(databases.log, ObjectLog):
        check_log_has_own_key(settings.landing, databases.log.address)
        if settings.static_files is not None:
            allowed = "must be left out where the log is in an object store: its tiles and documents are files already"
            raise MurmurateError("static_files", settings.static_files, allowed)
    try:
        databases.check_reachable()
        if isinstance(databases.log, ObjectLog):
            databases.log.prepare()
    except DatabaseUnreachableError as error:
        logger.warning("waiting for a database", extra={"reason": str(error)})
    stopped, restart_asked = Event(), Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    signal.signal(signal.SIGHUP, lambda *_: restart_asked.set())
    with tempfile.TemporaryDirectory(prefix="murmurate-") as folder:
        report = Path(folder) / "restarts.json"
        inherited = {name: value for name, value in os.environ.items() if name not in _SECRET_FILES}
        environment = inherited | {"MURMURATE_STATE": state, "MURMURATE_LOG": log}
        environment |= {PARENT_VARIABLE: str(os.getpid()), REPORT_VARIABLE: str(report)}
        parts = [
            SupervisedProcess(
                name=name,
                command=[sys.executable, "-m", "murmurate", "serve", str(settings_file), "--only", name],
                environment=choose_environment(name, environment, settings.landing),
                watchdog_s=settings.watchdog_s,
            )
            for name in PROCESSES
        ]
        try:
            while not stopped.is_set():
                if restart_asked.is_set():
                    restart_asked.clear()
                    _restart_all(parts, settings_file)
                if sum(part.check() for part in parts):
                    _write_report(report, parts)
                stopped.wait(_LOOK_EVERY_S)
        finally:
            _terminate([part.process for part in parts if part.process is not None])
    return 0


def choose_environment(process: str, environment: Mapping[str, str], landing: str | Path) -> dict[str, str]:
    """Return what a process is started with. The public one gets nothing that leads to readings or demand."""
    if process != "public":
        return dict(environment)
    without_key = without_landing_key(environment, landing)
    return {name: value for name, value in without_key.items() if name not in _NOT_FOR_PUBLIC}


def _check_settings(settings: ServiceSettings) -> None:
    """Raise MurmurateError for what no restart corrects: files that are missing, addresses that are taken."""
    settings.aggregation.check_installed()
    if settings.kafka is not None:
        require_kafka()
    settings.check_keep_days(Landing.open(settings.landing, probe=True).interval_s)
    load_keyring(settings.keys)
    if settings.meters is not None and not settings.meters.exists():
        allowed = (
            "must be a CSV or Parquet with the columns meter, zone, bound_wh; murmurate readings import writes one. "
            'Where no zone reads meters, set meters = ""'
        )
        raise MeterError("meters in the settings", f"{settings.meters}, which is not there", allowed)
    check_can_listen("public", *settings.public_address)
    check_can_listen("private", *settings.private_address)
    for process, address in settings.metrics_addresses.items():
        check_can_listen(f"{process} metrics", *address)


class SupervisedProcess:
    """One process: when it runs, when it is started again, and whether it makes progress.

    `watchdog_s` is how long it may be silent. Times are of the monotonic clock.
    """

    def __init__(self, *, name: str, command: Sequence[str], environment: Mapping[str, str], watchdog_s: float) -> None:
        self.name, self.watchdog_s = name, watchdog_s
        self._command, self._environment = command, environment
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts, self._delay_s = 0, MIN_RESTART_DELAY_S
        self._started_s = self._start_at_s = self._looked_s = 0.0
        self._silence_left_s = 0.0  # until it is killed
        self._pipe: int | None = None

    def check(self) -> bool:
        """Start the process where it is due, and kill it where it stands still. Returns whether it was restarted.

        Silence counts only as far as this process runs itself: a machine that was paused, or had no time for either, is
        no fault of the part. A process that is stopped does not survive the kill either.
        """
        now = time.monotonic()
        if self.process is not None and self.process.poll() is not None:
            if now - self._started_s > STEADY_S:
                self._delay_s = MIN_RESTART_DELAY_S
            facts = {"ended": self.name, "status": self.process.returncode, "restart_in_s": self._delay_s}
            logger.warning("process ended", extra=facts)
            self.clear_process()
            self._start_at_s = now + self._delay_s
            self._delay_s = min(2 * self._delay_s, MAX_RESTART_DELAY_S)
        if self.process is None and now >= self._start_at_s:
            is_restart = self._started_s > 0
            self.restarts += is_restart
            self._start(now)
            return is_restart
        if self.process is not None and self._pipe is not None:
            self._silence_left_s -= min(now - self._looked_s, _MAX_COUNTED_SILENCE_S)
            self._looked_s = now
            if (next_step_s := read_progress(self._pipe)) is not None:
                self._silence_left_s = max(self.watchdog_s, next_step_s)
            elif self._silence_left_s < 0:
                logger.error("process stands still", extra={"killed": self.name, "watchdog_s": self.watchdog_s})
                self.process.kill()
                self.process.wait()
        return False

    def restart_now(self) -> None:
        """End it as a stop does, and start it again at once."""
        if self.process is not None:
            _terminate([self.process])
            self.clear_process()
            self._start_at_s = 0.0
        self.check()

    def _start(self, now: float) -> None:
        self._pipe, write_end = os.pipe()
        for end in (self._pipe, write_end):
            os.set_blocking(end, False)
        environment = {**self._environment, PIPE_VARIABLE: str(write_end)}
        try:
            self.process = subprocess.Popen(  # noqa: S603
                self._command, env=environment, start_new_session=True, pass_fds=(write_end,)
            )
        finally:
            os.close(write_end)
        self._started_s = self._looked_s = now
        self._silence_left_s = self.watchdog_s

    def clear_process(self) -> None:
        """Let go of a process that has ended, and of its pipe."""
        self.process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def _restart_all(parts: Sequence[SupervisedProcess], settings_file: Path) -> None:
    """Restart the processes one by one, unless the settings cannot be read: then they stay as they are."""
    try:
        load_settings(settings_file)
    except (MurmurateError, OSError) as error:
        reason = str(error) if isinstance(error, MurmurateError) else type(error).__name__
        logger.error("settings not read", extra={"reason": reason})  # noqa: TRY400
        return
    logger.info("restarting")
    for part in parts:
        part.restart_now()


def _write_report(path: Path, parts: Sequence[SupervisedProcess]) -> None:
    """Have the operator's metrics see how often each process was restarted."""
    part = path.with_suffix(".part")
    try:
        part.write_text(json.dumps({each.name: each.restarts for each in parts}), encoding="ascii")
        part.replace(path)
    except OSError as error:
        logger.warning("restarts not reported", extra={"reason": type(error).__name__})


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    end = time.monotonic() + _STOP_TIMEOUT_S
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
