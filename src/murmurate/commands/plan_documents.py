"""Read a `plan.json` that a person names. Errors name the file, what it is instead of a plan, and the remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from murmurate.errors import PrivacyError
from murmurate.files import read_text
from murmurate.planning.plan import Plan, load_plan

_PLAN_FORMAT = 1
_REMEDY = "must be a whole plan.json: murmurate plan zone.toml --out plan.json writes one"


def read_plan_document(path: Path) -> str:
    """Return the text of a plan. Raises PrivacyError if it is cut off, something else or of another version."""
    text = read_text(path)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"no JSON from line {error.lineno} on" if isinstance(error, json.JSONDecodeError) else "no JSON"
        raise PrivacyError(str(path), place if text.strip() else "empty", _REMEDY) from None
    if not isinstance(document, dict) or "murmurate_plan" not in document:
        raise PrivacyError(str(path), "no plan", _REMEDY)
    if document["murmurate_plan"] != _PLAN_FORMAT:
        allowed = (
            f"must be of format {_PLAN_FORMAT}: make it again with murmurate plan, or install the version it is from"
        )
        raise PrivacyError(str(path), f"a plan of format {document['murmurate_plan']}", allowed)
    return text


def load_plan_file(path: Path) -> Plan:
    """Return the plan of a file, proven again."""
    text = read_plan_document(path)
    with name_plan(str(path)):
        return load_plan(text)


@contextmanager
def name_plan(name: str) -> Iterator[None]:
    """Add the name of a plan to what is wrong with it."""
    try:
        yield
    except PrivacyError as error:
        raise PrivacyError(f"{name}: {error.field}", error.value, error.allowed) from None
