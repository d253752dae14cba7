"""The other end of the publishing process: order a publisher, see it end, kill it."""

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
class Child:
    """One publisher; its code is the negative number of a signal where that ended it."""

    pid: int
    order: Mapping[str, Any]
    ended: threading.Event = field(default_factory=threading.Event)
    code: int | None = None

    def kill(self) -> None:
        """SIGKILL, if it still lives."""
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """Publishers, ordered one by one."""

    def __init__(self, mother: subprocess.Popen[str]) -> None:
        self._mother = mother
        self._born: queue.Queue[int] = queue.Queue()
        self._orphans: dict[int, int] = {}  # ended before the order returned
        self._children: dict[int, Child] = {}
        self._guard = threading.Lock()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def bear(self, order: Mapping[str, Any]) -> Child:
        """A new publisher that does as ordered."""
        self._mother.stdin.write(json.dumps(order) + "\n")
        self._mother.stdin.flush()
        pid = self._born.get(timeout=30)
        with self._guard:
            child = Child(pid, order)
            if pid in self._orphans:
                child.code = self._orphans.pop(pid)
                child.ended.set()
            else:
                self._children[pid] = child
        return child

    def _listen(self) -> None:
        for line in self._mother.stdout:
            report = json.loads(line)
            if "born" in report:
                self._born.put(report["born"])
            elif "ended" in report:
                with self._guard:
                    child = self._children.pop(report["ended"], None)
                    if child is None:
                        self._orphans[report["ended"]] = report["status"]
                    else:
                        child.code = report["status"]
                        child.ended.set()

    def close(self) -> None:
        """Publishers first, for nobody else would end them."""
        with self._guard:
            children = list(self._children.values())
        for child in children:
            child.kill()
        self._mother.stdin.close()
        self._mother.wait(30)
        self._listener.join(30)
        self._mother.stdout.close()


@contextmanager
def nursery(setup: Mapping[str, str]) -> Iterator[Nursery]:
    """The publishing process for as long as the block lasts."""
    command = [sys.executable, "-m", "tests.live.publishing_process"]
    mother = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    mother.stdin.write(json.dumps(dict(setup)) + "\n")
    mother.stdin.flush()
    assert "ready" in json.loads(mother.stdout.readline())
    house = Nursery(mother)
    try:
        yield house
    finally:
        house.close()
