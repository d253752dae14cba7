"""The log of a service: one JSON object a line, on standard error. Facts and counts, never a reading.

Modules log as usual: `logger.warning("aggregation failed", extra={"interval": ..., "reason": ...})`. The message is the
event; whatever stands in `extra` becomes a member of the line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_OWN = "murmurate"
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object.

    A record of another library keeps the name of its logger and loses its message, which could quote a request.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        >>> facts = {"name": "murmurate.x", "levelname": "INFO", "msg": "purged", "intervals": 3}
        >>> line = json.loads(JsonFormatter("worker").format(logging.makeLogRecord(facts)))
        >>> [line[member] for member in ("level", "process", "event", "intervals")]
        ['info', 'worker', 'purged', 3]
        """
        is_own = record.name.partition(".")[0] == _OWN
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "event": record.getMessage() if is_own else "library message",
        }
        if is_own:
            line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        else:
            line["logger"] = record.name
        return json.dumps(line, default=str)


def configure_logging(process: str) -> None:
    """Send the log of this process to standard error as JSON lines. `process` names it in every line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(process))
    logging.captureWarnings(capture=True)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN).setLevel(logging.INFO)
