"""The process that owns what a demo would leave behind: its folder, its PostgreSQL or databases, and its service.

It reads requests from standard input. When that ends, it ends everything and deletes everything. So it does not matter
how and when the command ends that has started it: by itself, by any signal, at any moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError
from murmurate.service.demo.embedded_postgres import DemoStoppedError, last_line, run_embedded_postgres

FOLDER_PREFIX = "murmurate-demo-"
_STOP_SERVICE_S = 30.0
_LOOK_EVERY_S = 0.1


def main() -> None:
    """Answer two requests: {"postgres": connection string or ""}, then {"serve": settings file}."""
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


def _next_request(requests: SimpleQueue[dict[str, Any]], stopped: Event) -> dict[str, Any]:
    while not stopped.is_set():
        try:
            return requests.get(timeout=_LOOK_EVERY_S)
        except Empty:
            continue
    raise DemoStoppedError("the demo", "ended", "before the next request")


def _host_demo(resources: ExitStack, requests: SimpleQueue[dict[str, Any]], stopped: Event) -> None:
    server = _next_request(requests, stopped)["postgres"]
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX)))
    dsn = server or resources.enter_context(run_embedded_postgres(folder, stopped.wait))
    databases = resources.enter_context(_temporary_databases(dsn))
    _answer({"folder": str(folder), **databases})
    settings = Path(_next_request(requests, stopped)["serve"])
    service = resources.enter_context(_running_service(settings, databases, folder))
    while not stopped.wait(_LOOK_EVERY_S):
        if service.poll() is not None:
            raise MurmurateError("the service", "ended", last_line(folder / "serve.log"))


@contextmanager
def _temporary_databases(server: str) -> Iterator[dict[str, str]]:
    """Two new databases that are gone afterwards. A real operator keeps the log on another machine."""
    names = {store: f"murmurate_demo_{store}_{os.urandom(4).hex()}" for store in ("state", "log")}
    try:
        _execute(server, [f'CREATE DATABASE "{name}"' for name in names.values()])
        yield {store: make_conninfo(server, dbname=name) for store, name in names.items()}
    finally:
        _execute(server, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)' for name in names.values()])


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
    command = [sys.executable, "-m", "murmurate", "serve", str(settings)]
    with (folder / "serve.log").open("wb") as log:
        service = subprocess.Popen(  # noqa: S603
            command,
            env=environment | {"TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
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
