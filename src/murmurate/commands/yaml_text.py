"""A writer for the part of YAML that an entry of a registry needs, so that no YAML library has to be installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

INDENT = "  "
SPECIAL_CHARACTERS = '"\\'


class ValueToFillIn(NamedTuple):
    """A value that stands for one that a person must fill in. A comment beside it says which."""

    value: str
    hint: str


def format_yaml(document: Mapping[str, Any]) -> str:
    """Return mappings, lists, texts, whole numbers, floats and `ValueToFillIn` as YAML. Equal input, equal text."""
    return "\n".join(_mapping_lines(document)) + "\n"


def _mapping_lines(mapping: Mapping[str, Any]) -> Iterator[str]:
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            yield f"{key}:"
            yield from map(_indent, _mapping_lines(value))
        elif isinstance(value, Sequence) and not isinstance(value, str | ValueToFillIn):
            yield f"{key}:"
            yield from (_indent(line) for item in value for line in _item_lines(item))
        elif isinstance(value, str) and _fits_block(value):
            yield f"{key}: |"
            yield from map(_indent, value.removesuffix("\n").split("\n"))
        else:
            yield f"{key}: {_format_scalar(value)}"


def _item_lines(item: Any) -> Iterator[str]:
    lines = list(_mapping_lines(item)) if isinstance(item, Mapping) else [_format_scalar(item)]
    yield f"- {lines[0]}"
    yield from map(_indent, lines[1:])


def _indent(line: str) -> str:
    return INDENT + line if line else ""


def _fits_block(text: str) -> bool:
    """Whether a text can stand as it is, line by line. It must end with one line feed, which a block adds."""
    lines = text.split("\n")
    whole = len(lines) > 1 and lines[-1] == "" and lines[-2] != ""
    return whole and not text.startswith((" ", "\n")) and all(line.isprintable() for line in lines)


def _format_scalar(value: Any) -> str:
    if isinstance(value, ValueToFillIn):
        return f"{_quote_text(value.value)} # fill in: {value.hint}"
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, float):
        digits, exponent, power = repr(value).partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}{exponent}{power}"  # 1e-06 would be read as a text
    return str(value)


def _quote_text(text: str) -> str:
    plain = (c if c.isprintable() and c not in SPECIAL_CHARACTERS else f"\\U{ord(c):08x}" for c in text)
    return '"' + "".join(plain) + '"'
