"""Every line that a service writes is one JSON object, whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from tests.support.ports import free_port
from tests.support.waiting import wait_until

NOISE = (
    b"\x16\x03\x01 no HTTP\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /readings HTTP/1.1\r\nContent-Length: x\r\n\r\n",
)
WAIT_S = 60.0


class Service:
    """A folder with settings, and `murmurate serve` in it. What it writes goes to a file."""

    def __init__(self, folder, state, log):
        self.folder, self.output = folder, folder / "output"
        self.public, self.private = free_port(), free_port()
        self.environment = os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log}
        (folder / "meters.csv").write_text("meter,zone,bound_wh,imputed_wh\n0,harbour,1000,150\n")
        subprocess.run([sys.executable, "-m", "murmurate", "init"], cwd=folder, check=True, capture_output=True)
        settings = f'public = "127.0.0.1:{self.public}"\nprivate = "127.0.0.1:{self.private}"\n'
        (folder / "service.toml").write_text(settings)

    def start(self, *words, **environment):
        command = [sys.executable, "-m", "murmurate", "serve", "service.toml", *words]
        with self.output.open("ab") as output:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment | environment, stdout=output, stderr=output
            )

    @contextmanager
    def started(self, **environment):
        process = self.start(**environment)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_S)

    @contextmanager
    def running(self):
        with self.started() as process:
            until(lambda: all(map(self.is_alive, (self.public, self.private))))
            yield process

    @staticmethod
    def is_alive(port):
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        return False

    def lines(self):
        """Every line, each one JSON object with the members that all have."""
        lines = [json.loads(line) for line in self.output.read_text().splitlines()]
        assert all({"at", "level", "process", "event"} <= line.keys() for line in lines)
        return lines

    def events(self):
        return [(line["process"], line["event"]) for line in self.lines()]


def until(condition):
    assert wait_until(condition)


def children(process):
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.fixture
def service(tmp_path, state_dsn, log_dsn):
    return Service(tmp_path, state_dsn, log_dsn)


def test_every_line_of_a_service_that_is_provoked_is_one_json_object(service):
    with service.running() as process:
        for port in (service.public, service.private):
            for noise in NOISE:
                with socket.create_connection(("127.0.0.1", port)) as line:
                    line.sendall(noise)
                    line.recv(100)
        os.kill(children(process)[0], signal.SIGKILL)
        until(lambda: "process ended" in service.output.read_text())
        until(lambda: service.is_alive(service.private))
        os.kill(children(process)[1], signal.SIGINT)  # as Ctrl-C at a terminal
        until(lambda: service.output.read_text().count("process ended") == 2)
    events = service.events()
    assert {("public", "listening"), ("private", "listening"), ("supervisor", "process ended")} <= set(events)
    assert ("public", "library message") in events  # of the web server, about what is no HTTP


@pytest.mark.parametrize(
    ("only", "ready", "number"),
    [
        ("public", "listening", signal.SIGTERM),
        ("private", "listening", signal.SIGINT),
        ("worker", "working", signal.SIGTERM),
        pytest.param("public", "listening", signal.SIGINT, marks=pytest.mark.long),
        pytest.param("private", "listening", signal.SIGTERM, marks=pytest.mark.long),
        pytest.param("worker", "working", signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_each_process_closes_all_that_it_has_at_a_signal_and_ends_with_0(service, only, ready, number):
    with service.running():  # it prepares the databases
        pass
    service.output.write_text("")
    process = service.start("--only", only)
    until(lambda: (only, ready) in service.events() or process.poll() is not None)
    process.send_signal(number)
    assert process.wait(WAIT_S) == 0
    assert service.events()[-1] == (only, "stopped")


@pytest.mark.parametrize(
    ("damage", "words", "reason"),
    [
        (lambda folder: (folder / "service.toml").write_text("quorum = 7\n"), (), "quorum is 7"),
        (lambda folder: (folder / "service.toml").write_text("= ="), ("--only", "worker"), "is not TOML"),
        (lambda folder: (folder / "service.toml").unlink(), (), "is not there: check the name"),
        (lambda folder: (folder / "landing").rename(folder / "moved"), (), "landing"),
        (lambda _: None, ("--only", "nothing"), "must be one of private, worker, public"),
    ],
)
def test_a_service_that_cannot_start_says_why_in_one_json_object(service, damage, words, reason):
    damage(service.folder)
    assert service.start(*words).wait(WAIT_S) == 2
    (line,) = service.lines()
    assert (line["event"], line["level"]) == ("ended by an error", "error")
    assert reason in line["reason"]


def test_a_database_that_is_away_is_named_without_its_password(service):
    away = "postgresql://someone:hunter2@127.0.0.1:1/nowhere"
    with service.started(MURMURATE_STATE=away, MURMURATE_LOG=away):
        until(lambda: {"supervisor", "public", "private", "worker"} <= {line["process"] for line in service.lines()})
    assert "out of reach" in service.output.read_text()
    assert "hunter2" not in service.output.read_text()
