"""An operator with a folder and two real databases, who runs real commands."""

from __future__ import annotations

import os
import re
import sys
import tarfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.public_log.tile import RowKind, TileKind, parse_tile
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.types import Demand
from tests.support.databases import SERVER, execute_on_server
from tests.support.documented_commands import commands_in, run_in_shell

DOCS = Path(__file__).parents[2] / "docs"
PAYING = 314_159_265  # a demand that nothing prints by chance
STEP_S = 300
SHIFTED_TIME = Path(__file__).with_name("shifted_time")


def small_zone(name: str = "harbour", promise: str = "any 24 h: epsilon 3") -> str:
    """Five-minute intervals and a plan that takes no time to prove."""
    text = re.sub(r"^promise = .*$", f'promise = ["{promise}"]', EXAMPLE_ZONE_FILE, flags=re.MULTILINE)
    return text.replace('"harbour"', f'"{name}"').replace("interval_minutes = 15", "interval_minutes = 5")


def with_shifted_time(variables: Mapping[str, str]) -> dict[str, str]:
    """An environment whose processes read their time and memory from these variables, as `shifted_time` says."""
    paths = [str(SHIFTED_TIME), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), **variables}


class Operator:
    """A folder, two databases, a shell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = {store: f"test_{store}_{uuid.uuid4().hex[:12]}" for store in ("state", "log")}
        self.made_s = int(time.time())  # zones opened one after the other begin together, however long that takes
        self.shown = ""  # everything that any command has printed
        self.extra: dict[str, str] = {}  # of the environment, over all other

    @property
    def environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        dsns = {f"MURMURATE_{store.upper()}": self.dsn(store) for store in ("state", "log")}
        fixed = {"PATH": path, "MURMURATE_KEYS": "keys", "no_proxy": "127.0.0.1", "COLUMNS": "200"}
        return os.environ | dsns | fixed | self.extra

    def stop_clock(self) -> None:
        """From now on every command finds the time at which the operator was made: no interval ends meanwhile."""
        self.extra |= with_shifted_time({"MURMURATE_TEST_CLOCK_S": str(self.made_s)})

    def dsn(self, store: str) -> str:
        return f"{SERVER}/{self.names[store]}"

    def create(self, store: str) -> None:
        execute_on_server(f"CREATE DATABASE {self.names[store]}")

    def lose(self, store: str) -> None:
        execute_on_server(f"DROP DATABASE IF EXISTS {self.names[store]} WITH (FORCE)")

    def run(self, line: str, *, status: int = 0, **environment: str) -> str:
        """What a shell prints for a command; the test fails if its exit status is another one than `status`."""
        done = run_in_shell(line, self.folder, **self.environment | environment)
        shown = done.stdout + done.stderr
        self.shown += shown
        assert done.returncode == status, (line, done.returncode, shown)
        assert "Traceback" not in shown, shown
        return shown

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def lines(self, name: str) -> list[str]:
        return (self.folder / name).read_text(encoding="utf-8").splitlines()

    def export(self, name: str = "log.tar") -> list[bytes]:
        """Export the log to a tar archive. Returns its tiles as bytes, by shard and number."""
        self.run(f"murmurate log export {name}")
        return self.exported(name)

    def exported(self, name: str) -> list[bytes]:
        """The tiles of an exported archive as bytes, by shard and number."""
        with tarfile.open(self.folder / name) as archive:
            files = sorted(file for file in archive.getnames() if file.endswith(".tile"))
            return [opened.read() for opened in map(archive.extractfile, files) if opened is not None]

    def store_demand(
        self,
        first: int,
        last: int,
        energy_wh: int = PAYING,
        zone: str = "harbour",
        bounds: tuple[Mapping[str, int] | None, ...] = ({"": 1000},),
    ) -> None:
        """Store the demand of intervals first, .., last."""
        state = PostgresStateStore(self.dsn("state"))
        column = np.array([energy_wh])
        for interval in range(first, last + 1):
            demand = Demand(
                zones=(zone,), energy_wh=column, reported=column * 0 + 801, imputed=column * 0, bounds=bounds
            )
            state.store_demand(interval, demand)
        state.rollback()

    def open(self, hours_ago: float = 2, name: str = "harbour") -> None:
        """Keys, a plan and an open zone whose first interval lies in the past."""
        self.write("zone.toml", small_zone(name))
        self.write("plan.json", made_plan(small_zone(name)))
        self.run("murmurate init --minutes 5 | sed -n 's/Public key: //p' > operator.key")
        open_zones(self, "plan", hours_ago=hours_ago)

    def open_and_find_first(self, hours_ago: float = 2) -> int:
        """Open a zone as `open` does. Returns its first interval."""
        self.open(hours_ago)
        return parse_tile(self.export("opened.tar")[0]).header.interval + 1


@cache
def made_plan(zone_file: str, **readers: Any) -> str:
    """What `murmurate plan` writes for a zone file, which tests of that command check. `readers` are those of files."""
    return make_plan(parse_zone(zone_file, **readers)).to_json()


def plan_zones(operator: Operator, *names: str) -> None:
    """Make a plan for each zone, in a file of its name."""
    for name in names:
        operator.write(f"{name}.toml", small_zone(name))
        operator.write(f"{name}.json", made_plan(small_zone(name)))


def open_zones(operator: Operator, *plans: str, hours_ago: float = 1, lead: int = 60) -> str:
    """Open the zones of plans; their first interval lies in the past."""
    files = " ".join(f"{name}.json" for name in plans)
    begin_s = operator.made_s // STEP_S * STEP_S - hours_ago * 3600
    begin = time.strftime("%FT%TZ", time.gmtime(begin_s))
    return operator.run(f"murmurate zone open {files} --lead {lead} --first {begin}")


def shard_zones(operator: Operator) -> dict[str, tuple[str, ...]]:
    """The zones of each shard, as the log says."""
    log = PostgresLogStore(operator.dsn("log"))
    found = {shard: offer.table.zones for shard, offer in log.read_heads(log.heads()).items()}
    log.close()
    return found


def decided_kinds(tiles: Iterable[bytes]) -> list[str]:
    """What each tile decides; of a release, what it decides about its first zone."""
    parsed = [parse_tile(tile) for tile in tiles]
    return [
        RowKind(tile.rows["kind"][0]).name.lower() if tile.header.kind is TileKind.RELEASE else tile.header.kind.value
        for tile in parsed
    ]


@contextmanager
def an_operator(folder: Path) -> Iterator[Operator]:
    operator = Operator(folder)
    for store in operator.names:
        operator.create(store)
    try:
        yield operator
    finally:
        for store in operator.names:
            operator.lose(store)


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    with an_operator(tmp_path) as one:
        yield one


def documented_commands(page: str, section: str | None = None) -> list[tuple[str, bool]]:
    """(command, whether it must succeed), in the order of a page of the docs or of one section of it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if section is not None:
        (text,) = re.findall(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, flags=re.DOTALL | re.MULTILINE)
    return commands_in(text)
