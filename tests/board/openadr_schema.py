"""The schemas of the OpenADR 3.1 specification as JSON Schema, which they almost are."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft4Validator, FormatChecker

SPECIFICATION = Path(__file__).parents[3] / "shared" / "openadr3-3.1.0.yaml"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_CHECKER = FormatChecker(formats=())


@_CHECKER.checks("date-time")
def _has_seconds(text: object) -> bool:
    return isinstance(text, str) and _MOMENT.fullmatch(text) is not None


@_CHECKER.checks("uri")
def _is_uri(text: object) -> bool:
    return isinstance(text, str) and re.fullmatch(r"https?://[!-~]+", text) is not None


def errors_in(document: object, schema: str) -> list[str]:
    """What is wrong with a document, by the schema of that name."""
    root = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": _schemas()}}
    return [error.message for error in Draft4Validator(root, format_checker=_CHECKER).iter_errors(document)]


@cache
def _schemas() -> Any:
    return _plain(yaml.safe_load(SPECIFICATION.read_text())["components"]["schemas"])


def _plain(node: Any) -> Any:
    """Without the discriminator, which maps nothing there; a nullable type as a choice of two."""
    if isinstance(node, list):
        return [_plain(one) for one in node]
    if not isinstance(node, dict):
        return node
    kept = {name: _plain(value) for name, value in node.items() if name not in {"discriminator", "nullable", "example"}}
    return kept | {"type": [node["type"], "null"]} if node.get("nullable") is True else kept
