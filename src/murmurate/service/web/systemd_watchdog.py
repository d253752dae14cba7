"""Tell systemd that the event loop turns, where its unit has `WatchdogSec`: one that stands still is restarted."""

from __future__ import annotations

import asyncio
import os

from murmurate.service.watchdog import report_progress


def watchdog_period_s() -> float | None:
    """How often to send a sign of life: half of what the unit allows. None: systemd does not ask for one."""
    allowed_us = os.environ.get("WATCHDOG_USEC", "")
    return int(allowed_us) / 2e6 if allowed_us.isdigit() and os.environ.get("NOTIFY_SOCKET") else None


async def feed_watchdog() -> None:
    """Send signs of life until it is cancelled. Without a watchdog it returns at once."""
    period_s = watchdog_period_s()
    if period_s is None:
        return
    while True:
        report_progress()
        await asyncio.sleep(period_s)
