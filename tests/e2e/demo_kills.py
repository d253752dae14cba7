"""End demos by signals at random moments, and look for what is left: python -m tests.e2e.demo_kills --moments 10.

What is looked for: processes that have its mark in their environment or its folder on their command line, files,
shared memory, open ports.
"""

from __future__ import annotations

import argparse
import os
import pwd
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg

from tests.support.databases import SERVER
from tests.support.ports import free_port
from tests.support.waiting import wait_until

SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
MARK = "MURMURATE_DEMO_MARK"
PAGE_IS_OPEN = b"Ctrl-C"  # the last line that is printed then
MAX_END_S = 300.0  # on a busy machine


class KilledDemo(NamedTuple):
    """How a demo was ended, and what was left of it."""

    signal: str
    after: str
    status: int
    ended_in_s: float
    left: list[str]


PARTS = {  # of a demo: how their command lines are told from others
    "host": rb"demo\.demo_host\0$",
    "supervisor": rb"service\.toml\0$",
    "private": rb"--only\0private\0",
    "worker": rb"--only\0worker\0",
    "public": rb"--only\0public\0",
    "postmaster": rb"postgres\0-D\0",
}


class RunningDemo:
    """A demo as a user starts it, with its own temporary folder, marked so that everything of it is found."""

    def __init__(self, folder: Path, *options: str, prefix: Sequence[str] = ()) -> None:
        self.folder, self.mark = folder, os.urandom(8).hex()
        self.port = free_port()
        self._shared_memory = _unused_shared_memory()
        environment = os.environ | {MARK: self.mark, "TMPDIR": str(folder)}
        command = [*prefix, "env", "--default-signal=INT,HUP", sys.executable, "-m", "murmurate"]  # jobs ignore them
        command += ["demo", "--homes", "40", "--port", str(self.port), *options]
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        with (folder.parent / f"{folder.name}.out").open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdout=output, start_new_session=True, **streams)

    @property
    def output(self) -> bytes:
        return (self.folder.parent / f"{self.folder.name}.out").read_bytes()

    def marked_processes(self) -> list[str]:
        """What runs of it: its processes hand their environment down. PostgreSQL's has none, but its folder."""
        mine = filter(self._is_mine, Path("/proc").glob("[0-9]*"))
        return [f"process {each.name}: {_read_if_allowed(each / 'cmdline')[-60:]!r}" for each in mine]

    def find_part(self, part: str) -> int | None:
        """The number of the process of a part, if it runs."""
        found = (
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if re.search(PARTS[part], _read_if_allowed(process / "cmdline")) and self._is_mine(process)
        )
        return next(found, None)

    def _is_mine(self, process: Path) -> bool:
        traces = b"".join(_read_if_allowed(process / name) for name in ("environ", "cmdline"))
        return self.mark.encode() in traces or os.fsencode(self.folder) in traces

    def find_left(self, *, wait: bool) -> list[str]:
        """List what is left. After SIGKILL, and where it was too early to be handled, its processes end a bit later."""
        if wait:
            wait_until(lambda: not self.marked_processes(), MAX_END_S, pause_s=0.1)
        left = self.marked_processes()
        left += [f"file {path}" for path in sorted(self.folder.rglob("*"))[:5]]
        left += [f"shared memory {number}" for number in _unused_shared_memory() - self._shared_memory]
        for port in (self.port, self.port + 1):
            with socket.socket() as probe:
                left += [f"port {port}"] if probe.connect_ex(("127.0.0.1", port)) == 0 else []
        return left


def _read_if_allowed(path: Path) -> bytes:
    """A process may have ended; the environment of one that runs under another account may be secret even to root."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def demo_databases() -> set[str]:
    """Databases of demos on the server of the tests."""
    with psycopg.connect(f"{SERVER}/postgres") as connection:
        query = "SELECT datname FROM pg_database WHERE datname LIKE 'murmurate_demo%'"
        return {name for (name,) in connection.execute(query)}


def _unused_shared_memory() -> set[str]:
    """Segments of System V shared memory of the account that runs a demo's server, which no process uses."""
    account = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    lines = map(str.split, Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:])
    return {fields[1] for fields in lines if fields[7] == str(account) and fields[6] == "0"}


@contextmanager
def running_demo(*options: str, prefix: Sequence[str] = ()) -> Iterator[RunningDemo]:
    """A demo in a temporary folder that any account may use: as root, PostgreSQL runs under another one."""
    with tempfile.TemporaryDirectory(prefix="demo-") as scratch:
        folder = Path(scratch) / "tmp"
        folder.mkdir()
        folder.chmod(0o777)
        Path(scratch).chmod(0o755)
        demo = RunningDemo(folder, *options, prefix=prefix)
        try:
            yield demo
        finally:
            demo.process.terminate()
            demo.process.wait(MAX_END_S)


def kill_demo(
    number: signal.Signals,
    after_s: float,
    *options: str,
    twice: bool = False,
    when_open: Callable[[str], None] = lambda _: None,
) -> KilledDemo:
    """Start a demo, send it a signal after this time, or a second one as well, and look for what is left.

    It gets the signal earlier if its page is open; `when_open` is called before that, with what the demo has printed.
    """
    with running_demo(*options) as demo:
        begun_s = time.monotonic()
        wait_until(lambda: PAGE_IS_OPEN in demo.output or demo.process.poll() is not None, after_s, pause_s=0.02)
        is_open = PAGE_IS_OPEN in demo.output and demo.process.poll() is None
        if is_open:
            when_open(demo.output.decode())
            time.sleep(random.uniform(0, 2))  # noqa: S311
        after = f"{time.monotonic() - begun_s:.1f} s{', page open' * is_open}"
        sent_s = time.monotonic()
        demo.process.send_signal(number)
        if twice:
            time.sleep(random.uniform(0, 0.5))  # noqa: S311
            demo.process.send_signal(number)
        status = demo.process.wait(MAX_END_S)
        return KilledDemo(number.name, after, status, time.monotonic() - sent_s, demo.find_left(wait=status < 0))


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201  this program prints figures


def main() -> None:
    parser = argparse.ArgumentParser(description="End demos by signals at random moments, and look for what is left.")
    parser.add_argument("--moments", type=int, default=10, help="For each signal.")
    parser.add_argument("--jobs", type=int, default=1, help="Demos at once.")
    asked = parser.parse_args()
    begun_s = time.monotonic()
    first = kill_demo(signal.SIGKILL, float("inf"))
    start_s = time.monotonic() - begun_s
    _print(f"page open, killed by SIGKILL, all ended within {start_s:.0f} s; left: {first.left or 'nothing'}")
    kills = [(number, random.uniform(0, start_s)) for number in SIGNALS for _ in range(asked.moments)]  # noqa: S311
    with ThreadPoolExecutor(asked.jobs) as pool:
        found = [first]
        for killed in pool.map(lambda kill: kill_demo(*kill, twice=random.random() < 0.5 or kill[1] < 5), kills):  # noqa: S311
            moment = f"{killed.signal:8} after {killed.after:18}"
            end = f"status {killed.status:4}, ended in {killed.ended_in_s:5.1f} s"
            _print(f"{moment} {end}, left: {killed.left or 'nothing'}")
            found.append(killed)
    bad = sum(bool(killed.left) for killed in found)
    _print(f"{len(found)} demos ended by signals at random moments: {bad} left something behind")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
