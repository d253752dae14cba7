"""What the benchmarks of anonymous load share: a server in a process, clients in another one, and limits."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

MAX_P99_S, MAX_BYTES, MAX_STOP_S, MAX_RECOVERY_S = 0.25, 512 * 2**20, 10.0, 10.0
MAX_LOG_LINES_PER_S = 5.0
BUSY_FACTOR = 10.0  # times the figure without load: other work may share the cores
QUICK_TOLERANCE = 4.0  # factor on a time in the quick form: a hundred requests are too few for a 99th percentile
QUICK_ATTEMPTS = 3  # of a kind of load in the quick form: another process may take the cores for a second
BASELINE_S = 5.0
RECOVERED_REQUESTS = 10  # in a row within the limit
REQUEST_ERRORS = (OSError, http.client.HTTPException)


class ServerProcess:
    """`murmurate serve` with some arguments, and what it costs."""

    def __init__(self, arguments: list[str], folder: Path, port: int) -> None:
        self._log_file = folder / "stderr"
        with self._log_file.open("wb") as stderr:
            command = [sys.executable, "-m", "murmurate", "serve", *arguments]
            self._process = subprocess.Popen(command, stderr=stderr)  # noqa: S603
        await_ready(port)

    def memory_bytes(self) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))

    def log_lines(self) -> int:
        return self._log_file.read_bytes().count(b"\n")

    def stop(self) -> float:
        """Return the seconds until it has ended."""
        begin = time.monotonic()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return time.monotonic() - begin


def await_ready(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    message = "the server is not ready"
    raise SystemExit(message)


@dataclass(slots=True)
class LoadFigures:
    """What one client saw while others asked for something."""

    request_s: list[float] = field(default_factory=list)
    peak_bytes: int = 0
    failures: int = 0

    @property
    def p50_s(self) -> float:
        return float(np.median(self.request_s or [np.inf]))

    @property
    def p99_s(self) -> float:
        return float(np.quantile(self.request_s, 0.99, method="higher")) if self.request_s else float("inf")


def await_recovery(send: Callable[[], float], limit_s: float) -> float:
    """Return the seconds until requests take no longer than the limit again. `send` returns the time of one."""
    begin, in_row, recovered_s = time.monotonic(), 0, 120.0
    while in_row < RECOVERED_REQUESTS and time.monotonic() - begin < 120:
        try:
            in_row = in_row + 1 if send() <= limit_s else 0
        except REQUEST_ERRORS:
            in_row = 0
        if in_row == 1:
            recovered_s = time.monotonic() - begin
    return recovered_s if in_row else 120.0


@contextmanager
def anonymous_clients(
    port: int, kind: str, connections: int, seconds: float, history_s: tuple[int, int] = (0, 0)
) -> Iterator[subprocess.Popen[str]]:
    """Have others ask while the block runs, and for so many seconds."""
    numbers = [str(number) for number in (connections, seconds, *history_s)]
    command = [sys.executable, "-m", "benchmarks.anonymous_clients", str(port), kind, *numbers]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        time.sleep(1.0)  # until they are connected
        yield running
    finally:
        running.terminate()
        running.wait(60)


class Judge:
    """Prints each figure beside its limit, and remembers those that miss it by more than is tolerated."""

    def __init__(self, *, is_quick: bool) -> None:
        self._time_tolerance, self._attempts = (QUICK_TOLERANCE, QUICK_ATTEMPTS) if is_quick else (1.0, 1)
        self.missed: list[str] = []

    def attempts(self, kinds: Iterable[str]) -> Iterator[str]:
        """Each kind of load. In the quick form one that misses a limit comes again, and only the last time counts."""
        for kind in kinds:
            for left in reversed(range(self._attempts)):
                before = len(self.missed)
                yield kind
                if len(self.missed) == before or not left:
                    break
                print(f"  tried again, missed: {', '.join(self.missed[before:])}", flush=True)
                del self.missed[before:]

    def compare(self, what: str, figure: float, limit: float, unit: str) -> None:
        if figure > limit * (self._time_tolerance if unit in {"s", "ms"} else 1.0):
            self.missed.append(what)
        word = "" if figure <= limit else ", NOT REACHED"
        print(f"  {what + ':':<34} {figure:>9,.2f} {unit}  (at most {limit:,.2f}{word})", flush=True)

    def compare_costs(self, figures: LoadFigures, recovery_s: float, log_lines_per_s: float) -> None:
        """What a load may cost on any port."""
        self.compare("memory", figures.peak_bytes / 2**20, MAX_BYTES / 2**20, "MiB")
        self.compare("recovery", recovery_s, MAX_RECOVERY_S, "s")
        self.compare("log lines a second", log_lines_per_s, MAX_LOG_LINES_PER_S, "")

    def exit_status(self) -> int:
        """Print the verdict. Return 1 where a figure misses its limit."""
        print("all within their limits" if not self.missed else f"missed: {', '.join(self.missed)}")
        return int(bool(self.missed))
