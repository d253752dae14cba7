"""The log of a service in the process of a test, as pairs of event and facts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from murmurate.service.logging_setup import JsonFormatter

_FRAME = ("at", "level", "process", "event")


class RecordedLog(logging.Handler):
    """A handler that keeps (event, facts) of every record in `into`."""

    def __init__(self, into: list[Any]) -> None:
        super().__init__()
        self.into = into
        self.setFormatter(JsonFormatter("test"))

    def emit(self, record: logging.LogRecord) -> None:
        line = json.loads(self.format(record))
        self.into.append((line["event"], {name: value for name, value in line.items() if name not in _FRAME}))


@contextmanager
def recorded_log(into: list[Any]) -> Iterator[list[Any]]:
    """Append the events of all murmurate loggers to a list while the block runs."""
    logger, handler = logging.getLogger("murmurate"), RecordedLog(into)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield into
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
