"""The digest of a plan document: what stands for the plan, and its proof, from then on."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(document: dict[str, Any]) -> str:
    """SHA-256 of the canonical bytes of a plan document without its digest."""
    bare = {key: value for key, value in document.items() if key != "digest"}
    canonical = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
