"""A private MQTT broker, which can be killed: what it has acknowledged is on disk at most a second later."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.ports import free_port
from tests.support.waiting import wait_until

_START_TIMEOUT_S = 60.0


def start_client(port: int = 1883, **options: Any) -> Client:
    """A client of a broker on this machine, with its thread."""
    client = Client(CallbackAPIVersion.VERSION2, **options)
    client.connect("127.0.0.1", port)
    client.loop_start()
    return client


def stop_client(client: Client) -> None:
    client.disconnect()
    client.loop_stop()


def end_session(name: str) -> None:
    """Remove the session of a client from the broker of the tests, and the messages that the broker keeps for it."""
    client = start_client(client_id=name, clean_session=True)
    wait_until(client.is_connected, pause_s=0.01)
    stop_client(client)


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
        if not wait_until(self._accepts, _START_TIMEOUT_S, pause_s=0.02):
            raise RuntimeError(f"the broker does not start: {self._log.read_text()[-1000:]}")
        self.epoch += 1  # what is published from now on is not lost

    def _accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True

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
