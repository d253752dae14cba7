"""A real service under test: its folder, its databases, its clock and its processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
from paho.mqtt.client import Client as MqttClient
from paho.mqtt.enums import CallbackAPIVersion

from murmurate.service.clock import ServiceClock
from tests.support.databases import database
from tests.support.ports import free_port

HOMES = 1000
STEP_S = 900
BOUND_WH = 1000
IMPUTED_WH = 200
LEAD = 12
GRACE_S = 4 * STEP_S
IDLE_S = 10.0  # what `prepare` takes on two cores that do nothing else


def end_session(name: str) -> None:
    """Remove the session of a client from the broker, and the messages that it keeps for it."""
    client = MqttClient(CallbackAPIVersion.VERSION2, client_id=name, clean_session=True)
    client.connect("127.0.0.1")
    client.loop_start()
    while not client.is_connected():
        time.sleep(0.01)
    client.disconnect()
    client.loop_stop()


@dataclass
class Instance:
    """One `murmurate serve`."""

    service: ServiceUnderTest
    settings: Path
    public: int
    private: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Instance:
        command = [sys.executable, "-m", "murmurate", "serve", str(self.settings)]
        with (self.service.root / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=self.service.environment, stdout=log, stderr=log)
        self.until_ready()
        return self

    def until_ready(self) -> None:
        end = time.monotonic() + 30 * self.service.slow
        for port in (self.public, self.private):
            while True:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                assert time.monotonic() < end, (self.service.root / "serve.log").read_text()[-2000:]
                time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            assert self.process.wait(180) == 0
            self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def process_ids(self) -> list[int]:
        """The processes that it has started."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def kill_a_process(self, number: int) -> None:
        """Kill one process with SIGKILL, as a crash would. The service starts it again."""
        end = time.monotonic() + 120
        while len(running := self.process_ids()) < 3:  # one that was killed before is not up again yet
            assert time.monotonic() < end, running
            time.sleep(0.02)
        os.kill(running[number % 3], signal.SIGKILL)

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.public}{path}"


@dataclass
class ServiceUnderTest:
    """Everything that an operator has, in one folder, with two databases."""

    root: Path
    state: str
    log: str
    clock: ServiceClock
    first_s: int  # when the first measured interval begins
    secrets: dict[str, str] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    slow: float = 1.0  # how many times as long as usual everything takes: the machine may be busy with other things

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"MURMURATE_STATE": self.state, "MURMURATE_LOG": self.log, "PYTHONUNBUFFERED": "1"}

    def run(self, *words: str, status: int = 0) -> str:
        """A command as the operator types it."""
        command = [sys.executable, "-m", "murmurate", *words]
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def prepare(self, *, currency: str = "CHF", keys: dict[int, str] | None = None) -> None:
        """Plan, keys, landing, meters, an open zone and two clients."""
        begun = time.monotonic()
        zone = self.run("plan", "--example").replace('currency = "EUR"', f'currency = "{currency}"')
        zone = zone.replace("count = 800", f"count = {HOMES}").split('[[households]]\nname = "fish market"')[0]
        (self.root / "zone.toml").write_text(zone)
        self.run("plan", "zone.toml")
        self.run("keys", "keys")
        self.run("landing", "landing")
        rows = [f"{n},home-{n:04},harbour,{BOUND_WH},{IMPUTED_WH},{(keys or {}).get(n, '')}" for n in range(HOMES)]
        (self.root / "meters.csv").write_text("\n".join(["meter,id,zone,bound_wh,imputed_wh,key", *rows]) + "\n")
        first = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(self.first_s))
        self.run("open", "plan.json", "--first", first, "--lead", str(LEAD))
        for name, options in (("head-end", ("--zone", "harbour")), ("ops", ("--operator",))):
            printed = self.run("client", "add", name, *options)
            self.secrets[name] = printed.split("client_secret:")[1].split()[0]
        self.slow = max(1.0, (time.monotonic() - begun) / IDLE_S)

    def begin(self, in_s: float) -> None:
        """Have the first interval begin `in_s` seconds from now; on a busy machine later, and time pass slower."""
        wall_s = time.time() + in_s * self.slow
        self.clock = ServiceClock(simulated_s=self.first_s, wall_s=wall_s, speed=self.clock.speed / self.slow)

    def instance(self, *, mqtt: bool = True) -> Instance:
        number, public, private = len(self.instances), free_port(), free_port()
        clock = self.clock
        text = f"""
            grace_s = {GRACE_S}
            release_slot_s = 0.1
            public = "127.0.0.1:{public}"
            private = "127.0.0.1:{private}"
            timezone = "Europe/Zurich"
            country = "CH"
            [clock]
            simulated_s = {clock.simulated_s}
            wall_s = {clock.wall_s}
            speed = {clock.speed}
        """
        path = self.root / f"service-{number}.toml"
        path.write_text(text + ("[mqtt]\n" if mqtt else ""))
        instance = Instance(self, path, public, private)
        self.instances.append(instance)
        return instance

    def demand(self) -> dict[int, tuple[int, int, int]]:
        """The demand in the state: interval → energy, reported, imputed. No API shows it."""
        query = "SELECT interval, energy_wh, reported, imputed FROM confidential.demand WHERE zone = 'harbour'"
        with psycopg.connect(self.state) as connection:
            return {at: tuple(rest) for at, *rest in connection.execute(query).fetchall()}


@contextmanager
def service_under_test(root: Path, first_s: int, speed: float) -> Iterator[ServiceUnderTest]:
    """A service with new databases. Its processes end with the block."""
    with database("state") as state, database("log") as log:
        service = ServiceUnderTest(root, state, log, ServiceClock(speed=speed), first_s)
        try:
            yield service
        finally:
            for instance in service.instances:
                if instance.process is not None and instance.process.poll() is None:
                    instance.process.terminate()
                    instance.process.wait(180)
                end_session(f"murmurate-readings-{socket.gethostname()}-{instance.private}")
