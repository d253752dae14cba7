"""What a query may ask: each parameter is what it must be, or the answer says what it must be."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import date, datetime

from starlette.exceptions import HTTPException
from starlette.requests import Request

LISTS = {"targets"}


def refuse_unknown(request: Request, known: Collection[str]) -> None:
    """A parameter that nobody knows is a mistake: an answer that ignores it would be to another question.

    So is one that is there twice, but for those that are lists.
    """
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise HTTPException(400, f"the query parameter {name[:40]!r} is unknown; there is {names}")
        if name in seen - LISTS:
            raise HTTPException(400, f"the query parameter {name} must be there once")
        seen.add(name)


def word(request: Request, name: str, form: re.Pattern[str]) -> str | None:
    """A word of some form."""
    text = request.query_params.get(name)
    if text is not None and not form.fullmatch(text):
        raise HTTPException(400, f"{name} must be of the form {form.pattern}")
    return text


def whole(request: Request, name: str, most: int) -> int | None:
    """A whole number from 0 to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > most:
        raise HTTPException(400, f"{name} must be a whole number from 0 to {most}")
    return int(text)


def flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in {"true", "false"}:
        raise HTTPException(400, f"{name} must be true or false")
    return text == "true"


def moment(request: Request, name: str) -> float | None:
    """A time with its zone [s of UTC]."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))  # a plus that was not escaped
        at_s = None if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError):
        at_s = None
    if at_s is None:
        raise HTTPException(400, f"{name} must be a time such as 2026-11-14T00:00:00Z")
    return at_s


def day(text: str) -> date:
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.isoformat() != text or not 1970 < found.year < 9000:
        raise HTTPException(404, "must be a day such as 2026-11-14")
    return found
