"""`--json`: one document on standard output, and nothing else there. Keys are in docs/reference/json-output.md."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


def print_json(document: Mapping[str, object]) -> None:
    """Print the result of a command for a script. Names stay as they are, also those beyond ASCII."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def print_json_file(path: Path) -> None:
    """Print a document that the command has written to a file, as it is there."""
    sys.stdout.write(path.read_text(encoding="utf-8"))


def format_utc(at_s: float) -> str:
    """A moment in UTC, to the second.

    >>> format_utc(1_794_658_500)
    '2026-11-14T12:15:00Z'
    """
    return datetime.fromtimestamp(int(at_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
