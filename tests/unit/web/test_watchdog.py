"""A server gives signs of life while its event loop turns: to the supervisor's pipe, and to systemd."""

import asyncio
import os
import socket

from murmurate.service.watchdog import PIPE_VARIABLE, read_progress
from murmurate.service.web import server
from murmurate.service.web.server import feed_watchdog


async def receive_three(receive):
    feeding = asyncio.create_task(feed_watchdog())
    got = [await asyncio.to_thread(receive) for _ in range(3)]
    feeding.cancel()
    return got


def test_systemd_gets_signs_of_life_while_the_loop_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "WATCHDOG_PERIOD_S", 0.01)
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        assert asyncio.run(receive_three(lambda: systemd.recv(100))) == [b"WATCHDOG=1"] * 3


def test_the_supervisor_gets_signs_of_life_while_the_loop_turns(monkeypatch):
    monkeypatch.setattr(server, "WATCHDOG_PERIOD_S", 0.01)
    read_end, write_end = os.pipe()
    monkeypatch.setenv(PIPE_VARIABLE, str(write_end))
    assert asyncio.run(receive_three(lambda: read_progress(read_end))) == [0.0] * 3
    os.close(read_end)
    os.close(write_end)
