"""Log lines that clients can cause: at most one a second, however many clients there are."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

logger = logging.getLogger(__name__)

MIN_PAUSE_S = 1.0  # between two lines


class OncePerSecond(logging.Filter):
    """Lets one record of a logger through in a second. It says how many were suppressed before it."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s, self._suppressed = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next_s:
            self._suppressed += 1
            return False
        record.suppressed, self._next_s, self._suppressed = self._suppressed, now + MIN_PAUSE_S, 0
        return True


logger.addFilter(OncePerSecond())


def report_loop_error(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What the event loop does with an error that no task handles, such as a connection that cannot be accepted."""
    error = context.get("exception")
    logger.warning("connection failed", extra={"reason": type(error).__name__, "errno": getattr(error, "errno", 0)})
