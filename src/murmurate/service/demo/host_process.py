"""The process that owns what a demo would leave behind: its folder, its PostgreSQL or databases, and its service.

It reads requests from standard input. When that ends, it ends everything and deletes everything. So it does not matter
how and when the command ends that has started it: by itself, by any signal, at any moment. If this process is killed,
what it has started ends by itself, and the command deletes the rest (`delete_demo`). All processes hold the pipe of the
answers as their standard input, which none of them reads: it ends with the last of them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError
from murmurate.service.demo.embedded_postgres import (
    DemoStoppedError,
    last_line,
    remove_shared_memory,
    run_embedded_postgres,
)
from murmurate.service.watchdog import PARENT_VARIABLE

FOLDER_PREFIX = "murmurate-demo-"
_STOP_SERVICE_S = 30.0
_LOOK_EVERY_S = 0.1
_MAX_DELETE_S = 30.0


def main() -> None:
    """Answer two requests: {"postgres": connection string or "", "folder": its path}, then {"serve": settings file}."""
    stopped, requests = Event(), SimpleQueue[dict[str, Any]]()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    Thread(target=_read_requests, args=(requests, stopped), daemon=True).start()
    try:
        with ExitStack() as resources:
            _host_demo(resources, requests, stopped)
    except DemoStoppedError:
        return
    except MurmurateError as error:
        _answer({"error": [error.field, str(error.value), error.allowed]})


def _read_requests(requests: SimpleQueue[dict[str, Any]], stopped: Event) -> None:
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    stopped.set()


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


if __name__ == "__main__":
    main()
