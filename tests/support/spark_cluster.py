"""A real Spark cluster on loopback, from the pyspark wheel alone: one master and workers that a test can kill.

The module does not need pytest: ``with cluster(folder) as it:``, then a driver on `it.url` under `it.environment`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from tests.support.ports import free_port
from tests.support.waiting import wait_until

TIMEOUT_S = 300.0
_MARK = "MURMURATE_CLUSTER"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # lives are short: up in less time, with less memory
_DEFAULTS = {
    "spark.driver.extraJavaOptions": _QUICK,
    "spark.executor.extraJavaOptions": _QUICK,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_ADDRESS = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
_TASK = re.compile(r"(Running|Finished) task (\d+)\.(\d+) in stage (\d+)\.\d+")


def installed() -> bool:
    """Whether there is a Spark to start, and a /proc to find its processes by."""
    return find_spec("pyspark") is not None and shutil.which("java") is not None and Path("/proc/self/environ").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A task in the log of an executor; `attempt` is 0 unless it was lost before."""

    stage: int
    task: int
    attempt: int
    finished: bool


@dataclass(slots=True, kw_only=True)
class Daemon:
    """A master or a worker, and every process that came of it: they all bear its mark in their environment."""

    name: str
    folder: Path
    mark: str
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def has_logged(self, text: str) -> bool:
        return text in self.log

    def processes(self, of: str = "") -> list[int]:
        """The processes that bear the mark, those alone whose command line has `of` in it."""
        return [pid for pid in _marked(self.mark) if of in _command_line(pid)]

    def executors(self) -> list[int]:
        return self.processes("CoarseGrainedExecutorBackend")

    def attempts(self, application: str) -> list[Attempt]:
        """The tasks that its executors logged for an application."""
        logs = sorted(self.folder.glob(f"work/{application}/*/stderr"))
        found = (_TASK.findall(log.read_text(errors="replace")) for log in logs)
        return [
            Attempt(stage=int(stage), task=int(task), attempt=int(attempt), finished=word == "Finished")
            for lines in found
            for word, task, attempt, stage in lines
        ]

    def kill(self) -> None:
        """SIGKILL for it, its executors and their Pythons, by their ids; nothing of it is left afterwards."""

        def has_ended() -> bool:
            for pid in _marked(self.mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.poll()
            return not _marked(self.mark)

        if not wait_until(has_ended, TIMEOUT_S, pause_s=0.01):
            raise TimeoutError(f"{self.name} does not die: {_marked(self.mark)}")
        self.process.wait(TIMEOUT_S)


@dataclass(slots=True, kw_only=True)
class Cluster:
    """A master, its workers, and what a driver must find in its environment."""

    folder: Path
    cores: int
    memory: str
    settings: Mapping[str, str]
    master: Daemon | None = None
    url: str = ""
    workers: list[Daemon] = field(default_factory=list)
    started: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """Of every process of this cluster, and for its drivers."""
        ours = {"SPARK_HOME": str(_home()), "SPARK_CONF_DIR": str(self.folder / "conf"), "SPARK_LOCAL_IP": "127.0.0.1"}
        ours |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        ours["SPARK_LOCAL_DIRS"] = str(self.folder / "local")  # a killed driver does not tidy up
        passed_on = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return passed_on | ours

    def start(self) -> None:
        """Start the master, and learn where it is."""
        (self.folder / "conf").mkdir(parents=True)
        lines = (f"{name} {value}\n" for name, value in (_DEFAULTS | dict(self.settings)).items())
        (self.folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
        self.master = master = self._daemon("master", "org.apache.spark.deploy.master.Master")
        self._wait(lambda: _ADDRESS.search(master.log) is not None, master)
        if (address := _ADDRESS.search(master.log)) is not None:
            self.url = address[1]

    def add_workers(self, count: int = 1) -> None:
        """Start more workers, and wait until the master knows each of them."""
        arguments = ("--cores", self.cores, "--memory", self.memory, self.url)
        for number in range(self.started, self.started + count):
            worker = self._daemon(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *arguments)
            self.workers.append(worker)
        self.started += count
        for worker in self.workers[-count:]:
            self._wait(partial(worker.has_logged, "Successfully registered with master"), worker)

    def applications(self) -> set[str]:
        """Those that have had an executor here."""
        return {path.name for worker in self.workers for path in worker.folder.glob("work/app-*")}

    def attempts(self, application: str) -> list[Attempt]:
        return [attempt for worker in self.workers for attempt in worker.attempts(application)]

    def stop(self) -> None:
        """End what this cluster has started, and nothing else."""
        with ExitStack() as everyone:
            for daemon in (*([self.master] if self.master else []), *self.workers):
                everyone.callback(daemon.kill)

    def _daemon(self, name: str, what: str, *arguments: object) -> Daemon:
        folder, mark = self.folder / name, f"{name}-{os.urandom(8).hex()}"
        folder.mkdir()
        command = [_home() / "bin" / "spark-class", what, "--host", "127.0.0.1", "--port", free_port()]
        command += ["--webui-port", 0, *arguments]
        own = {_MARK: mark, "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local")}
        own |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Dspark.master.rest.enabled=false"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=self.environment | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        return Daemon(name=name, folder=folder, mark=mark, process=process)

    @staticmethod
    def _wait(true: Callable[[], bool], daemon: Daemon) -> None:
        wait_until(lambda: true() or daemon.process.poll() is not None, TIMEOUT_S)
        if not true():
            raise RuntimeError(f"{daemon.name} did not start: {daemon.log[-2000:]}")


@contextmanager
def cluster(
    folder: Path,
    *,
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster in an empty folder: logs, work and settings lie in it. `settings` are defaults of each driver."""
    it = Cluster(folder=folder, cores=cores, memory=memory, settings=settings or {})
    try:
        it.start()
        it.add_workers(workers)
        yield it
    finally:
        it.stop()


@contextmanager
def driver(it: Cluster, **settings: str) -> Iterator[Any]:
    """A session on the cluster from this process, as another program would make it; its JVM ends with it."""
    from pyspark import SparkContext  # noqa: PLC0415  an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415

    with patch.dict(os.environ, it.environment):
        builder = SparkSession.builder.master(it.url).appName("another program's job")
        spark = builder.config(map=settings).getOrCreate()
    gateway = SparkContext._gateway
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        with suppress(Exception):  # whatever state it is in, its JVM goes
            spark.stop()
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        gateway.proc.stdin.close()  # which ends it
        try:
            gateway.proc.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait(TIMEOUT_S)


@cache
def shared(at_the_end: Callable[[Callable[[], None]], object]) -> tuple[Cluster, Any]:
    """One cluster and one session for this process; `at_the_end` registers their end.

    The session has a core of each worker, and begins a job when it has both. There is room for another driver, which
    gets one core, and for what the session wants instead of a worker that was lost.
    """
    stack = ExitStack()
    at_the_end(stack.close)
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True)))
    ready = {"spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.cores.max": "1"}
    it = stack.enter_context(cluster(folder / "cluster", cores=3, memory="2g", settings=ready))
    return it, stack.enter_context(driver(it, **{"spark.cores.max": "2"}))


def _home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).parent


def _marked(mark: str) -> list[int]:
    """Live processes with this mark in their environment: children inherit it, also those that no process waits for."""
    wanted, found = f"{_MARK}={mark}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
