"""One text for one value: JSON with sorted members, no spaces, whole numbers and strings, in UTF-8."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from murmurate.errors import ChainError

FORMAT_VERSION = 1
HEX_DIGITS = frozenset("0123456789abcdef")

canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def parse_canonical(text: str, what: str) -> dict[str, Any]:
    """Return the members of a JSON object. Raises ChainError unless the text is exactly what `canonical_json` gives.

    >>> parse_canonical('{"b":1, "a":2}', "header")
    Traceback (most recent call last):
    murmurate.errors.ChainError: header is '{"b":1, "a":2}': must be a JSON object in canonical form
    """
    try:
        members = json.loads(text)
        text.encode()
        canonical = isinstance(members, dict) and canonical_json(members) == text
    except (ValueError, RecursionError):
        canonical = False
    if not canonical:
        raise ChainError(what, shorten(text), "must be a JSON object in canonical form")
    result: dict[str, Any] = members
    return result


def require_types(members: dict[str, Any], types: dict[str, tuple[type, ...]], what: str) -> None:
    """Raise ChainError unless the members are exactly these, each of one of its types. A bool is not a number."""
    if members.keys() != types.keys():
        odd = ", ".join(sorted(members.keys() ^ types.keys()))
        raise ChainError(what, f"with or without {odd}", f"must have exactly the members of version {FORMAT_VERSION}")
    for name, value in members.items():
        if isinstance(value, bool) or not isinstance(value, types[name]):
            raise ChainError(f"{name} of a {what}", shorten(repr(value)), "has another type in this version")


def is_hash(text: object) -> bool:
    """Whether a value is 64 hexadecimal digits, in lower case: a SHA-256 or a public key."""
    return isinstance(text, str) and len(text) == 64 and HEX_DIGITS.issuperset(text)


def compute_digest(text: str) -> str:
    """Return the SHA-256 of a text, as 64 hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def shorten(text: str) -> str:
    """Return a text for an error message."""
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
