"""The schemas of the OpenADR 3.1 specification as JSON Schema, which they almost are."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft4Validator, FormatChecker

VARIABLE = "MURMURATE_OPENADR_YAML"
NO_DOCUMENT = (
    f"no OpenADR document: set {VARIABLE} to the path of openadr3.yaml, version 3.1.0, of the OpenADR Alliance"
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CHECKER = FormatChecker(formats=())


@_CHECKER.checks("date-time")
def _has_seconds(text: object) -> bool:
    return isinstance(text, str) and _MOMENT.fullmatch(text) is not None


@_CHECKER.checks("uri")
def _is_uri(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"(https?|mqtts?)://[!-~]+|about:blank", text) is not None


def errors_in(document: object, schema: str) -> list[str]:
    """What is wrong with a document, by the schema of that name."""
    root = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": _schemas()}}
    return [error.message for error in Draft4Validator(root, format_checker=_CHECKER).iter_errors(document)]


def _schemas() -> Any:
    """The schemas of the document. Without a document the calling test is skipped: no package ships it."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        pytest.skip(NO_DOCUMENT)
    return _read_schemas(Path(path))


@cache
def _read_schemas(path: Path) -> Any:
    return _plain(yaml.safe_load(path.read_text(encoding="utf-8"))["components"]["schemas"])


def _plain(node: Any) -> Any:
    """Without the discriminator, which maps nothing there; a nullable type as a choice of two."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {name: _plain(value) for name, value in node.items() if name not in {"discriminator", "nullable", "example"}}
    return kept | {"type": [node["type"], "null"]} if node.get("nullable") is True else kept
