"""The digest of a plan document. It identifies the plan after the plan has been proven."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

_DIGEST_MEMBER = re.compile(r'"digest":"([0-9a-f]{64})",')


def compute_plan_digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON bytes of a plan document without its `digest` member."""
    bare = {key: value for key, value in document.items() if key != "digest"}
    return hashlib.sha256(_canonical_json(bare).encode()).hexdigest()


def compact_plan(text: str) -> str:
    """Return the canonical JSON of a plan document: the form that `parse_plan` reads fastest."""
    return _canonical_json(json.loads(text))


def parse_plan(text: str) -> tuple[dict[str, Any], str]:
    """Return the document in a text, and the digest that its content has, which its `digest` member should be.

    A canonical text is what was hashed, but for one member: if the text without it has the digest that it names, it is
    the text that was hashed, and is read. Any other text is brought into canonical form first, which takes longer.
    Raises ValueError for JSON that is no object.
    """
    member = _DIGEST_MEMBER.search(text)
    if member is not None:
        bare = text[: member.start()] + text[member.end() :]
        if hashlib.sha256(bare.encode()).hexdigest() == member[1]:
            return json.loads(bare) | {"digest": member[1]}, member[1]
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("a plan is a JSON object")  # noqa: TRY004  what was read is wrong, not the call
    return document, compute_plan_digest(document)


def _canonical_json(document: dict[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
