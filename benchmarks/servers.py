"""Servers in their own processes: how soon they are ready, and what they take."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from benchmarks.cpu_seconds import process_core_s

_START_TIMEOUT_S, _STOP_TIMEOUT_S = 600.0, 60.0


class ServerProcess:
    """An HTTP server that runs while a block does. It answers `/readyz` with 200 when it is ready."""

    def __init__(self, command: Sequence[str], port: int, log_file: Path) -> None:
        """Start `python` with these arguments. What it writes to standard error goes to `log_file`."""
        self._port, self._log_file = port, log_file
        with log_file.open("wb") as stderr:
            self._process = subprocess.Popen([sys.executable, *command], stderr=stderr)  # noqa: S603

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def await_ready(self) -> float:
        """Return the seconds until it is ready."""
        begin = time.monotonic()
        while time.monotonic() - begin < _START_TIMEOUT_S:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=30) as answer:
                    if answer.status == 200:
                        return time.monotonic() - begin
            except OSError:
                time.sleep(0.05)
        raise TimeoutError(self._log_file.read_text())

    def core_s(self) -> float:
        return process_core_s(self._process.pid)

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """Return its memory now, or the most that it had: `VmHWM`."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))

    def log_lines(self) -> int:
        return self._log_file.read_bytes().count(b"\n")

    def stop(self) -> float:
        """Return the seconds until it has ended."""
        begin = time.monotonic()
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return time.monotonic() - begin
