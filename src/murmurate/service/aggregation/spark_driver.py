"""Spark for a running service: another process holds the session, and this one sums where Spark fails.

    python -m murmurate.service.aggregation.spark_driver <master>

is that process. It reads pickled tasks from standard input and writes tallies to standard output. It knows no database
and no key, and ends with its input. Where a session hangs or Java has ended, the process is killed and another one
is started. None of it can hold up the worker, whose prices must be in time.

Tallies are sums of few homes, and as confidential as readings: they go from the cluster to the driver, and no further.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from queue import Empty, Queue
from typing import Any, BinaryIO, cast

from murmurate.aggregation import Tally
from murmurate.errors import MurmurateError
from murmurate.service.aggregation.job import ShardTask, TaskRunner
from murmurate.service.aggregation.spark import (
    check_session,
    decode_tally,
    encode_tally,
    slice_count,
    spark_session,
    spark_task_runner,
)

logger = logging.getLogger(__name__)

STALL_S = 60.0  # without a running task, a job is given up: no machine is left, or none is free
MIN_LIMIT_S = 2.0  # with less time the tasks are run here at once
MAX_TASKS = 1024  # at once: each opens every file of the folder of an interval
_PROBE_S = 5.0  # for a master to answer
_LOOK_EVERY_S = 1.0
_HEAD = struct.Struct("<cQ")  # kind of a message, bytes that follow
_READY, _RUNNING, _TALLY, _DONE, _REFUSED, _FAILED = b"r", b"n", b"t", b"d", b"x", b"f"
_Message = tuple[bytes, bytes]


class SparkFailedError(Exception):
    """Spark did not sum, for a reason that quotes no reading."""


class SparkEngine:
    """Sums on a Spark cluster where it can, otherwise in this process. The demand is the same."""

    def __init__(self, master: str, stall_s: float = STALL_S) -> None:
        self._master, self.stall_s = master, stall_s
        self._driver: _Driver | None = None
        self._has_failed = False

    def task_runner(
        self, run_here: TaskRunner, *, limit_s: float, on_progress: Callable[[], object]
    ) -> tuple[TaskRunner, int]:
        """Return what runs tasks, and how many can be run at once. Without a result in `limit_s`, `run_here` runs them.

        The first session is waited for. After a failure the next one is opened while this process sums, for a later
        interval: a cluster that is gone must not delay each price. `on_progress` is called each second.
        """
        if limit_s < MIN_LIMIT_S:
            return run_here, 1
        end = time.monotonic() + limit_s
        try:
            slices = self._open_session(end, on_progress)
        except SparkFailedError as error:
            self._give_up(error)
            return run_here, 1

        def run(tasks: Sequence[ShardTask]) -> Iterable[tuple[int, Tally]]:
            try:
                tallies = self._run_tasks(tasks, end, on_progress)
            except SparkFailedError as error:
                self._give_up(error)
                return run_here(tasks)
            except BaseException:  # of `on_progress`: the answer would be taken for that of the next job
                self.close()
                raise
            self._has_failed = False
            return run_here(tasks) if tallies is None else tallies

        return run, slices

    def close(self) -> None:
        """End the session, if there is one."""
        if self._driver is not None:
            self._driver.kill()
        self._driver = None

    def _open_session(self, end: float, on_progress: Callable[[], object]) -> int:
        """Return into how many tasks this cluster divides a job."""
        if self._driver is None:
            self._driver = _Driver(self._master)
        waited_until = -inf if self._has_failed else end  # Java alone was seen to take 54 s on a busy machine
        while self._driver.slices is None:
            on_progress()
            kind, data = self._driver.receive(min(_LOOK_EVERY_S, max(0.0, waited_until - time.monotonic())))
            if kind == _READY:
                self._driver.slices = int(data)
            elif kind == _FAILED:
                raise SparkFailedError(data.decode())
            elif time.monotonic() >= waited_until:
                raise SparkFailedError("no session yet")
        return self._driver.slices

    def _run_tasks(
        self, tasks: Sequence[ShardTask], end: float, on_progress: Callable[[], object]
    ) -> list[tuple[int, Tally]] | None:
        """Return the tallies of all tasks; None where a task refuses its files: this process will say why."""
        driver = cast(_Driver, self._driver)
        driver.send(pickle.dumps(list(tasks)))
        tallies, ran_s = list[tuple[int, Tally]](), time.monotonic()
        while True:
            on_progress()
            kind, data = driver.receive(_LOOK_EVERY_S)
            now = time.monotonic()
            if kind == _TALLY:
                tallies.append(decode_tally(data))
            elif kind == _DONE:
                return tallies
            elif kind == _REFUSED:
                return None
            elif kind == _FAILED:
                raise SparkFailedError(data.decode())
            elif kind == _RUNNING and int(data):
                ran_s = now
            if now >= end:
                raise SparkFailedError("not done in time")
            if kind != _TALLY and now - ran_s >= self.stall_s:
                raise SparkFailedError(f"no task has run for {self.stall_s:g} s")

    def _give_up(self, error: SparkFailedError) -> None:
        """Log the failure. Begin another session for later, unless one is being opened."""
        logger.warning("Spark failed", extra={"reason": str(error), "summed": "in the worker"})
        self._has_failed = True
        if self._driver is not None and (self._driver.slices is not None or self._driver.has_ended()):
            self.close()
            self._driver = _Driver(self._master)


class _Driver:
    """The process that holds the session. It gets no connection string or password."""

    def __init__(self, master: str) -> None:
        self.slices: int | None = None  # None: its session is not open yet
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "murmurate.service.aggregation.spark_driver", master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # a trace of Spark might quote a reading
            env={name: value for name, value in os.environ.items() if not name.startswith("MURMURATE_")},
        )
        self._requests = cast(BinaryIO, self._process.stdin)
        self._messages: Queue[_Message] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with cast(BinaryIO, self._process.stdout) as stream:
            while len(head := stream.read(_HEAD.size)) == _HEAD.size:
                kind, size = _HEAD.unpack(head)
                self._messages.put((kind, stream.read(size)))
        self._messages.put((_FAILED, b"its process has ended"))

    def send(self, request: bytes) -> None:
        try:
            self._requests.write(struct.pack("<Q", len(request)) + request)
            self._requests.flush()
        except OSError:
            raise SparkFailedError("its process has ended") from None

    def receive(self, timeout_s: float) -> _Message:
        """Return the next message; one without a kind where there is none in time."""
        try:
            return self._messages.get(timeout=timeout_s) if timeout_s > 0 else self._messages.get_nowait()
        except Empty:
            return b"", b""

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it. Java ends with it, because its input ends."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        with suppress(OSError):
            self._requests.close()


def serve_tasks(master: str, requests: BinaryIO, replies: BinaryIO) -> None:
    """Open a session and run job after job, until there are no more. This is the whole life of the process."""

    def write(kind: bytes, data: bytes = b"") -> None:
        replies.write(_HEAD.pack(kind, len(data)) + data)
        replies.flush()

    try:
        check_master(master)
        spark = spark_session(master)
        check_session(spark)
    except MurmurateError as error:  # no task has run: it quotes no reading
        write(_FAILED, str(error).encode())
        return
    run = spark_task_runner(spark)
    write(_READY, str(slice_count(spark, max_slices=MAX_TASKS)).encode())
    while len(head := requests.read(8)) == 8:
        tasks = pickle.loads(requests.read(*struct.unpack("<Q", head)))  # noqa: S301  from the worker
        ended: Queue[_Message] = Queue()
        tallies: list[bytes] = []

        def work(tasks: Sequence[ShardTask] = tasks, tallies: list[bytes] = tallies, ended: Any = ended) -> None:
            try:
                tallies += [encode_tally(start_s, tally) for start_s, tally in run(tasks)]
                ended.put((_DONE, b""))
            except MurmurateError as error:
                ended.put((_FAILED, b"a job has failed") if error.field == "Spark" else (_REFUSED, b""))
            except Exception as error:  # noqa: BLE001  its text may quote a reading
                ended.put((_FAILED, type(error).__name__.encode()))

        threading.Thread(target=work, daemon=True).start()
        result: _Message | None = None
        while result is None:
            try:
                result = ended.get(timeout=_LOOK_EVERY_S)
            except Empty:
                write(_RUNNING, str(_running_tasks(spark)).encode())
        for tally in tallies if result[0] == _DONE else ():
            write(_TALLY, tally)
        write(*result)


def check_master(master: str) -> None:
    """Raise MurmurateError where no master of a standalone cluster listens: Spark takes a minute to say so."""
    kind, _, addresses = master.partition("://")
    if kind != "spark":
        return
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host.strip("[]"), int(port)), _PROBE_S):
            return
    raise MurmurateError("Spark master", master, "does not answer")


def _running_tasks(spark: Any) -> int:
    tracker = spark.sparkContext.statusTracker()
    stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
    return sum(int(stage.numActiveTasks) for stage in stages if stage is not None)


if __name__ == "__main__":
    own_output = os.fdopen(os.dup(1), "wb")  # Java inherits standard output, and may write to it
    os.dup2(2, 1)
    try:
        serve_tasks(sys.argv[1], sys.stdin.buffer, own_output)
    finally:
        os._exit(0)  # a thread may wait for Spark; Java ends when its input does
