"""Processes that append, close and purge, and that a test can kill at any disk operation."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from murmurate.service.landing import append as appending
from murmurate.service.landing import interval_manifest
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.readings_file import encode_readings
from murmurate.types import Readings

_DISK = ("open", "mkdir", "fsync", "link", "replace", "rename", "unlink", "rmdir")
_TIMEOUT_S = 300

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["__main__", "pandas", "murmurate.commands.aggregate"])


class Child:
    """A process that carries out the commands that a test sends through a pipe."""

    def __init__(self, work: Callable[..., Any], *given: Any) -> None:
        self._pipe, far = _context.Pipe()
        self.process = _context.Process(target=work, args=(far, *given), daemon=True)
        self.process.start()
        far.close()

    def send(self, *order: Any) -> None:
        self._pipe.send(order)

    def receive(self) -> Any:
        assert self._pipe.poll(_TIMEOUT_S), "no answer from a process"
        return self._pipe.recv()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()
        self.process.close()


@contextmanager
def children(*works: tuple[Any, ...]) -> Iterator[list[Child]]:
    started: list[Child] = []
    try:
        started.extend(Child(*work) for work in works)
        yield started
    finally:
        for child in started:
            child.kill()


def _quick() -> None:
    """Skip fsync. Without a power cut nothing changes, and more processes run at the same time."""
    os.fsync = lambda fd: None  # noqa: ARG005


def _warm() -> None:
    """Do the slow first call before the test begins: pyarrow looks for pandas."""
    encode_readings(0, Readings(meter=np.zeros(1, np.int64), energy_wh=np.zeros(1, np.int64)), 1)


def keep_appending(pipe: Any, root: Path, shard_meters: int) -> None:
    """For each (interval, meters, quick), append each meter in two shards. Send back the meters that surely count."""
    landing, real = Landing.open(root), os.fsync
    _warm()
    while True:
        start_s, meters, quick = pipe.recv()
        os.fsync = real
        if quick:
            _quick()
        sure = [
            meter
            for meter in meters
            if appending.append_readings(
                landing, start_s, Readings.from_columns(meter=[meter, meter + shard_meters], energy_wh=[7, 8])
            )
        ]
        pipe.send(sure)


def keep_closing(pipe: Any, root: Path, together: Any) -> None:
    """For each (interval, version), wait for the other processes and close it. Send back the manifest."""
    landing = Landing.open(root)
    while True:
        start_s, version = pipe.recv()
        together.wait(_TIMEOUT_S)
        pipe.send(interval_manifest.close_interval(landing, start_s, version).to_json())


def barrier(parties: int) -> Any:
    return _context.Barrier(parties)


def killed_everywhere(work: Callable[..., Any], *given: Any) -> int:
    """Run work(n, ..) for n = 1, 2, .. and kill it at its n-th stop: before and after each disk operation.

    Return the number of runs that were killed. The next run finished.
    """
    with children((_fork_children, work, *given)) as (child,):
        return int(child.receive())


def _fork_children(pipe: Any, work: Callable[..., Any], *given: Any) -> None:
    _quick()
    _warm()
    for last in range(1, 1000):
        if not (pid := os.fork()):
            _arm(last)
            work(last, *given)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            pipe.send(last - 1 if status == 0 else "it has failed")
            return


def _arm(last: int) -> None:
    """Kill this process at its stop number `last`. There is a stop before and after each disk operation."""
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


def keep_appending_and_merging(line: Any, root: Path) -> None:
    """Told (interval, meters): append the meters one by one while a thread merges; say which are sure to count."""
    landing = Landing.open(root)
    _warm()
    _quick()
    appending.MIN_PARTS_TO_MERGE = 1
    while True:
        start_s, meters = line.recv()
        deadline_s = start_s + landing.interval_s
        appender = appending.MergingAppender(landing, partial(float, deadline_s), 0, in_background=False)
        over = threading.Event()
        merging = threading.Thread(target=_keep_merging, args=(appender, over))
        merging.start()
        sure = [
            meter for meter in meters if appender.append(start_s, Readings.from_columns(meter=[meter], energy_wh=[7]))
        ]
        line.send(sure)
        over.set()
        merging.join()


def _keep_merging(appender: Any, over: threading.Event) -> None:
    while not over.is_set():
        appender.merge_due_runs()
