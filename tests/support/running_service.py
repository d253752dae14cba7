"""An operator who runs real services: two databases, one landing, a simulated time, and processes."""

from __future__ import annotations

import mmap
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from murmurate.service.clock import ServiceClock
from tests.support.broker import end_session
from tests.support.databases import database
from tests.support.operator_cli import Operator, made_plan, with_shifted_time
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PARTS = ("private", "worker", "public")  # in the order of shifted_time
READY_TIMEOUT_S = 180.0
IDLE_COMMAND_S = 1.2  # what a command takes on two cores that do nothing else
_STOP_TIMEOUT_S = 180.0
Value = TypeVar("Value")


class ShiftedClock:
    """Shifts the time of every process of one service, or of one of its parts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(8 * len(PARTS)))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8 * len(PARTS))

    def shift(self, seconds: float, part: str | None = None) -> None:
        for number, name in enumerate(PARTS):
            if part in {None, name}:
                self._shared[8 * number : 8 * (number + 1)] = struct.pack("d", seconds)


class RunningService:
    """One `murmurate serve`, or one part of it. A fault that ends or starts the service holds `guard`."""

    def __init__(self, operator: ServiceOperator, name: str, settings: str, parts: tuple[str, ...]) -> None:
        self.name, self.parts = name, parts
        self.public, self.private = free_port(), free_port()
        self.folder = operator.folder
        self.log = operator.folder / f"service-{name}.log"
        self.static = operator.folder / f"static-{name}"  # if its settings name it
        self.settings = operator.folder / f"service-{name}.toml"
        self.settings.write_text(f"""
            public = "127.0.0.1:{self.public}"
            private = "127.0.0.1:{self.private}"
            release_slot_s = 0.1
            {settings}
            [clock]
            simulated_s = {operator.clock.simulated_s}
            wall_s = {operator.clock.wall_s}
            speed = {operator.clock.speed}
            {operator.mqtt}
        """)
        self.clock = ShiftedClock(operator.folder / f"clock-{name}")
        self.guard = threading.Lock()
        shifted = with_shifted_time({"MURMURATE_TEST_CLOCK": str(self.clock.path)})
        self._environment = operator.environment | shifted | {"PYTHONUNBUFFERED": "1"}
        self.program: Sequence[str] = (sys.executable, "-m", "murmurate")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> RunningService:
        command = [*self.program, "serve", str(self.settings)]
        command += [] if self.parts == PARTS else ["--only", *self.parts]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._environment, cwd=self.folder, stdout=log, stderr=log)
        return self

    def start_if_ended(self) -> bool:
        """As the init system of a machine does with a unit that ended by itself. Return whether it had ended."""
        if not self.guard.acquire(blocking=False):
            return False
        try:
            if self.process is None or self.process.poll() is None:
                return False
            self.start()
            return True
        finally:
            self.guard.release()

    def kill(self) -> None:
        """Kill the parent process. Its parts end by themselves."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int | None:
        """Have it end, and return its exit status. One that does not end in time is killed."""
        if self.process is None:
            return None
        self.process.terminate()
        try:
            return self.process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def process_ids(self) -> list[int]:
        """The processes that it has started."""
        if self.process is None:
            return []
        try:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        except OSError:
            return []
        return [int(pid) for pid in children.split()]

    def part_pid(self, part: str) -> int | None:
        """The process of a part; None while there is none."""
        for pid in self.process_ids():
            with suppress(OSError):
                if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").endswith(part.encode()):
                    return pid
        return None

    def signal_part(self, part: str, number: int) -> int | None:
        """Send a signal to the process of a part. Return its process; None if there was none."""
        pid = self.part_pid(part)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid

    def is_ready(self) -> bool:
        """Whether the operator would call it whole: its parts run, and their ports answer that they are ready."""
        if self.parts == PARTS and any(self.part_pid(part) is None for part in PARTS):
            return False
        ports = {"public": self.public, "private": self.private}
        try:
            return all(
                httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10, trust_env=False).status_code == 200
                for part, port in ports.items()
                if part in self.parts
            )
        except httpx.HTTPError:
            return False

    def wait_for(self, condition: Callable[[], Value], timeout_s: float = 300.0) -> Value:
        """Return the value of a condition once it is true. If it stays false, fail with the end of the log."""
        value = wait_until(condition, timeout_s)
        assert value, self.log.read_text()[-3000:]
        return value

    def url(self, path: str, part: str = "public") -> str:
        return f"http://127.0.0.1:{self.public if part == 'public' else self.private}{path}"

    def metrics(self, part: str = "private", **request: Any) -> dict[tuple[str, ...], float]:
        """The samples of its metrics, by name and values of labels."""
        text = httpx.get(self.url("/metrics", part), **request).raise_for_status().text
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return {(sample.name, *sample.labels.values()): sample.value for sample in samples}


class HeadEnd:
    """A client that posts readings. It signs in before its first post, and again after a post that was refused."""

    def __init__(self, operator: ServiceOperator, timeout_s: float = 120.0) -> None:
        self._operator = operator
        self._web = httpx.Client(timeout=timeout_s)
        self._token = ""

    def sign_in(self, service: RunningService) -> None:
        form = {"grant_type": "client_credentials", "client_id": "head-end"}
        form["client_secret"] = self._operator.secrets["head-end"]
        answer = self._web.post(service.url("/auth/token", "private"), data=form)
        self._token = answer.raise_for_status().json()["access_token"]

    def post(self, service: RunningService, body: bytes, kind: str) -> httpx.Response:
        if not self._token:
            self.sign_in(service)
        headers = {"authorization": f"Bearer {self._token}", "content-type": kind}
        answer = self._web.post(service.url("/readings", "private"), content=body, headers=headers)
        if answer.status_code == 401:
            self._token = ""
        return answer

    def close(self) -> None:
        self._web.close()


class ServiceOperator(Operator):
    """An operator whose services read a simulated time: an interval takes seconds.

    `mqtt` is the table of the broker in the settings of each service.
    """

    def __init__(self, folder: Path, dsns: Mapping[str, str], *, first_s: int, speed: float = 1.0) -> None:
        super().__init__(folder)
        self._dsns, self.first_s = dict(dsns), first_s
        self.clock = ServiceClock(simulated_s=first_s, wall_s=time.time(), speed=speed)
        self.secrets: dict[str, str] = {}
        self.services: list[RunningService] = []
        self.slow = 1.0  # how many times as long as usual everything takes: the machine may be busy with other things
        self.mqtt = ""

    def dsn(self, store: str) -> str:
        return self._dsns[store]

    def prepare(
        self,
        zone_files: Mapping[str, str],
        meters: str,
        *,
        lead: int,
        clients: Mapping[str, str],
        **readers: Any,
    ) -> None:
        """Plans, keys, a landing, the meter table, open zones, and clients with these options.

        `readers` read the files that zone files name.
        """
        for zone, text in zone_files.items():
            self.write(f"{zone}.json", made_plan(text, **readers))
        self.write("meters.csv", meters)
        begun = time.monotonic()
        self.run("murmurate init")
        first = time.strftime("%FT%TZ", time.gmtime(self.first_s))
        plans = " ".join(f"{zone}.json" for zone in zone_files)
        self.run(f"murmurate zone open {plans} --first {first} --lead {lead}")
        for name, options in clients.items():
            printed = self.run(f"murmurate client add {name} {options}")
            self.secrets[name] = printed.split("client_secret:")[1].split()[0]
        self.slow = max(1.0, (time.monotonic() - begun) / IDLE_COMMAND_S / (3 + len(clients)))

    def begin(self, in_s: float) -> None:
        """Have the first interval begin `in_s` seconds from now; on a busy machine later, and time pass slower."""
        wall_s = time.time() + in_s * self.slow
        self.clock = ServiceClock(simulated_s=self.first_s, wall_s=wall_s, speed=self.clock.speed / self.slow)

    def add_service(self, settings: str = "", parts: tuple[str, ...] = PARTS) -> RunningService:
        """A service that is not started yet, with these lines in its settings."""
        self.services.append(RunningService(self, str(len(self.services) + 1), settings, parts))
        return self.services[-1]

    def start_service(self, settings: str = "", parts: tuple[str, ...] = PARTS) -> RunningService:
        """A service that is ready."""
        service = self.add_service(settings, parts).start()
        service.wait_for(service.is_ready)
        return service

    def stop_services(self) -> None:
        for service in self.services:
            service.clock.shift(0.0)
            service.stop()

    def demand(self) -> dict[tuple[int, str], tuple[int, int, int]]:
        """The demand in the state: interval and zone → energy, reported, imputed. No API shows it."""
        query = "SELECT interval, zone, energy_wh, reported, imputed FROM confidential.demand"
        with psycopg.connect(self.dsn("state"), options="-c default_transaction_read_only=on") as connection:
            rows = connection.execute(query).fetchall()
        return {(at, zone): (energy_wh, reported, imputed) for at, zone, energy_wh, reported, imputed in rows}


@contextmanager
def service_operator(folder: Path, *, first_s: int, speed: float) -> Iterator[ServiceOperator]:
    """An operator with new databases on the server of the tests. Services end with the block."""
    with database("state") as state, database("log") as log:
        operator = ServiceOperator(folder, {"state": state, "log": log}, first_s=first_s, speed=speed)
        try:
            yield operator
        finally:
            operator.stop_services()
            for service in operator.services if operator.mqtt else ():
                end_session(f"murmurate-readings-{socket.gethostname()}-{service.private}")
