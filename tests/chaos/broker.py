"""An MQTT broker of its own, which can be killed: what it has acknowledged is on disk at most a second later."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.ports import free_port

_START_TIMEOUT_S = 60.0


class Broker:
    """One mosquitto that keeps sessions and messages in a folder. `autosave`: with each change, not only by `save`."""

    def __init__(self, folder: Path, *, autosave: bool = True, more_settings: Sequence[str] = ()) -> None:
        self.port = free_port()
        self.epoch = 0  # grows with each kill and each start: what was published in another epoch may be lost
        self._settings = folder / "mosquitto.conf"
        self._log = folder / "mosquitto.log"
        folder.mkdir()
        lines = (
            f"listener {self.port} 127.0.0.1",
            *(more_settings or ("allow_anonymous true",)),
            "persistence true",
            f"persistence_location {folder}/",
            *(("autosave_on_changes true", "autosave_interval 1") if autosave else ()),
            "max_queued_messages 0",
            "set_tcp_nodelay true",
            "user root",
        )
        self._settings.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        with self._log.open("ab") as log:
            command = ["mosquitto", "-c", str(self._settings)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
            except OSError:
                if time.monotonic() > end:
                    raise RuntimeError(f"the broker does not start: {self._log.read_text()[-1000:]}") from None
                time.sleep(0.02)
            else:
                self.epoch += 1  # what is published from now on is not lost
                return

    def save(self) -> None:
        """Have it write its sessions to disk now."""
        self.send_signal(signal.SIGUSR1)

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Have it save and end."""
        self.send_signal(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(_START_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        self.epoch += 1
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
