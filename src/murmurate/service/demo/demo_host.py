"""The command's side of the process that owns what a demo would leave behind (`host_process`)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from murmurate.errors import MurmurateError
from murmurate.service.demo.embedded_postgres import end_server
from murmurate.service.demo.host_process import FOLDER_PREFIX, delete_demo

HOST_MODULE = "murmurate.service.demo.host_process"
_LOOK_EVERY_S = 0.5


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
            if self._answers is not None and select.select([self._answers], [], [], 0 if is_gone else _LOOK_EVERY_S)[0]:
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
