"""A unit with `WatchdogSec` gets signs of life while the event loop turns."""

import asyncio
import socket

import pytest

from murmurate.service.web.systemd_watchdog import feed_watchdog, watchdog_period_s


def test_signs_of_life_come_while_the_loop_turns(tmp_path, monkeypatch):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        assert watchdog_period_s() == pytest.approx(0.01)

        async def receive_three():
            feeding = asyncio.create_task(feed_watchdog())
            got = [await asyncio.to_thread(systemd.recv, 100) for _ in range(3)]
            feeding.cancel()
            return got

        assert asyncio.run(receive_three()) == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize("allowed", ["", "x", None])
def test_without_a_watchdog_nothing_is_sent(allowed, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    if allowed is None:
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_USEC", allowed)
    asyncio.run(asyncio.wait_for(feed_watchdog(), 60))
