"""The faults: each has a target that takes one fault at a time, lasts for some seconds, and is healed at its end."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from tests.chaos.fault_targets import ReplicatedDatabase
from tests.support.broker import Broker
from tests.support.running_service import PARTS, RunningService
from tests.support.small_disk import SmallDisk

_MAX_FAULT_S = 4.0
_MIN_CLOCK_SHIFT_S = MAX_CLOCK_DIFFERENCE_S + 1.0  # less is no wrong clock
_MAX_CLOCK_SHIFT_S = 60.0  # of the machine's time: twelve intervals, more than their grace
_MAX_AWAY_INTERVALS = 3.0
_FLOOD_TIMEOUT_S = 300.0
MAX_BREAK_S = 1.2  # between the begins of two faults


@dataclass(frozen=True)
class Fault:
    """One kind of fault of one target. `targets`: what no other fault may touch meanwhile."""

    name: str
    targets: frozenset[str]
    apply: Callable[[random.Random], None]
    weight: int = 2


class ClockFaults:
    """Shifts clocks, and remembers when a clock was wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wrong = 0
        self._last_wrong_s = 0.0

    def shift(self, service: RunningService, rng: random.Random, direction: int, part: str | None) -> None:
        """Shift the clock of a part, or of all parts of a service, for a time."""
        with self._lock:
            self._wrong += 1
        service.clock.shift(direction * rng.uniform(_MIN_CLOCK_SHIFT_S, _MAX_CLOCK_SHIFT_S), part)
        try:
            time.sleep(rng.uniform(1.0, _MAX_FAULT_S))
        finally:
            service.clock.shift(0.0, part)
            with self._lock:
                self._wrong -= 1
                self._last_wrong_s = time.time()

    def wrong_since(self, at_s: float) -> bool:
        """Whether a clock was wrong at some time since. A second is added for what had read it before."""
        with self._lock:
            return self._wrong > 0 or self._last_wrong_s + 1.0 > at_s


def _stop_part(service: RunningService, part: str) -> Callable[[random.Random], None]:
    def apply(rng: random.Random) -> None:
        pid = service.signal_part(part, signal.SIGSTOP)
        if pid is not None:
            time.sleep(rng.uniform(0.5, _MAX_FAULT_S))
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    return apply


def _restart_service(
    service: RunningService, *, kill: bool, max_away_s: float = 1.0
) -> Callable[[random.Random], None]:
    def apply(rng: random.Random) -> None:
        with service.guard:
            service.kill() if kill else service.stop()
            time.sleep(rng.uniform(0.0, max_away_s))
            service.start()

    return apply


def _service_faults(service: RunningService, clocks: ClockFaults, max_away_s: float) -> list[Fault]:
    faults = []
    for part in PARTS:
        target = frozenset({f"{service.name} {part}"})

        def kill(_: random.Random, part: str = part) -> None:
            service.signal_part(part, signal.SIGKILL)

        faults.append(Fault(f"kill -9 {part}", target, kill))
        faults.append(Fault(f"SIGSTOP {part}", target, _stop_part(service, part)))
    whole = frozenset({f"{service.name} {part}" for part in PARTS})
    faults.append(Fault("kill -9 service", whole, _restart_service(service, kill=True), weight=1))
    faults.append(Fault("restart service", whole, _restart_service(service, kill=False), weight=1))
    away = _restart_service(service, kill=False, max_away_s=max_away_s)
    faults.append(Fault("service away", whole, away, weight=1))
    for part, (direction, way) in product((None, *PARTS), ((1, "ahead"), (-1, "behind"))):

        def apply(rng: random.Random, direction: int = direction, part: str | None = part) -> None:
            clocks.shift(service, rng, direction, part)

        name = f"clock {way}" if part is None else f"clock of {part} {way}"
        faults.append(Fault(name, frozenset({"clocks"}), apply, weight=1))
    static = frozenset({f"{service.name} static"})
    faults.append(Fault("static folder lost", static, lambda _: _lose_folder(service.static)))
    faults.append(Fault("static files lost", static, lambda rng: _lose_files(service.static, rng)))
    return faults


def _common_faults(services: list[RunningService], max_away_s: float) -> list[Fault]:
    """Faults of all services at once: what is published meanwhile waits at the broker, and no service takes it."""

    def stop_all(rng: random.Random) -> None:
        with ExitStack() as guards:
            for service in services:
                guards.enter_context(service.guard)
            for service in services:
                service.stop()
            time.sleep(rng.uniform(0.0, max_away_s))
            for service in services:
                service.start()

    def pause_all(rng: random.Random) -> None:
        pids = [pid for service in services if (pid := service.part_pid("private")) is not None]
        for number, wait_s in ((signal.SIGSTOP, rng.uniform(0.5, max_away_s)), (signal.SIGCONT, 0.0)):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(wait_s)

    whole = frozenset({f"{service.name} {part}" for service in services for part in PARTS})
    private = frozenset({f"{service.name} private" for service in services})
    return [
        Fault("all services away", whole, stop_all, weight=1),
        Fault("SIGSTOP all private", private, pause_all, weight=1),
    ]


def _lose_folder(folder: Path) -> None:
    """Move a folder away in one step, as if its disk was replaced by an empty one."""
    away = folder.with_name(f".{folder.name}-{time.monotonic_ns()}")
    with suppress(FileNotFoundError):
        folder.rename(away)
    shutil.rmtree(away, ignore_errors=True)


def _lose_files(folder: Path, rng: random.Random) -> None:
    for path in [path for path in folder.rglob("*") if path.is_file() and rng.random() < 0.3]:
        path.unlink(missing_ok=True)


def _fill_disk(disk: SmallDisk, rng: random.Random) -> None:
    """Leave no free block for a time. What others delete meanwhile is taken as well."""
    end = time.monotonic() + rng.uniform(0.5, _MAX_FAULT_S)
    try:
        while time.monotonic() < end:
            disk.fill()
            time.sleep(0.02)
    finally:
        disk.free()


def _database_faults(database: ReplicatedDatabase) -> list[Fault]:
    name, target = database.name, frozenset({database.name})
    return [
        Fault(f"{name} crashes", target, lambda rng: database.crash(rng.uniform(0.0, 2.0))),
        Fault(f"{name} stands still", target, lambda rng: database.pause(rng.uniform(0.5, _MAX_FAULT_S))),
        Fault(f"{name} read-only", target, lambda rng: database.make_read_only(rng.uniform(0.5, _MAX_FAULT_S))),
        Fault(f"{name} cut off", target, lambda rng: database.cut_network(rng.uniform(0.2, 3.0), hang=False)),
        Fault(f"{name} hangs", target, lambda rng: database.cut_network(rng.uniform(0.2, 3.0), hang=True)),
        Fault(f"{name} fails over", target, lambda rng: database.fail_over(rng.uniform(0.0, 1.0)), weight=1),
    ]


def _broker_faults(broker: Broker) -> list[Fault]:
    def kill(rng: random.Random) -> None:
        broker.kill()
        time.sleep(rng.uniform(0.0, 3.0))
        broker.start()

    def stop(rng: random.Random) -> None:
        broker.send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, _MAX_FAULT_S))
        broker.send_signal(signal.SIGCONT)

    def flood(rng: random.Random) -> None:
        words = ["tests.chaos.mqtt_flood", str(broker.port), str(rng.uniform(1.0, _MAX_FAULT_S))]
        subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True, timeout=_FLOOD_TIMEOUT_S)

    target = frozenset({"broker"})
    return [
        Fault("kill -9 broker", target, kill),
        Fault("SIGSTOP broker", target, stop),
        Fault("flood over MQTT", target, flood),
    ]


def all_faults(
    services: list[RunningService],
    databases: list[ReplicatedDatabase],
    broker: Broker,
    disk: SmallDisk,
    clocks: ClockFaults,
    step_wall_s: float,
) -> list[Fault]:
    """Every fault that this machine permits. `step_wall_s`: how long an interval takes."""
    max_away_s = _MAX_AWAY_INTERVALS * step_wall_s
    faults = [fault for service in services for fault in _service_faults(service, clocks, max_away_s)]
    faults += _common_faults(services, max_away_s)
    faults += [fault for database in databases for fault in _database_faults(database)]
    faults += _broker_faults(broker)
    if disk.mounted:
        faults.append(Fault("disk full", frozenset({"disk"}), lambda rng: _fill_disk(disk, rng), weight=4))
    return faults


class Storm:
    """Runs faults, several at once. Counts each one that was applied."""

    def __init__(self, faults: list[Fault], seed: int) -> None:
        self._faults = faults
        self._rng = random.Random(seed)  # noqa: S311
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._running: list[threading.Thread] = []
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []

    def run(self, count: int) -> None:
        """Begin `count` faults one after the other, and wait until all of them are healed."""
        for _ in range(count):
            fault = self._take()
            rng = random.Random(self._rng.random())  # noqa: S311
            thread = threading.Thread(target=self._apply, args=(fault, rng), name=fault.name, daemon=True)
            self._running.append(thread)
            thread.start()
            time.sleep(self._rng.uniform(0.1, MAX_BREAK_S))
        for thread in self._running:
            thread.join()
        self._running.clear()

    def _take(self) -> Fault:
        """A fault whose targets are free. The kind comes first, so that kinds with few targets are as frequent."""
        while True:
            with self._lock:
                free = [fault for fault in self._faults if not fault.targets & self._busy]
                if free:
                    weights = [fault.weight / (1 + self.counts[fault.name]) for fault in free]
                    (fault,) = self._rng.choices(free, weights)
                    self._busy |= fault.targets
                    self.counts[fault.name] += 1
                    return fault
            time.sleep(0.05)

    def _apply(self, fault: Fault, rng: random.Random) -> None:
        with ExitStack() as stack:
            stack.callback(self._release, fault)
            try:
                fault.apply(rng)
            except Exception as error:  # noqa: BLE001  a fault that cannot be healed is reported, not hidden
                self.errors.append(f"fault {fault.name}: {type(error).__name__}: {error}")

    def _release(self, fault: Fault) -> None:
        with self._lock:
            self._busy -= fault.targets
