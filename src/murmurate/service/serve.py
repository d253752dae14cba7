"""`murmurate serve`: the road and its two doors, each a process of its own.

    private   readings in, the operator's page       reads the state and the landing
    road      gather, release, forget                reads everything, and holds the keys
    public    prices out                             reads the public log, and nothing else

Whoever wants each part under a user of its own starts three services with --only.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import psycopg

from murmurate.errors import MurmurateError
from murmurate.service.access import Access
from murmurate.service.board.app import public_app
from murmurate.service.board.board import Board
from murmurate.service.board.notices import Notices
from murmurate.service.board.pages import pages_routes
from murmurate.service.broker import connect
from murmurate.service.databases import Database, Databases
from murmurate.service.doors.current import CurrentIntake
from murmurate.service.doors.http import ReadingsDoor, private_app
from murmurate.service.doors.memory import DoorMemory
from murmurate.service.doors.mqtt import MqttDoor
from murmurate.service.gathering.layout import Landing
from murmurate.service.migrate import migrate
from murmurate.service.office import Office
from murmurate.service.operator.door import OperatorDoor
from murmurate.service.pool import Pool
from murmurate.service.road.road import Road
from murmurate.service.saying import speaker
from murmurate.service.settings import Settings, load_settings
from murmurate.service.web import server

PARTS = ("private", "road", "public")
_WATCHED = "MURMURATE_SERVE_PID"  # of the process that starts the parts
_AGAIN_S = 2.0
_PATIENCE_S = 10.0


def serve(settings_file: Path, state: str, log: str, only: str | None) -> int:
    """Run one part in this process, or all of them in processes of their own until a signal ends them."""
    settings = load_settings(settings_file)
    if only is None:
        return _all(settings_file, settings, state, log)
    if only not in PARTS:
        raise MurmurateError("--only", only, f"must be one of {', '.join(PARTS)}")
    run: Callable[[], None] = {
        "public": lambda: _public(settings, Database("log", log)),
        "private": lambda: _private(settings, Databases.of(state=state, log=log)),
        "road": lambda: _road(settings, Databases.of(state=state, log=log)),
    }[only]
    if parent := os.environ.get(_WATCHED):
        Thread(target=_end_with, args=(int(parent),), daemon=True).start()
    run()
    return 0


def _end_with(parent: int) -> None:
    """End this part when whoever started it is gone: nobody would start it again, and its port would stay taken."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _public(settings: Settings, log: Database) -> None:
    say = speaker("public")
    log.check()
    broker, notices = settings.mqtt, None
    if broker is not None and broker.notices:
        notices = Notices(connect(broker, _name("notices", settings), say))
    board = Board(log.dsn, settings, say, notices)
    _listen(public_app(board, pages_routes(board)), settings.public_address, say)


def _private(settings: Settings, databases: Databases) -> None:
    say = speaker("private")
    databases.check()
    migrate(databases.state.dsn, "state")
    landing = Landing.open(settings.landing)
    memories = Pool(lambda: DoorMemory(databases.state.dsn))
    intake = CurrentIntake(landing, settings.meters, settings.playback, settings.grace_s, memories, say)
    access = Pool(lambda: Access(databases.state.dsn))
    routes = ReadingsDoor(intake=intake, access=access, say=say).routes()
    routes += OperatorDoor(databases=databases, settings=settings, access=access, counts=intake.counts).routes()
    door = None
    if settings.mqtt is not None and settings.mqtt.readings:
        name, now = _name("readings", settings), settings.playback.now
        memory = DoorMemory(databases.state.dsn)
        door = MqttDoor(broker=settings.mqtt, name=name, intake=intake, memory=memory, now=now, say=say)
        door.start(died=lambda: os.kill(os.getpid(), signal.SIGTERM))  # whoever watches starts this part again
    try:
        _listen(private_app(routes, say), settings.private_address, say)
    finally:
        if door is not None:
            door.stop()


def _listen(app: object, address: tuple[str, int], say: Callable[..., None]) -> None:
    web = server(app, *address)  # type: ignore[arg-type]
    say("listening", host=address[0], port=address[1])
    asyncio.run(web.serve())
    say("stopped")


def _road(settings: Settings, databases: Databases) -> None:
    say, stopped = speaker("road"), Event()
    databases.check()
    migrate(databases.state.dsn, "state")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    road = Road(
        landing=Landing.open(settings.landing),
        meters=settings.meters,
        office=Office.of(databases, settings.keys, settings.beat_s),
        memory=DoorMemory(databases.state.dsn),
        clock=settings.playback,
        say=say,
        grace_s=settings.grace_s,
        quorum=settings.quorum,
        keep_days=settings.keep_days,
    )
    say("working")
    while not stopped.is_set():
        try:
            road.turn()
        except MurmurateError as error:
            say("failing", why=str(error))
        except (psycopg.Error, OSError) as error:
            say("failing", why=type(error).__name__)
        stopped.wait(min(1.0, settings.beat_s))
    say("stopped")


def _name(purpose: str, settings: Settings) -> str:
    """How a broker knows this instance again after a restart."""
    return f"murmurate-{purpose}-{socket.gethostname()}-{settings.private_address[1]}"


def _all(settings_file: Path, settings: Settings, state: str, log: str) -> int:
    """Start each part, start it again should it end, and end them all with this process."""
    Databases.of(state=state, log=log).check()
    Landing.open(settings.landing)
    say, stopped = speaker("serve"), Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    environment = os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log, _WATCHED: str(os.getpid())}
    told = dict.fromkeys(PARTS, environment)
    told["public"] = {name: value for name, value in environment.items() if name != "MURMURATE_STATE"}
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while not stopped.is_set():
            for part in PARTS:
                if part in running and running[part].poll() is not None:
                    say("part ended", which=part, status=running[part].returncode)
                    stopped.wait(_AGAIN_S)
                if not stopped.is_set() and (part not in running or running[part].poll() is not None):
                    command = [sys.executable, "-m", "murmurate", "serve", str(settings_file), "--only", part]
                    running[part] = subprocess.Popen(command, env=told[part], start_new_session=True)  # noqa: S603
            stopped.wait(0.5)
    finally:
        _end(list(running.values()))
    return 0


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    end = time.monotonic() + _PATIENCE_S
    for process in processes:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
