"""The faults: each has targets that take one fault at a time, lasts for some seconds, and is healed at its end."""

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S
from tests.chaos.replicated_database import ReplicatedDatabase
from tests.support.broker import Broker
from tests.support.running_service import PARTS, RunningService
from tests.support.small_disk import SmallDisk

_MAX_FAULT_S = 4.0
_MIN_CLOCK_SHIFT_S = MAX_CLOCK_DIFFERENCE_S + 1.0  # less is no wrong clock
_MAX_CLOCK_SHIFT_S = 60.0  # of the machine's time: twelve intervals, more than their grace
_MAX_AWAY_INTERVALS = 3.0
_FLOOD_TIMEOUT_S = 300.0
MAX_BREAK_S = 1.2  # between the begins of two faults

Apply = Callable[[random.Random], None]


@dataclass(frozen=True)
class Fault:
    """One kind of fault of one target. `targets`: what no other fault may touch meanwhile."""

    name: str
    targets: frozenset[str]
    apply: Apply
    weight: int = 2


def _lasting(fault: Callable[[], AbstractContextManager[object]], min_s: float, max_s: float) -> Apply:
    """A fault that begins and ends with a context, and lasts for a random time in between."""

    def apply(rng: random.Random) -> None:
        with fault():
            time.sleep(rng.uniform(min_s, max_s))

    return apply


@contextmanager
def _stopped(find_pids: Callable[[], Iterable[int | None]]) -> Iterator[None]:
    """Processes that stand still. One may end meanwhile."""
    pids = [pid for pid in find_pids() if pid is not None]
    for pid in pids:
        _send_signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            _send_signal(pid, signal.SIGCONT)


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class ClockFaults:
    """Shifts clocks, and remembers when a clock was wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wrong = 0
        self._last_wrong_s = 0.0

    def shift(self, service: RunningService, direction: int, part: str | None, rng: random.Random) -> None:
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


@contextmanager
def _away(services: list[RunningService], *, kill: bool = False) -> Iterator[None]:
    """Services that do not run: what is published meanwhile waits at the broker, if all of them are away."""
    with ExitStack() as guards:
        for service in services:
            guards.enter_context(service.guard)
        for service in services:
            service.kill() if kill else service.stop()
        yield
        for service in services:
            service.start()


def _parts(services: list[RunningService], *parts: str) -> frozenset[str]:
    return frozenset(f"{service.name} {part}" for service in services for part in parts)


def _service_faults(service: RunningService, clocks: ClockFaults, max_away_s: float) -> Iterator[Fault]:
    for part in PARTS:
        target = _parts([service], part)
        yield Fault(f"kill -9 {part}", target, lambda _, part=part: service.signal_part(part, signal.SIGKILL))
        stopped = partial(_stopped, lambda part=part: [service.part_pid(part)])
        yield Fault(f"SIGSTOP {part}", target, _lasting(stopped, 0.5, _MAX_FAULT_S))
    whole = _parts([service], *PARTS)
    yield Fault("kill -9 service", whole, _lasting(partial(_away, [service], kill=True), 0.0, 1.0), weight=1)
    yield Fault("restart service", whole, _lasting(partial(_away, [service]), 0.0, 1.0), weight=1)
    yield Fault("service away", whole, _lasting(partial(_away, [service]), 0.0, max_away_s), weight=1)
    for part, (direction, way) in product((None, *PARTS), ((1, "ahead"), (-1, "behind"))):
        name = f"clock {way}" if part is None else f"clock of {part} {way}"
        yield Fault(name, frozenset({"clocks"}), partial(clocks.shift, service, direction, part), weight=1)
    static = _parts([service], "static")
    yield Fault("static folder lost", static, lambda _: _lose_folder(service.static))
    yield Fault("static files lost", static, lambda rng: _lose_files(service.static, rng))


def _common_faults(services: list[RunningService], max_away_s: float) -> Iterator[Fault]:
    away = _lasting(partial(_away, services), 0.0, max_away_s)
    yield Fault("all services away", _parts(services, *PARTS), away, weight=1)
    stopped = partial(_stopped, lambda: [service.part_pid("private") for service in services])
    yield Fault("SIGSTOP all private", _parts(services, "private"), _lasting(stopped, 0.5, max_away_s), weight=1)


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


def _database_faults(database: ReplicatedDatabase) -> Iterator[Fault]:
    stopped = partial(_stopped, database.processes)  # accepts nothing and answers nothing
    for name, apply in (
        ("crashes", _lasting(database.crashed, 0.0, 2.0)),
        ("stands still", _lasting(stopped, 0.5, _MAX_FAULT_S)),
        ("read-only", _lasting(database.read_only, 0.5, _MAX_FAULT_S)),
        ("cut off", _lasting(partial(database.cut_off, hang=False), 0.2, 3.0)),
        ("hangs", _lasting(partial(database.cut_off, hang=True), 0.2, 3.0)),
    ):
        yield Fault(f"{database.name} {name}", frozenset({database.name}), apply)
    fails_over = _lasting(database.failing_over, 0.0, 1.0)
    yield Fault(f"{database.name} fails over", frozenset({database.name}), fails_over, weight=1)


def _broker_faults(broker: Broker) -> Iterator[Fault]:
    @contextmanager
    def killed() -> Iterator[None]:
        broker.kill()
        yield
        broker.start()

    @contextmanager
    def stopped() -> Iterator[None]:
        broker.send_signal(signal.SIGSTOP)
        yield
        broker.send_signal(signal.SIGCONT)

    def flood(rng: random.Random) -> None:
        words = ["tests.chaos.mqtt_flood", str(broker.port), str(rng.uniform(1.0, _MAX_FAULT_S))]
        subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True, timeout=_FLOOD_TIMEOUT_S)

    target = frozenset({"broker"})
    yield Fault("kill -9 broker", target, _lasting(killed, 0.0, 3.0))
    yield Fault("SIGSTOP broker", target, _lasting(stopped, 0.5, _MAX_FAULT_S))
    yield Fault("flood over MQTT", target, flood)


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
        faults.append(Fault("disk full", frozenset({"disk"}), partial(_fill_disk, disk), weight=4))
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
        try:
            fault.apply(rng)
        except Exception as error:  # noqa: BLE001  a fault that cannot be healed is reported, not hidden
            self.errors.append(f"fault {fault.name}: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._busy -= fault.targets
