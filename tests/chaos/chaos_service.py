"""Two services of one operator: one landing, two databases, one broker, and a clock for each service."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from murmurate.planning.plan import make_plan
from murmurate.planning.zone_file import EXAMPLE_ZONE_FILE, parse_zone
from murmurate.service.clock import ServiceClock
from tests.chaos.meters import METERS, STEP_S, ZONES, meter_table
from tests.support.ports import free_port

GRACE_INTERVALS, LEAD = 4, 10
QUORUM = 0.5
PARTS = ("private", "worker", "public")  # in the order of shifted_time
_READY_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 180.0
SHIFTED_TIME = Path(__file__).with_name("shifted_time")


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


class ChaosService:
    """One `murmurate serve`. `guard` is held by a fault that ends or starts it."""

    def __init__(self, operator: Operator, name: str) -> None:
        self.name = name
        self.public, self.private = free_port(), free_port()
        self.clock = ShiftedClock(operator.root / f"clock-{name}")
        self.log = operator.root / f"service-{name}.log"
        self.step_wall_s = operator.step_wall_s
        self.static = operator.root / f"static-{name}"
        self.guard = threading.Lock()
        self._settings = operator.root / f"service-{name}.toml"
        self._settings.write_text(operator.settings_text(self))
        path = os.pathsep.join(filter(None, (str(SHIFTED_TIME), os.environ.get("PYTHONPATH", ""))))
        self._environment = operator.environment | {
            "PYTHONPATH": path,
            "MURMURATE_TEST_CLOCK": str(self.clock.path),
            "PYTHONUNBUFFERED": "1",
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "murmurate", "serve", str(self._settings)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)

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

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def part_pid(self, part: str) -> int | None:
        """The process of a part; None while there is none."""
        if self.process is None:
            return None
        with suppress(OSError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
            for pid in map(int, children.split()):
                with suppress(OSError):
                    if Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").endswith(part.encode()):
                        return pid
        return None

    def is_ready(self) -> bool:
        """Whether the operator would call it whole: three parts, and both ports say that they are ready."""
        if any(self.part_pid(part) is None for part in PARTS):
            return False
        try:
            return all(
                httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).status_code == 200
                for port in (self.public, self.private)
            )
        except httpx.HTTPError:
            return False


class Operator:
    """A folder with everything that an operator has, and the commands that were typed."""

    def __init__(self, root: Path, state: str, log: str, broker_port: int, *, step_wall_s: float) -> None:
        self.root, self._broker_port = root, broker_port
        self.state, self.log = state, log
        self.step_wall_s = step_wall_s  # how long an interval takes here [s]
        self.clock = ServiceClock()
        self.first_s = int(time.time()) // STEP_S * STEP_S - 30 * 86_400  # every interval is over by the log's clock
        self.environment = os.environ | {"MURMURATE_STATE": state, "MURMURATE_LOG": log}
        self.secret = ""

    @property
    def first(self) -> int:
        return self.first_s // STEP_S

    def run(self, *words: str) -> str:
        """Run a command as the operator types it."""
        command = [sys.executable, "-m", "murmurate", *words]
        environment = self.environment
        done = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def prepare(self) -> None:
        """Plans, keys, landing, meters, open zones and a client."""
        for zone in ZONES:
            text = EXAMPLE_ZONE_FILE.replace('"harbour"', f'"{zone}"').split('[[households]]\nname = "fish market"')[0]
            text = text.replace("count = 800", f"count = {METERS}")
            text = text.replace('["any 24 h: epsilon 1, delta 1e-6", "any moment: 1"]', '["any 24 h: epsilon 3"]')
            (self.root / f"{zone}.json").write_text(make_plan(parse_zone(text)).to_json())
        self.run("keys", "keys")
        self.run("landing", "landing")
        (self.root / "meters.csv").write_text(meter_table())
        first = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self.first_s))
        self.run("open", *(f"{zone}.json" for zone in ZONES), "--first", first, "--lead", str(LEAD))
        printed = self.run("client", "add", "head-end", *(word for zone in ZONES for word in ("--zone", zone)))
        self.secret = printed.split("client_secret:")[1].split()[0]

    def begin(self, in_s: float) -> None:
        """Have the first interval begin `in_s` seconds from now."""
        speed = STEP_S / self.step_wall_s
        self.clock = ServiceClock(simulated_s=self.first_s, wall_s=time.time() + in_s, speed=speed)

    def settings_text(self, service: ChaosService) -> str:
        clock = self.clock
        return f"""
            grace_s = {GRACE_INTERVALS * STEP_S}
            quorum = {QUORUM}
            keep_days = 3650
            release_slot_s = 0.1
            public = "127.0.0.1:{service.public}"
            private = "127.0.0.1:{service.private}"
            static_files = "{service.static.name}"
            [clock]
            simulated_s = {clock.simulated_s}
            wall_s = {clock.wall_s}
            speed = {clock.speed}
            [mqtt]
            port = {self._broker_port}
            openadr_events = false
        """


def wait_until(condition: Callable[[], bool], timeout_s: float = _READY_TIMEOUT_S, pause_s: float = 0.2) -> bool:
    """Wait for a condition. Return whether it has come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause_s)
    return True
