"""The digest of a plan document. It identifies the plan after the plan has been proven."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def compute_plan_digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON bytes of a plan document without its `digest` member."""
    bare = {key: value for key, value in document.items() if key != "digest"}
    canonical = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
