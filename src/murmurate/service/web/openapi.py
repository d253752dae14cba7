"""The OpenAPI document of an API: `openapi.json` of its package, with the version and the address filled in."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from murmurate import __version__


def openapi_document(package: str, base_url: str = "/") -> dict[str, Any]:
    """Return the document of the API in `package`, which clients reach at `base_url`."""
    document: dict[str, Any] = json.loads(_document_text(package))
    document["info"]["version"] = __version__
    document["servers"] = [{"url": base_url}]
    return document


@cache
def _document_text(package: str) -> str:
    return files(package).joinpath("openapi.json").read_text(encoding="utf-8")
