"""Processes that append, close and forget, and that die when they are told to."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from murmurate.quantities import Readings
from murmurate.service.gathering import append as appending
from murmurate.service.gathering import closing as closings
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.readingsfile import encode

_DISK = ("open", "mkdir", "fsync", "link", "replace", "rename", "unlink", "rmdir")
_PATIENCE_S = 60

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["__main__", "pandas", "murmurate.service.gathering.command"])


class Child:
    """A process that does one thing after another, as it is told."""

    def __init__(self, work: Callable[..., Any], *given: Any) -> None:
        self._line, far = _context.Pipe()
        self.process = _context.Process(target=work, args=(far, *given), daemon=True)
        self.process.start()
        far.close()

    def tell(self, *order: Any) -> None:
        self._line.send(order)

    def hear(self) -> Any:
        assert self._line.poll(_PATIENCE_S), "nothing was heard of a process"
        return self._line.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._line.close()
        self.process.close()


@contextmanager
def children(*works: tuple[Any, ...]) -> Iterator[list[Child]]:
    born: list[Child] = []
    try:
        born.extend(Child(*work) for work in works)
        yield born
    finally:
        for child in born:
            child.kill()


def _quick() -> None:
    """Only a power cut can tell the difference, and without it there is more of a crowd."""
    os.fsync = lambda _: None


def _warm() -> None:
    """What takes long the first time is done before it counts: pyarrow goes and looks for pandas."""
    encode(0, np.zeros(1, np.int64), np.zeros(1, np.int64))


def keep_appending(line: Any, root: Path, shard_meters: int) -> None:
    """Told (interval, meters, quick): append the meters one by one, each in two shards; say which are sure to count."""
    landing, real = Landing.open(root), os.fsync
    _warm()
    while True:
        start_s, meters, quick = line.recv()
        os.fsync = real
        if quick:
            _quick()
        sure = [
            meter
            for meter in meters
            if appending.append(landing, start_s, Readings.of(meter=[meter, meter + shard_meters], energy_wh=[7, 8]))
        ]
        line.send(sure)


def keep_closing(line: Any, root: Path, together: Any) -> None:
    """Told (interval, version): meet the others, close it, say what the closing is."""
    landing = Landing.open(root)
    while True:
        start_s, version = line.recv()
        together.wait(_PATIENCE_S)
        line.send(closings.close(landing, start_s, version).encode())


def appends_for_ever(line: Any, root: Path, start_s: int, readings: Readings) -> None:
    """There is no moment at which it is not appending."""
    landing = Landing.open(root)
    _warm()
    line.send("begun")
    while appending.append(landing, start_s, readings):
        pass


def closes(line: Any, root: Path, start_s: int, version: str) -> None:
    landing = Landing.open(root)
    _warm()
    line.send("begun")
    closings.close(landing, start_s, version)


def barrier(parties: int) -> Any:
    return _context.Barrier(parties)


def killed_everywhere(work: Callable[..., Any], *given: Any) -> int:
    """Kill a piece of work before and after each of its touches of the disk, the n-th time with work(n, ..).

    Returns how many died; the next one has survived.
    """
    with children((_mother, work, *given)) as (child,):
        return int(child.hear())


def _mother(line: Any, work: Callable[..., Any], *given: Any) -> None:
    _quick()
    _warm()
    for last in range(1, 1000):
        if not (pid := os.fork()):
            _arm(last)
            work(last, *given)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            line.send(last - 1 if status == 0 else "it has failed")
            return


def _arm(last: int) -> None:
    """Die once the disk has been touched that many times: just before a touch, or just after it."""
    touches = 0

    def touched() -> None:
        nonlocal touches
        touches += 1
        if touches == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def fatal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            touched()
            answer = real(*args, **more)
            touched()
            return answer

        return call

    for name in _DISK:
        setattr(os, name, fatal(getattr(os, name)))
