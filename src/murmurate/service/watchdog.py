"""How a process reports that it makes progress, and what the supervisor reports to the others.

The supervisor gives a process a pipe, and the process writes into it: the worker at each step, a server every second
from its event loop. The number in a message is how long the next step may take [s]. A process that is silent for longer
is killed and started again. Under systemd the same call notifies `WatchdogSec`. In a container it sets the time of a
file, which a liveness probe compares with the clock.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

PARENT_VARIABLE = "MURMURATE_SUPERVISOR_PID"  # of the process that has started this one, and without which it ends
PIPE_VARIABLE = "MURMURATE_WATCHDOG_FD"  # the pipe of this process
REPORT_VARIABLE = "MURMURATE_SUPERVISOR_REPORT"  # the file in which the supervisor counts restarts
_SYSTEMD_VARIABLE = "NOTIFY_SOCKET"
_FILE_VARIABLE = "MURMURATE_PROGRESS_FILE"  # its time is until when the present step may last


def is_supervised() -> bool:
    """Whether `murmurate serve` has started this process, and checks for all what is checked once."""
    return PARENT_VARIABLE in os.environ


def report_progress(next_step_s: float = 0.0) -> None:
    """Report progress to the watchdog; `next_step_s` extends its deadline [s]."""
    if pipe := os.environ.get(PIPE_VARIABLE):
        with suppress(OSError):  # full: the supervisor has enough to read
            os.write(int(pipe), f"{next_step_s:.0f}\n".encode())
    if address := os.environ.get(_SYSTEMD_VARIABLE):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect("\0" + address[1:] if address.startswith("@") else address)
            notify.send(b"WATCHDOG=1")
    if path := os.environ.get(_FILE_VARIABLE):
        with suppress(OSError):
            Path(path).touch()
            os.utime(path, (time.time() + next_step_s,) * 2)


def read_progress(pipe: int) -> float | None:
    """Return how long the step may take that the last message since the last call began [s]; None if there is none."""
    try:
        data = os.read(pipe, 65_536)
    except BlockingIOError:
        return None
    steps_s = [float(line) for line in data.split() if line.isdigit()]
    return steps_s[-1] if steps_s else None


def read_part_restarts() -> dict[str, int]:
    """Return how often the supervisor has restarted each process; nothing where there is no supervisor."""
    path = os.environ.get(REPORT_VARIABLE)
    if not path:
        return {}
    try:
        return {str(name): int(count) for name, count in json.loads(Path(path).read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
