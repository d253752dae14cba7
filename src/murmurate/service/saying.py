"""What a service says while it runs: one JSON object a line, on standard error. Facts and counts, never a reading."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime

Say = Callable[..., None]


def speaker(part: str) -> Say:
    """Whoever says what happens in one part of the service."""

    def say(event: str, **facts: object) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "part": part, "event": event} | facts
        print(json.dumps(line, default=str), file=sys.stderr, flush=True)  # noqa: T201  this is the log

    return say
