"""The process that owns what a demo would leave behind, and the command's side of it.

The host process owns the demo's folder, its PostgreSQL or databases, and its service. It reads requests from standard
input. When that ends, it ends everything and deletes everything. So it does not matter how and when the command ends
that has started it: by itself, by any signal, at any moment. If the host is killed, what it has started ends by itself,
and the command deletes the rest (`delete_demo`). All processes hold the pipe of the answers as their standard input,
which none of them reads: it ends with the last of them.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import FrameType
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError
from murmurate.service.demo.embedded_postgres import (
    DemoStoppedError,
    end_server,
    last_line,
    remove_shared_memory,
    run_embedded_postgres,
)
from murmurate.service.watchdog import PARENT_VARIABLE

FOLDER_PREFIX = "murmurate-demo-"
_STOP_SERVICE_S = 30.0
_LOOK_EVERY_S = 0.1
HOST_MODULE = "murmurate.service.demo.demo_host"
_ANSWER_POLL_S = 0.5
_MAX_DELETE_S = 30.0


def main() -> None:
    """Answer two requests: {"postgres": connection string or "", "folder": its path}, then {"serve": settings file}."""
    stopped, requests = Event(), SimpleQueue[dict[str, Any]]()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())

    def read_requests() -> None:
        for line in sys.stdin.buffer:
            requests.put(json.loads(line))
        stopped.set()

    Thread(target=read_requests, daemon=True).start()
    try:
        with ExitStack() as resources:
            _host_demo(resources, requests, stopped)
    except DemoStoppedError:
        return
    except MurmurateError as error:
        _answer({"error": [error.field, str(error.value), error.allowed]})


def _answer(document: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the command is gone; standard input ends as well
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _next_request(
    requests: SimpleQueue[dict[str, Any]], stopped: Event, check_server: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    while not stopped.is_set():
        check_server()
        try:
            return requests.get(timeout=_LOOK_EVERY_S)
        except Empty:
            continue
    raise DemoStoppedError("the demo", "ended", "before the next request")


def _host_demo(resources: ExitStack, requests: SimpleQueue[dict[str, Any]], stopped: Event) -> None:
    request = _next_request(requests, stopped)
    user_server, folder = request["postgres"], Path(request["folder"])
    folder.mkdir(mode=0o700)
    resources.callback(shutil.rmtree, folder, ignore_errors=True)
    postgres = None if user_server else resources.enter_context(run_embedded_postgres(folder, stopped.wait))

    def check_server() -> None:
        if postgres is not None and postgres.process.poll() is not None:
            raise MurmurateError("PostgreSQL", "ended", last_line(folder / "postgres.log"))

    names = database_names(folder)
    dsn = user_server if postgres is None else postgres.dsn
    if postgres is None:  # its own databases go with the folder
        resources.callback(drop_databases, dsn, folder)
    _execute(dsn, [f'CREATE DATABASE "{name}"' for name in names.values()])
    databases = {store: make_conninfo(dsn, dbname=name) for store, name in names.items()}
    _answer({"folder": str(folder), **databases})
    settings = Path(_next_request(requests, stopped, check_server)["serve"])
    service = resources.enter_context(_running_service(settings, databases, folder))
    while not stopped.wait(_LOOK_EVERY_S):
        check_server()
        if service.poll() is not None:
            raise MurmurateError("the service", "ended", last_line(folder / "serve.log"))


def database_names(folder: Path) -> dict[str, str]:
    """The databases of a demo. A real operator keeps the log on another machine."""
    return {store: f"murmurate_demo_{store}_{folder.name.removeprefix(FOLDER_PREFIX)}" for store in ("state", "log")}


def drop_databases(server: str, folder: Path) -> None:
    _execute(server, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)' for name in database_names(folder).values()])


def delete_demo(server: str, folder: Path) -> None:
    """Delete what is left when every process of a demo has ended, and this one was killed."""
    remove_shared_memory(folder)
    end_s = time.monotonic() + _MAX_DELETE_S
    while folder.exists() and time.monotonic() < end_s:  # the end of initdb may still write into it
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_LOOK_EVERY_S)
    if server:
        drop_databases(server, folder)


def _execute(server: str, statements: Sequence[LiteralString]) -> None:
    try:
        with psycopg.connect(server, autocommit=True, connect_timeout=5) as connection:
            for statement in statements:
                connection.execute(statement)
    except psycopg.OperationalError as error:
        allowed = f"{type(error).__name__}; name a server with --postgres postgresql://user@host:5432/postgres"
        raise MurmurateError("PostgreSQL", "out of reach", allowed) from None
    except psycopg.Error as error:
        allowed = f"{type(error).__name__}; the user must be allowed to CREATE DATABASE"
        raise MurmurateError("a database", "not created", allowed) from None


@contextmanager
def _running_service(settings: Path, databases: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`murmurate serve`, as an operator would run it. What it writes for a while is in the folder of the demo too."""
    environment = os.environ | {"MURMURATE_STATE": databases["state"], "MURMURATE_LOG": databases["log"]}
    environment |= {PARENT_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-m", "murmurate", "serve", str(settings)]
    with (folder / "serve.log").open("wb") as log:
        service = subprocess.Popen(  # noqa: S603
            command,
            env=environment | {"TMPDIR": str(folder)},
            stdin=sys.stdout,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield service
    finally:
        service.terminate()
        try:
            service.wait(_STOP_SERVICE_S)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


class DemoHost:
    """Starts the host process, asks it for what a demo needs, and ends it. Every signal ends it as well.

    Signals do not raise exceptions here: they could hit any line of the code that tidies up. A handler ends the host,
    waits until it has deleted everything, and exits. If the host is killed, its processes end by themselves, and what
    it has left is deleted here.
    """

    def __init__(self, server: str) -> None:
        self._server, self._folder = server, Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.urandom(6).hex()}"
        self._requests: int | None = None
        self._answers: int | None = None
        self._unread = b""
        self._signal: int | None = None
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.end_by_signal)
        self._start()
        if self._signal is not None:  # it came while the process was started
            self._exit(self._signal)
        self.request({"postgres": server, "folder": str(self._folder)})

    def _start(self) -> None:
        read_requests, requests = os.pipe()
        answers, write_answers = os.pipe()
        command = [sys.executable, "-m", HOST_MODULE]
        self._process = subprocess.Popen(command, stdin=read_requests, stdout=write_answers, start_new_session=True)  # noqa: S603
        os.close(read_requests)
        os.close(write_answers)
        self._requests, self._answers = requests, answers

    def request(self, document: dict[str, Any]) -> None:
        """Send a request. An answer, if there is one, is read by `read_answer`."""
        if self._requests is not None:
            with suppress(BrokenPipeError):  # reading the answer says that the host is gone
                os.write(self._requests, json.dumps(document).encode() + b"\n")

    def read_answer(self) -> dict[str, Any]:
        """Wait for the next answer. Raises MurmurateError where it is an error, or where the host has ended."""
        while b"\n" not in self._unread:
            is_gone = self._process.poll() is not None  # before the look: it may have answered, and ended
            if (
                self._answers is not None
                and select.select([self._answers], [], [], 0 if is_gone else _ANSWER_POLL_S)[0]
            ):
                part = os.read(self._answers, 65536)
                self._unread += part
                is_gone = not part
            if is_gone:
                raise MurmurateError("the process of the demo's database and service", "gone", "start the demo again")
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MurmurateError(*answer["error"])
        return answer

    def check(self) -> None:
        """Raise MurmurateError if the host or the service has ended."""
        has_ended = self._process.poll() is not None
        if has_ended or (self._answers is not None and select.select([self._answers], [], [], 0)[0]):
            self.read_answer()

    def end_by_signal(self, number: int, _: FrameType | None) -> None:
        """End the host, wait for it, and exit. A handler of signals; another signal in between changes nothing."""
        if self._answers is None and self._requests is None:
            self._signal = number
            return
        self._exit(number)

    def _exit(self, number: int) -> None:
        self.close()
        if sys.stderr.isatty():
            os.write(
                sys.stderr.fileno(), b"\r\x1b[2K\x1b[?25hEnded, and deleted everything.\n"
            )  # a bar hides the cursor
        os._exit(128 + number)

    def close(self) -> None:
        """End the host: returns when nothing is left of the demo."""
        requests, self._requests = self._requests, None
        if requests is not None:
            os.close(requests)
        if self._process.poll() not in {0, None}:
            end_server(self._folder)
        if self._answers is not None:
            while os.read(self._answers, 65536):  # the pipe ends with the last process
                pass
        if self._process.wait() != 0 or self._folder.exists():
            delete_demo(self._server, self._folder)


if __name__ == "__main__":
    main()
