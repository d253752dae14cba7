"""The log of a service: one JSON object a line, on standard error. Facts and counts, never a reading.

Modules log as usual: `logger.warning("aggregation failed", extra={"interval": ..., "reason": ...})`. The message is the
event; each entry of `extra` becomes a member of the line. What a library logs or prints, and every error that is not
caught, becomes such a line too, with its type and place and without its text, which could quote a request.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType

logger = logging.getLogger(__name__)

MAX_LINE_BYTES = 4096  # what a pipe takes whole (PIPE_BUF): lines of several processes never mix
MAX_TEXT_CHARS = 500  # of one member, where a line would be longer
MAX_TRACE_FRAMES = 12  # the innermost
RATE_PERIOD_S = 1.0  # between two lines of a kind that clients can cause [s]
_OWN = "murmurate"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIRST = ("at", "level", "process", "event", "logger", "error", "shortened")  # the last to be left out


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object.

    A record of another library keeps the name of its logger and loses its message, which could quote a request.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, of at most MAX_LINE_BYTES.

        >>> facts = {"name": "murmurate.x", "levelname": "INFO", "msg": "purged", "intervals": 3}
        >>> line = json.loads(JsonFormatter("worker").format(logging.makeLogRecord(facts)))
        >>> [line[member] for member in ("level", "process", "event", "intervals")]
        ['info', 'worker', 'purged', 3]
        """
        is_own = _is_own(record)
        try:
            event = record.getMessage() if is_own else "library message"
        except (TypeError, ValueError):  # its arguments do not fit it
            event = str(record.msg)
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "event": event,
        }
        if not is_own:
            line["logger"] = record.name
        if record.exc_info and (kind := record.exc_info[0]) is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-MAX_TRACE_FRAMES:]
            places = [f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno} {frame.name}" for frame in frames]
            line |= {"error": kind.__name__, "trace": places}
        names = vars(record).keys() - _STANDARD if is_own else {"suppressed"}
        line |= {name: value for name, value in vars(record).items() if name in names}
        text = json.dumps(line, default=str)
        if len(text) >= MAX_LINE_BYTES:  # with its end; json.dumps writes ASCII
            line = {name: _shorten(value, MAX_TEXT_CHARS) for name, value in line.items()} | {"shortened": True}
            text = json.dumps(line, default=str)
        if len(text) >= MAX_LINE_BYTES:
            line = {name: _shorten(line[name], 100) for name in _FIRST if name in line}
            text = json.dumps(line, default=str)
        return text


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] == _OWN


def _shorten(value: object, length: int) -> object:
    if isinstance(value, bool | int | float | None):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return value if len(text) <= length else f"{text[:length]}…"


class _LineHandler(logging.Handler):
    """Writes each line with one call to the operating system. Write errors are ignored."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            os.write(self._descriptor, f"{self.format(record)}\n".encode())


class RateLimit(logging.Filter):
    """Passes one record of a kind in RATE_PERIOD_S. The next one has the number of those that were not.

    For records that clients can cause, however many clients there are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}  # when one was passed, and how many not since

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        kind = (record.name, record.levelno, error)
        now = time.monotonic()
        passed_at, count = self._kinds.get(kind, (-RATE_PERIOD_S, 0))
        if now - passed_at < RATE_PERIOD_S:
            self._kinds[kind] = (passed_at, count + 1)
            return False
        self._kinds[kind] = (now, 0)
        if count:
            record.suppressed = count
        return True


class _PrintedText(io.TextIOBase):
    """Takes what a library prints. It becomes a line of the log, without its text."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip():
            self._logger.warning("printed")
        return len(text)


def configure_logging(process: str) -> None:
    """Send the log of this process to standard error as JSON lines. `process` names it in every line."""
    handler = _LineHandler(2)
    handler.setFormatter(JsonFormatter(process))
    limit = RateLimit()  # a library may log what a client does
    handler.addFilter(lambda record: _is_own(record) or limit.filter(record))
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False  # no traceback of a message that cannot be formatted
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN).setLevel(logging.INFO)
    sys.stdout, sys.stderr = _PrintedText("stdout"), _PrintedText("stderr")
    sys.excepthook = _log_uncaught
    sys.unraisablehook = lambda error: _log_uncaught(error.exc_type, error.exc_value, error.exc_traceback)
    threading.excepthook = lambda error: _log_uncaught(error.exc_type, error.exc_value, error.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None = None) -> None:
    """Log an error that was not caught."""
    if issubclass(kind, KeyboardInterrupt):
        logger.info("interrupted")
    elif not issubclass(kind, SystemExit):
        logger.critical("crashed", exc_info=(kind, error or kind(), trace))
