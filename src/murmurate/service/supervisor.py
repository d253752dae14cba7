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
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from murmurate.errors import MeterError, MurmurateError
from murmurate.service.keyring import load_keyring
from murmurate.service.landing.layout import Landing
from murmurate.service.logging_setup import configure_logging
from murmurate.service.settings import ServiceSettings, load_settings
from murmurate.service.storage.databases import Databases, DatabaseUnreachableError
from murmurate.service.watchdog import PARENT_VARIABLE, PIPE_VARIABLE, REPORT_VARIABLE, read_progress
from murmurate.service.web.listen_address import check_can_listen

logger = logging.getLogger(__name__)


PROCESSES = ("private", "worker", "public")
MIN_RESTART_DELAY_S = 1.0
MAX_RESTART_DELAY_S = 60.0  # between two restarts of a process that ends again and again; there is no last restart
STEADY_S = 10.0  # a process that has run this long is restarted without a longer delay [s]
_STOP_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.25
_MAX_COUNTED_SILENCE_S = 1.0  # between two looks; if more time passes, this process or the machine was stopped too


def run_all_processes(settings_file: Path, settings: ServiceSettings, state: str, log: str) -> int:
    """Start each process, restart it when it ends, and end them all with this process.

    A database that is out of reach is no reason to end: the processes wait for it. SIGHUP restarts them one by one, and
    each reads its settings again.
    """
    configure_logging("supervisor")
    _check_parts(settings)
    _check_databases(Databases.from_dsns(state=state, log=log))
    stopped, restart_asked = Event(), Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    signal.signal(signal.SIGHUP, lambda *_: restart_asked.set())
    with tempfile.TemporaryDirectory(prefix="murmurate-") as folder:
        report = Path(folder) / "restarts.json"
        environments = _environments(state, log, report)
        parts = [
            SupervisedProcess(
                name=name,
                command=[sys.executable, "-m", "murmurate", "serve", str(settings_file), "--only", name],
                environment=environments[name],
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


def _check_parts(settings: ServiceSettings) -> None:
    """Raise MurmurateError for what no restart corrects: files that are missing, addresses that are taken."""
    settings.check_keep_days(Landing.open(settings.landing).interval_s)
    load_keyring(settings.keys)
    if not settings.meters.exists():
        allowed = "must be a CSV or Parquet with the columns meter, zone, bound_wh; murmurate import writes one"
        raise MeterError("meters in the settings", f"{settings.meters}, which is not there", allowed)
    check_can_listen("public", *settings.public_address)
    check_can_listen("private", *settings.private_address)


def _check_databases(databases: Databases) -> None:
    """Raise MurmurateError for a database that is not prepared; one that does not answer is waited for."""
    try:
        databases.check_reachable()
    except DatabaseUnreachableError as error:
        logger.warning("waiting for a database", extra={"reason": str(error)})


def _environments(state: str, log: str, report: Path) -> dict[str, dict[str, str]]:
    """The environment of each process. The public one does not learn where the state is."""
    environment = os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log, PARENT_VARIABLE: str(os.getpid())}
    environment |= {REPORT_VARIABLE: str(report)}
    environments = dict.fromkeys(PROCESSES, environment)
    environments["public"] = {
        variable: value for variable, value in environment.items() if variable != "MURMURATE_STATE"
    }
    return environments


@dataclass(slots=True, kw_only=True)
class SupervisedProcess:
    """One process: when it runs, when it is started again, and whether it makes progress."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    watchdog_s: float  # how long it may be silent
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    restarts: int = field(default=0, init=False)
    _delay_s: float = field(default=MIN_RESTART_DELAY_S, init=False)
    _started_s: float = field(default=0.0, init=False)  # monotonic, as the next two
    _start_at_s: float = field(default=0.0, init=False)
    _looked_s: float = field(default=0.0, init=False)
    _silent_s: float = field(default=0.0, init=False)  # since it last reported
    _allowed_s: float = field(default=0.0, init=False)  # of silence
    _pipe: int | None = field(default=None, init=False)

    def check(self) -> bool:
        """Start the process where it is due, and kill it where it stands still. Returns whether it was restarted."""
        now = time.monotonic()
        if self.process is not None and self.process.poll() is not None:
            self._plan_restart(now, self.process.returncode)
        if self.process is None and now >= self._start_at_s:
            is_restart = self._started_s > 0
            self.restarts += is_restart
            self._start(now)
            return is_restart
        self._watch(now)
        return False

    def restart_now(self) -> None:
        """End it as a stop does; the next check starts it again at once."""
        if self.process is not None:
            _terminate([self.process])
            self._clear_process()
            self._start_at_s = 0.0

    def _start(self, now: float) -> None:
        self._pipe, write_end = os.pipe()
        for end in (self._pipe, write_end):
            os.set_blocking(end, False)
        environment = {**self.environment, PIPE_VARIABLE: str(write_end)}
        try:
            self.process = subprocess.Popen(  # noqa: S603
                self.command, env=environment, start_new_session=True, pass_fds=(write_end,)
            )
        finally:
            os.close(write_end)
        self._started_s = self._looked_s = now
        self._silent_s, self._allowed_s = 0.0, self.watchdog_s

    def _plan_restart(self, now: float, status: int) -> None:
        is_steady = now - self._started_s > STEADY_S
        self._delay_s = MIN_RESTART_DELAY_S if is_steady else self._delay_s
        facts = {"ended": self.name, "status": status, "restart_in_s": self._delay_s}
        logger.warning("process ended", extra=facts)
        self._clear_process()
        self._start_at_s = now + self._delay_s
        self._delay_s = min(2 * self._delay_s, MAX_RESTART_DELAY_S)

    def _watch(self, now: float) -> None:
        """Kill a process that has been silent for too long; also one that is stopped does not survive that.

        Silence counts only as far as this process runs itself: a machine that was paused or had no time for either is
        no fault of the part.
        """
        if self.process is None or self._pipe is None:
            return
        self._silent_s += min(now - self._looked_s, _MAX_COUNTED_SILENCE_S)
        self._looked_s = now
        if (next_step_s := read_progress(self._pipe)) is not None:
            self._silent_s, self._allowed_s = 0.0, max(self.watchdog_s, next_step_s)
        elif self._silent_s > self._allowed_s:
            logger.error("process stands still", extra={"killed": self.name, "watchdog_s": self.watchdog_s})
            self.process.kill()
            self.process.wait()

    def _clear_process(self) -> None:
        self.process = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


def _restart_all(parts: Sequence[SupervisedProcess], settings_file: Path) -> None:
    """Restart the processes one by one, unless the settings cannot be read: then they go on as they are."""
    try:
        load_settings(settings_file)
    except (MurmurateError, OSError) as error:
        reason = str(error) if isinstance(error, MurmurateError) else type(error).__name__
        logger.error("settings not read", extra={"reason": reason})  # noqa: TRY400
        return
    logger.info("restarting")
    for part in parts:
        part.restart_now()
        part.check()


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
