"""docs/how-to/restore.md and upgrade.md, played on running services: a lost landing, an upgrade and the way back.

Each machine has its own environment, into which pip installs a wheel: this tree, or a version that is one file of SQL
newer in each database.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
import venv
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from murmurate.service.storage import migrate
from tests.e2e.harbour import HOMES, NIGHT_S, SETTINGS, STEP_S, demand_by_interval, harbour_operator
from tests.support.operator_cli import documented_commands
from tests.support.postgres_stores import released_kinds
from tests.support.request_bodies import readings_parquet
from tests.support.running_service import HeadEnd
from tests.support.waiting import wait_until

LANDING_IS_LOST = "how-to/restore.md", "The landing is lost"
UPGRADE, ROLL_BACK = (("how-to/upgrade.md", section) for section in ("Upgrade", "Roll back"))
OLDER, NEWER = "0.1.0", "0.2.0"  # the page names the first one
ROOT = Path(__file__).parents[2]
ADDED = {  # by a migration as it should be: the version before does not know of it
    "state": "ALTER TABLE confidential.demand ADD COLUMN later bigint; ALTER TABLE curator.heartbeat ADD later text",
    "log": "ALTER TABLE public_log.document ADD COLUMN later text; CREATE TABLE public_log.later (at bigint)",
}
RENAMED = "ALTER TABLE curator.heartbeat RENAME TO process_report"  # the version before still needs the old name
SPEED = 225.0  # an interval takes 4 s, on a busy machine longer
COMMAND_TIMEOUT_S = 900
FILES = {"landing": "landing", "meters.csv": "meters.csv", "keys": "keys", "plan.json": "harbour.json"}  # of both
SYSTEMCTL = """#!/usr/bin/env bash
# systemd's command for the unit of one machine: start or stop, with a file for the process.
set -eu
case $1 in
    start) nohup murmurate serve service.toml >> serve.log 2>&1 & echo $! > unit.pid ;;
    stop) kill -TERM "$(cat unit.pid)"; while kill -0 "$(cat unit.pid)" 2>/dev/null; do sleep 0.1; done ;;
esac
"""


def build_wheel(folder, version, statements, renamed=()):
    """Build a wheel of this tree. With `statements` for a database it has one migration more, which says that it may.

    `renamed`: a name in its code, and the one that the migration gives to it.
    """
    tree = folder / f"tree-{version}"
    for name in ("src/murmurate", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tree / name)
    package = tree / "src" / "murmurate"
    init = package / "__init__.py"
    init.write_text(re.sub(r'^__version__ = ".*"$', f'__version__ = "{version}"', init.read_text(), flags=re.MULTILINE))
    for store, statement in statements.items():
        last = int(max(migrate._read_scripts(store))[:4])
        script = f"-- compatible with: {last:04}\n{statement};\n"
        (package / "service" / "storage" / "sql" / store / f"{last + 1:04}_later.sql").write_text(script)
    for path in (*package.rglob("*.py"), *package.rglob("sql/roles/*/*.sql")) if renamed else ():
        path.write_text(path.read_text(encoding="utf-8").replace(*renamed), encoding="utf-8")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheels"]
    subprocess.run(command, cwd=tree, capture_output=True, check=True)


class Machine:
    """A folder with the settings of one service, its own environment, and a shell that has the unit `murmurate`."""

    def __init__(self, operator, number):
        self.folder = operator.folder / f"machine-{number}"
        self.folder.mkdir()
        self.service = operator.add_service(SETTINGS)
        (self.folder / "service.toml").write_text(self.service.settings.read_text())
        for name, file in FILES.items():
            (self.folder / name).symlink_to(operator.folder / file)
        venv.create(self.folder / "venv")
        programs = self.folder / "venv" / "bin"
        (programs / "systemctl").write_text(SYSTEMCTL)
        (programs / "systemctl").chmod(stat.S_IRWXU)
        (packages,) = (self.folder / "venv").glob("lib/python*/site-packages")
        (packages / "tests.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        path = os.pathsep.join((str(programs), operator.environment["PATH"]))
        pip = {"PYTHON": str(programs / "python"), "FIND_LINKS": str(operator.folder / "wheels")}
        pip |= {"NO_INDEX": "1", "NO_DEPS": "1", "DISABLE_PIP_VERSION_CHECK": "1"}
        pip = {f"PIP_{name}": value for name, value in pip.items()}
        self._environment = operator.environment | pip | {"PATH": path, "PYTHONPATH": ""}
        self.run(f'pip install "murmurate[service]=={OLDER}"')

    def run(self, line):
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr, self.log()[-3000:])
        return done.stdout

    def follow(self, section):
        commands = documented_commands(*section)
        assert [line.split()[0] for line, _ in commands][:1] == ["systemctl"]
        return [self.run(line) for line, _ in commands]

    def log(self):
        return (self.folder / "serve.log").read_text()

    def check_at_work(self, version, meters):
        """Wait until each of its processes has done its work from now on; fail where one finds other tables."""
        assert self.run("murmurate --version").split()[-1] == version
        begun, ports = len(self.log()), {"public": "/zones/harbour", "private": "/readyz"}

        def is_at_work():
            assert "Undefined" not in self.log(), self.log()[-3000:]  # how psycopg names a table that is not there
            with suppress(httpx.HTTPError):
                for port, path in ports.items():
                    httpx.get(self.service.url(path, port), timeout=60, trust_env=False).raise_for_status()
                return meters.repeat(self.service) and '"released"' in self.log()[begun:]
            return False

        assert wait_until(is_at_work, 600, pause_s=0.2), self.log()[-3000:]

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

    def repeat(self, service):
        """Send what was sent before to one service. It counts once."""
        interval = max(self.acknowledged)
        body = readings_parquet(range(HOMES), interval * STEP_S, self.energy[interval])
        return self._head_end.post(service, body, "application/vnd.apache.parquet").status_code == 200

    def finish(self):
        self._stopped.set()
        self._thread.join()
        self._head_end.close()
        assert not self._failed, self._failed


@contextmanager
def machines_at_work(tmp_path, count):
    build_wheel(tmp_path, OLDER, {})
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
        shown = machine.follow(LANDING_IS_LOST)
        assert "Nothing needs attention" in shown[-1]
        wait_for_measured(operator, 2, after=lost_at + 1)
        meters.finish()
        others = check_released(operator, meters)
        assert lost_at in others
        assert set(others.values()) <= {"fallback", "withheld"}
        assert all(interval > NIGHT_S // STEP_S + 2 for interval in others)  # what was released before stays


def play_upgrade_and_rollback(tmp_path):
    """Upgrade two services one after the other, then go back in the same way. Each works beside the other version."""
    with machines_at_work(tmp_path, 2) as (operator, machines, meters):
        wait_for_measured(operator, 2)
        versions = dict.fromkeys(machines, OLDER)
        for section, version in ((UPGRADE, NEWER), (ROLL_BACK, OLDER)):
            for machine in machines:
                machine.follow(section)
                versions[machine] = version
                for each in machines:
                    each.check_at_work(versions[each], meters)
        for store in ADDED:
            with psycopg.connect(operator.dsn(store)) as connection:
                query = "SELECT count(*) FROM murmurate.migration WHERE name LIKE '%_later.sql'"
                assert connection.execute(query).fetchone() == (1,)
        wait_for_measured(operator, 2, after=max(meters.acknowledged))
        meters.finish()
        others = check_released(operator, meters)
        assert not [interval for interval in others if interval in meters.acknowledged]
        assert len(meters.acknowledged) >= 7


def test_an_upgrade_and_the_way_back_lose_no_interval(tmp_path):
    build_wheel(tmp_path, NEWER, ADDED)
    play_upgrade_and_rollback(tmp_path)


@pytest.mark.long
def test_a_migration_that_breaks_the_version_before_and_says_otherwise_is_found(tmp_path):
    build_wheel(tmp_path, NEWER, {"state": RENAMED}, renamed=("curator.heartbeat", "curator.process_report"))
    with pytest.raises(AssertionError, match="UndefinedTable"):
        play_upgrade_and_rollback(tmp_path)
