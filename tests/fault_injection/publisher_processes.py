"""The client of the fork server in `publishing_process`: start a publisher, wait for its end, kill it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


@dataclass(slots=True, eq=False)
class PublisherProcess:
    """One publisher. Its exit code is the negative signal number where a signal ended it."""

    pid: int
    job: Mapping[str, Any]
    ended: threading.Event = field(default_factory=threading.Event)
    code: int | None = None

    def kill(self) -> None:
        """Send SIGKILL if the process still runs."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class PublisherProcesses:
    """Starts publishers through the fork server."""

    def __init__(self, fork_server: subprocess.Popen[str]) -> None:
        self._fork_server = fork_server
        self._started: queue.Queue[int] = queue.Queue()
        self._early_exits: dict[int, int] = {}  # processes that ended before `start` returned
        self._children: dict[int, PublisherProcess] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read_reports, daemon=True)
        self._reader.start()

    def start(self, job: Mapping[str, Any]) -> PublisherProcess:
        """Start a publisher with this job."""
        self._fork_server.stdin.write(json.dumps(job) + "\n")
        self._fork_server.stdin.flush()
        pid = self._started.get(timeout=120)
        with self._lock:
            child = PublisherProcess(pid, job)
            if pid in self._early_exits:
                child.code = self._early_exits.pop(pid)
                child.ended.set()
            else:
                self._children[pid] = child
        return child

    def _read_reports(self) -> None:
        for line in self._fork_server.stdout:
            report = json.loads(line)
            if "started" in report:
                self._started.put(report["started"])
            elif "ended" in report:
                with self._lock:
                    child = self._children.pop(report["ended"], None)
                    if child is None:
                        self._early_exits[report["ended"]] = report["status"]
                    else:
                        child.code = report["status"]
                        child.ended.set()

    def close(self) -> None:
        """Kill all publishers, then end the fork server."""
        with self._lock:
            children = list(self._children.values())
        for child in children:
            child.kill()
        self._fork_server.stdin.close()
        self._fork_server.wait(120)
        self._reader.join(120)
        self._fork_server.stdout.close()


@contextmanager
def publisher_processes(setup: Mapping[str, str]) -> Iterator[PublisherProcesses]:
    """Run the fork server during the block."""
    command = [sys.executable, "-m", "tests.fault_injection.publishing_process"]
    fork_server = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    fork_server.stdin.write(json.dumps(dict(setup)) + "\n")
    fork_server.stdin.flush()
    assert "ready" in json.loads(fork_server.stdout.readline())
    processes = PublisherProcesses(fork_server)
    try:
        yield processes
    finally:
        processes.close()
