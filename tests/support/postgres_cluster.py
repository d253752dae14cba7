"""A private PostgreSQL cluster for fault injection: it can be killed, split, restored and run out of disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psycopg

from tests.support.ports import free_port
from tests.support.waiting import wait_until

_SETTINGS = {
    "fsync": "off",  # processes are killed here, and never the power: the system keeps what they have written
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "wal_keep_size": "64MB",
    "min_wal_size": "4MB",
    "log_min_error_statement": "panic",  # a failed statement may contain a row
    "log_statement": "none",
    "logging_collector": "off",
    "jit": "off",
}
_INITDB = ("-A", "trust", "-k", "-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=1")
_TIMEOUT_S = 300


def programs_folder() -> Path:
    """Return the directory of PostgreSQL's programs: from pg_config, else Debian's newest."""
    with suppress(OSError, subprocess.CalledProcessError):
        shown = subprocess.run(["pg_config", "--bindir"], check=True, capture_output=True, text=True).stdout
        if (Path(shown[:-1]) / "initdb").exists():
            return Path(shown[:-1])
    return max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))


def installed() -> bool:
    """Return whether PostgreSQL's programs are installed."""
    try:
        return (programs_folder() / "initdb").exists()
    except ValueError:
        return False


def postgres_user() -> dict[str, Any]:
    """Return the user arguments of a subprocess. PostgreSQL does not run as root, so root starts it as postgres."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


def give_to_postgres(path: Path) -> None:
    """Make the user that PostgreSQL runs as the owner of a directory."""
    if os.geteuid() == 0:
        shutil.chown(path, "postgres", "postgres")


def _run(program: str, *arguments: object) -> None:
    command = [str(programs_folder() / program), *map(str, arguments)]
    result = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/", **postgres_user())
    if result.returncode:
        raise RuntimeError(f"{program}: {result.stderr}")


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def dsn_of(port: int) -> str:
    """Return the connection string for a port of this machine."""
    return f"host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable gssencmode=disable"


class Cluster:
    """One cluster: its data directory, its port, and its postmaster while it runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.log = root / "server.log"  # outside the data directory: a restore does not change it
        self.port = free_port()
        self.settings: dict[str, str] = {}  # added to those of every cluster
        self._postmaster: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return dsn_of(self.port)

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is None

    def start(self) -> Self:
        """Start, with crash recovery after a kill, and wait until it accepts connections."""
        with self.log.open("ab") as log:
            settings = [
                f"-c{name}={value}" for name, value in (_SETTINGS | self.settings | {"port": str(self.port)}).items()
            ]
            command = [str(programs_folder() / "postgres"), "-D", str(self.data), *settings]
            self._postmaster = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **postgres_user())
        wait_until(lambda: not self.running or self._accepts(), _TIMEOUT_S, pause_s=0.02)
        if not self.running or not self._accepts():
            raise RuntimeError(f"cluster did not start: {self.log.read_text(errors='replace')[-2000:]}")
        return self

    def _accepts(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.dsn, connect_timeout=20):
            return True
        return False

    def stop(self) -> None:
        """Stop with a checkpoint, so that the next start needs no crash recovery."""
        if self._postmaster is not None and self.running:
            self._postmaster.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._postmaster.wait(_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the postmaster and each of its processes, and wait until all have ended.

        The postmaster's children lead their own sessions, so no signal to a group reaches them.
        """
        if self._postmaster is None:
            return
        pid = self._postmaster.pid
        if self._postmaster.poll() is None:
            self._postmaster.send_signal(signal.SIGSTOP)  # starts no more children
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
        """Return the process ids of the postmaster and its children."""
        if self._postmaster is None or not self.running:
            return []
        return [self._postmaster.pid, *_children(self._postmaster.pid)]

    def execute(self, query: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement in its own transaction."""
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def dump(self, table: str) -> bytes:
        """Return a table as COPY writes it."""
        query = f"COPY {table} TO STDOUT"
        with psycopg.connect(self.dsn) as connection, connection.cursor().copy(query) as copy:
            return b"".join(map(bytes, copy))

    def backup(self, target: Path, *options: object, port: int | None = None) -> Path:
        """Take a base backup while the cluster runs; through another port where a proxy is used."""
        source = ("-h", "127.0.0.1", "-p", port or self.port, "-U", "postgres")
        _run("pg_basebackup", "-D", target, *source, "-X", "stream", "-c", "fast", "--no-sync", *options)
        return target

    def restore(self, backup: Path) -> None:
        """Replace the data by a backup."""
        self.kill()
        self.data.rename(backup.with_suffix(".lost"))
        backup.rename(self.data)
        self.start()

    def set_parameter(self, name: str, value: str) -> None:
        """Set a parameter of the server, also where the server is read-only or waits for a standby."""
        options = "-c default_transaction_read_only=off -c synchronous_commit=local"
        with psycopg.connect(self.dsn, autocommit=True, options=options) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            connection.execute("SELECT pg_reload_conf()")

    def wait_for_standby(self, *, is_synchronous: bool) -> None:
        """Wait until a standby has all that was committed before; a synchronous one has each commit from then on."""
        if is_synchronous:
            self.set_parameter("synchronous_standby_names", "*")
        state = "sync_state = 'sync'" if is_synchronous else "state = 'streaming'"
        query = f"SELECT 1 FROM pg_stat_replication WHERE {state}"  # noqa: S608 two states
        followed = wait_until(lambda: self.execute(query))
        position = self.execute("SELECT pg_current_wal_lsn()::text")[0][0]
        replayed = wait_until(lambda: self.execute(f"{query} AND replay_lsn >= %s", (position,)))
        if not followed or not replayed:
            raise RuntimeError("the standby does not follow")

    def promote(self) -> None:
        """Promote a standby, whether or not the old primary still runs."""

        def is_promoted() -> bool:
            with suppress(psycopg.errors.SerializationFailure):  # a query may conflict with what the standby replays
                return not self.execute("SELECT pg_is_in_recovery()")[0][0]
            return False

        self.execute("SELECT pg_promote(false)")  # a query that waits for the promotion could be cancelled
        if not wait_until(is_promoted, pause_s=0.01):
            raise RuntimeError("the standby was not promoted")


def _stat(pid: int) -> tuple[str, int]:
    """Return state and parent of a process; Z where it has ended."""
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
    """Private clusters, copied from one template."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._all: list[Cluster] = []
        self._template = root / "template"
        _run("initdb", "-D", self._template, "-U", "postgres", *_INITDB)
        self._drop_databases()

    def _drop_databases(self) -> None:
        """Drop two of the three databases, so that copies, backups and crash recovery handle a third of the files."""
        template = Cluster(self.root)
        template.data = self._template
        try:
            template.start()
            template.execute("UPDATE pg_database SET datistemplate = false")
            for database in ("template0", "template1"):
                with psycopg.connect(template.dsn, autocommit=True) as connection:
                    connection.execute(f"DROP DATABASE {database}")
        finally:
            template.stop()

    def new(self, name: str, *, empty: bool = False) -> Cluster:
        """Create a cluster without starting it. An empty one has no data yet (for a standby or a mount)."""
        directory = self.root / f"{len(self._all):03d}-{name}"
        directory.mkdir(mode=0o700)
        give_to_postgres(directory)
        if not empty:
            _copy(self._template, directory / "data")
        self._all.append(Cluster(directory))
        return self._all[-1]

    def copy_template(self, cluster: Cluster) -> None:
        """Copy the template into a data directory that exists, such as a mount."""
        subprocess.run(["cp", "-a", f"{self._template}/.", str(cluster.data)], check=True)

    def standby(self, primary: Cluster, link: int) -> Cluster:
        """Start a standby that streams from the primary through a proxy's port."""
        standby = self.new("standby", empty=True)
        primary.backup(standby.data, "-R", port=link)
        return standby.start()

    def kill_all(self) -> None:
        for cluster in self._all:
            cluster.kill()

    def logs(self) -> list[Path]:
        """Return the log file of each cluster."""
        return [cluster.log for cluster in self._all if cluster.log.exists()]


@contextmanager
def clusters() -> Iterator[Clusters]:
    """Provide private clusters during the block."""
    root = Path(tempfile.mkdtemp(prefix="murmurate-fault-injection-"))
    root.chmod(0o755)
    give_to_postgres(root)
    private = None
    try:
        private = Clusters(root)
        yield private
    finally:
        if private is not None:
            private.kill_all()
        shutil.rmtree(root, ignore_errors=True)
