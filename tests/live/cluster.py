"""A private PostgreSQL cluster that may be treated badly: killed, split, set back, deprived of its disk."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psycopg

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "wal_keep_size": "64MB",
    "min_wal_size": "4MB",
    "log_min_error_statement": "panic",  # a failed statement may quote a row
    "log_statement": "none",
    "logging_collector": "off",
    "jit": "off",
}
_INITDB = ("-A", "trust", "-k", "-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=1")
_PATIENCE_S = 60


def _bin() -> Path:
    """Where PostgreSQL's programs are: by pg_config, else the newest of Debian's."""
    with suppress(OSError, subprocess.CalledProcessError):
        found = Path(subprocess.run(["pg_config", "--bindir"], check=True, capture_output=True, text=True).stdout[:-1])
        if (found / "initdb").exists():
            return found
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))


def installed() -> bool:
    """Whether there is a PostgreSQL to treat badly."""
    try:
        return (_bin() / "initdb").exists()
    except ValueError:
        return False


def person() -> dict[str, object]:
    """PostgreSQL refuses to run as root: then it runs as its own user."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


def hand_over(path: Path) -> None:
    """Give a folder to whom PostgreSQL runs as."""
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def _run(program: str, *arguments: object) -> None:
    command = [str(_bin() / program), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **person())
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr}")


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def _free_port() -> int:
    """A port below those that the kernel hands out, so that no client takes it while the server restarts."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


def dsn_of(port: int) -> str:
    """How a client reaches whatever listens on a port of this machine."""
    return f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"


class Cluster:
    """One cluster: its data, its port, its postmaster while it runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.log = root / "server.log"  # outside the data: a restore does not take it back
        self.port = _free_port()
        self._postmaster: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return dsn_of(self.port)

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is None

    def start(self) -> Self:
        """Start, by crash recovery where it was killed, and wait until it takes connections."""
        with self.log.open("ab") as log:
            settings = [f"-c{name}={value}" for name, value in (_SETTINGS | {"port": str(self.port)}).items()]
            command = [str(_bin() / "postgres"), "-D", str(self.data), *settings]
            self._postmaster = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **person())
        end = time.monotonic() + _PATIENCE_S
        while self.running and time.monotonic() < end:
            with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, connect_timeout=2):
                return self
            time.sleep(0.02)
        raise RuntimeError(f"cluster did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        """An orderly end: checkpoint, no crash recovery."""
        if self.running:
            self._postmaster.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._postmaster.wait(_PATIENCE_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for the postmaster and each of its processes; nothing of it is left afterwards.

        The postmaster's children are leaders of sessions of their own, so no signal to a group reaches them.
        """
        if self._postmaster is None:
            return
        pid = self._postmaster.pid
        if self._postmaster.poll() is None:
            self._postmaster.send_signal(signal.SIGSTOP)  # bears no more children
        children = [child for child in _children(pid) if child != pid]
        self._postmaster.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._postmaster.wait()
        while any(map(_alive, children)):
            time.sleep(0.002)
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._postmaster = None

    def processes(self) -> list[int]:
        """The postmaster and its children."""
        return [self._postmaster.pid, *_children(self._postmaster.pid)] if self.running else []

    def execute(self, query: str, parameters: tuple[object, ...] = ()) -> list[tuple]:
        """One statement in a transaction of its own."""
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def dump(self, table: str) -> bytes:
        """A table as COPY writes it."""
        query = f"COPY {table} TO STDOUT"
        with psycopg.connect(self.dsn) as connection, connection.cursor().copy(query) as copy:
            return b"".join(map(bytes, copy))

    def backup(self, target: Path, *options: object, port: int | None = None) -> Path:
        """A base backup while the cluster works; by another port where a proxy stands before it."""
        source = ("-h", "127.0.0.1", "-p", port or self.port, "-U", "postgres")
        _run("pg_basebackup", "-D", target, *source, "-X", "stream", "-c", "fast", "--no-sync", *options)
        return target

    def restore(self, backup: Path) -> None:
        """Throw the data away and go on from a backup."""
        self.kill()
        self.data.rename(backup.with_suffix(".lost"))
        backup.rename(self.data)
        self.start()

    def promote(self) -> None:
        """A standby becomes a primary, whatever the old one thinks."""
        self.execute("SELECT pg_promote(true, 60)")
        while self.execute("SELECT pg_is_in_recovery()")[0][0]:
            time.sleep(0.01)


def _stat(pid: int) -> tuple[str, int]:
    """State and parent of a process; Z where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "Z", 0
    return fields[0], int(fields[1])


def _children(parent: int) -> list[int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[1] == parent]


def _alive(pid: int) -> bool:
    return _stat(pid)[0] not in "ZX"


class Clusters:
    """Private clusters, copied from one template; all end with the block."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._all: list[Cluster] = []
        self._template = root / "template"
        _run("initdb", "-D", self._template, "-U", "postgres", *_INITDB)
        self._slim()

    def _slim(self) -> None:
        """Two of the three databases go: a third of the files to copy, to back up and to sync in crash recovery."""
        mould = Cluster(self.root)
        mould.data = self._template
        try:
            mould.start()
            mould.execute("UPDATE pg_database SET datistemplate = false")
            for database in ("template0", "template1"):
                with psycopg.connect(mould.dsn, autocommit=True) as connection:
                    connection.execute(f"DROP DATABASE {database}")
        finally:
            mould.stop()

    def new(self, name: str, *, empty: bool = False) -> Cluster:
        """A cluster not yet started; an empty one waits for its data (a standby, a mount)."""
        folder = self.root / f"{len(self._all):03d}-{name}"
        folder.mkdir(mode=0o700)
        hand_over(folder)
        if not empty:
            _copy(self._template, folder / "data")
        self._all.append(Cluster(folder))
        return self._all[-1]

    def fill(self, cluster: Cluster) -> None:
        """The template's files into a data folder that exists already, such as a mount."""
        subprocess.run(["cp", "-a", f"{self._template}/.", str(cluster.data)], check=True)

    def standby(self, primary: Cluster, link: int) -> Cluster:
        """A standby that streams from the primary by way of a proxy's port."""
        twin = self.new("standby", empty=True)
        primary.backup(twin.data, "-R", port=link)
        return twin.start()

    def end(self) -> None:
        for cluster in self._all:
            cluster.kill()

    def logs(self) -> list[Path]:
        """What each of them has logged."""
        return [cluster.log for cluster in self._all if cluster.log.exists()]


@contextmanager
def clusters() -> Iterator[Clusters]:
    """Room for private clusters."""
    root = Path(tempfile.mkdtemp(prefix="murmurate-live-"))
    root.chmod(0o755)
    hand_over(root)
    room = None
    try:
        room = Clusters(root)
        yield room
    finally:
        if room is not None:
            room.end()
        shutil.rmtree(root, ignore_errors=True)
