"""docs/how-to/restore.md, played on running services: a lost landing, and two services that are updated."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np

from tests.e2e.harbour import HOMES, NIGHT_S, SETTINGS, STEP_S, demand_by_interval, harbour_operator
from tests.support.operator_cli import documented_commands
from tests.support.postgres_stores import released_kinds
from tests.support.request_bodies import readings_parquet
from tests.support.running_service import HeadEnd
from tests.support.waiting import wait_until

PAGE = "how-to/restore.md"
SPEED = 225.0  # an interval takes 4 s, on a busy machine longer
COMMAND_TIMEOUT_S = 900
PATHS = {"landing": "landing", "meters": "meters.csv", "keys": "keys"}  # of the settings, from the folder of both
SYSTEMCTL = """#!/usr/bin/env bash
# systemd's command for the unit of one machine: start or stop, with a file for the process.
set -eu
case $1 in
    start) nohup murmurate serve service.toml >> serve.log 2>&1 & echo $! > unit.pid ;;
    stop) kill -TERM "$(cat unit.pid)"; while kill -0 "$(cat unit.pid)" 2>/dev/null; do sleep 0.1; done ;;
esac
"""


class Machine:
    """A folder with the settings of one service, and a shell in it that has the unit `murmurate`."""

    def __init__(self, operator, number):
        self.folder = operator.folder / f"machine-{number}"
        self.folder.mkdir()
        self.service = operator.add_service(SETTINGS)
        paths = "".join(f'{name} = "../{file}"\n' for name, file in PATHS.items())
        (self.folder / "service.toml").write_text(paths + self.service.settings.read_text())
        (self.folder / "landing").symlink_to("../landing")
        self._programs = self.folder / "bin"
        self._programs.mkdir()
        (self._programs / "systemctl").write_text(SYSTEMCTL)
        (self._programs / "systemctl").chmod(stat.S_IRWXU)
        self._environment = operator.environment

    def run(self, line):
        path = os.pathsep.join((str(self._programs), str(Path(shutil.which("murmurate")).parent), os.environ["PATH"]))
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=self.folder,
            env=self._environment | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr, self.log()[-3000:])
        return done.stdout

    def follow(self, section):
        commands = documented_commands(PAGE, section)
        assert [line.split()[0] for line, _ in commands][:1] == ["systemctl"]
        return [self.run(line) for line, _ in commands]

    def log(self):
        return (self.folder / "serve.log").read_text()

    def stop(self):
        if (self.folder / "unit.pid").exists():
            self.run("kill -0 $(cat unit.pid) 2>/dev/null && systemctl stop murmurate || true")


class Meters:
    """Send every interval in a thread, each until a service answers that it took it or that it is late."""

    def __init__(self, operator, machines):
        self._clock, self._services = operator.clock, [machine.service for machine in machines]
        self._head_end = HeadEnd(operator)
        self._rng = np.random.default_rng(5)
        self._stopped = threading.Event()
        self._failed = []
        self.energy = {}  # of each home, by interval
        self.acknowledged = set()  # intervals
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        number = 0
        try:
            while not self._stopped.wait(max(0.0, self._end_wall_s(number) - time.time())):
                interval = NIGHT_S // STEP_S + number
                self.energy[interval] = self._rng.integers(0, 600, HOMES)
                self.send(interval)
                number += 1
        except BaseException as error:
            self._failed.append(error)
            raise

    def _end_wall_s(self, number):
        return self._clock.wall_at(NIGHT_S + (number + 1) * STEP_S)

    def send(self, interval):
        body, attempt = readings_parquet(range(HOMES), interval * STEP_S, self.energy[interval]), 0
        while not self._stopped.is_set():
            with suppress(httpx.TransportError, httpx.HTTPStatusError):
                service = self._services[attempt % len(self._services)]
                answer = self._head_end.post(service, body, "application/vnd.apache.parquet")
                if answer.status_code == 200:
                    if answer.json()["accepted"] == HOMES:
                        self.acknowledged.add(interval)
                    return
            attempt += 1
            time.sleep(0.1)

    def finish(self):
        self._stopped.set()
        self._thread.join()
        self._head_end.close()
        assert not self._failed, self._failed


@contextmanager
def machines_at_work(tmp_path, count):
    with ExitStack() as stack:
        operator = stack.enter_context(harbour_operator(tmp_path, speed=SPEED, in_s=9.0))
        machines = [Machine(operator, number) for number in range(count)]
        for machine in machines:
            stack.callback(machine.stop)
            machine.run("systemctl start murmurate")
        meters = Meters(operator, machines)
        stack.callback(meters.finish)
        yield operator, machines, meters


def wait_for_measured(operator, count, after=0):
    """Wait until `count` intervals after one were measured."""

    def are_measured():
        rows = released_kinds(operator.dsn("log"), "harbour")
        return sum(kind == "measured" for at, kind in rows if at > after) >= count

    assert wait_until(are_measured, 600, pause_s=0.2), released_kinds(operator.dsn("log"), "harbour")


def check_released(operator, meters):
    """Each interval is decided once, and each that was measured is right to the Wh. Returns the others."""
    rows = released_kinds(operator.dsn("log"), "harbour")
    assert [at for at, _ in rows] == list(range(NIGHT_S // STEP_S, NIGHT_S // STEP_S + len(rows)))
    demand = demand_by_interval(operator)
    for interval, kind in rows:
        if kind == "measured":
            assert demand[interval] == (int(meters.energy[interval].sum()), HOMES, 0), interval
    assert "Everything holds." in operator.run(f"murmurate log verify {operator.dsn('log')}")
    return {interval: kind for interval, kind in rows if kind != "measured"}


def test_a_landing_that_is_lost_costs_fallback_prices_and_never_a_wrong_one(tmp_path):
    with machines_at_work(tmp_path, 1) as (operator, (machine,), meters):
        wait_for_measured(operator, 3)
        lost_at = max(meters.acknowledged)
        (tmp_path / "landing").rename(tmp_path / "failed-disk")
        (tmp_path / "landing").mkdir()  # an empty disk, mounted in place of the lost one
        shown = machine.follow("The landing is lost")
        assert "Nothing needs attention" in shown[-1]
        wait_for_measured(operator, 2, after=lost_at + 1)
        meters.finish()
        others = check_released(operator, meters)
        assert lost_at in others
        assert set(others.values()) <= {"fallback", "withheld"}
        assert all(interval > NIGHT_S // STEP_S + 2 for interval in others)  # what was released before stays


def test_two_services_are_updated_without_a_lost_interval(tmp_path):
    with machines_at_work(tmp_path, 2) as (operator, machines, meters):
        wait_for_measured(operator, 2)
        for machine in machines:
            machine.follow("Update two services")
            assert machine.log().count('"working"') == 2  # its worker was started twice
        updated_at = max(meters.acknowledged)
        wait_for_measured(operator, 2, after=updated_at)
        meters.finish()
        others = check_released(operator, meters)
        assert not [interval for interval in others if interval in meters.acknowledged]
        assert len(meters.acknowledged) >= 5
