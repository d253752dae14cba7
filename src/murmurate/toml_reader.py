"""A TOML reader that knows the line of each key, so that an error names its line and a remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from murmurate.errors import MurmurateError, ZoneFileError

_KIND_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text in quotes",
    list: "a list",
    dict: "a table { .. }",
}


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document. Raises ZoneFileError with the line number, its text and the corrected form."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, or a number or a nesting without end
        match = re.search(r"line (\d+)", str(error))
        number = int(match[1]) if match else max(len(text.splitlines()), 1)
        line = (text.splitlines() or [""])[number - 1].strip()
        reason = str(error).split(" (at")[0]
        raise ZoneFileError(number, repr(line[:60]), "not TOML", _toml_remedy(line, reason)) from None


def _toml_remedy(line: str, reason: str) -> str:
    """Return the corrected form of a line, from the mistakes that people make."""
    key, equals, value = (part.strip() for part in line.partition("="))
    remedies = {
        'write straight quotes, as in "harbour"': bool(set(line) & set("\u201c\u201d\u201e\u2018\u2019")),
        "it is there twice; delete one of them": "Cannot overwrite" in reason or "Cannot declare" in reason,
        f"write a path with slashes, or in single quotes, as in {key} = 'C:\\data'": "\\" in value,
        'write an equals sign, as in name = "harbour"': bool(re.match(r"[\w-]+\s*:", line)),
        "write true or false, in small letters": value.lower() in {"true", "false", "yes", "no", "on", "off"},
        f"write a decimal point, as in {key} = {value.replace(',', '.')}": bool(re.fullmatch(r"-?\d+,\d+", value)),
        f'write a text in quotes, as in {key} = "{value}"': bool(
            equals and re.fullmatch(r"[A-Za-z][\w ./:+-]*", value)
        ),
    }
    otherwise = f'must be TOML, such as name = "harbour" ({reason[:1].lower()}{reason[1:]})'
    return next((remedy for remedy, fits in remedies.items() if fits), otherwise)


class TomlReader:
    """A TOML document and the line of each key."""

    def __init__(self, text: str) -> None:
        self.document: dict[str, Any] = parse_toml(text)
        self.key_lines = _key_lines(text)

    def read_table(self, path: tuple[Any, ...], allowed: set[str]) -> dict[str, Any]:
        """Return the table at `path`. Raises ZoneFileError if it has a key that is not allowed."""
        table: Any = self.document
        for step in path:
            table = table[step]
        for key in table:
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(allowed))}"
                raise ZoneFileError(self.line_number(path, key), "key", repr(key), remedy)
        return dict(table)

    def line_number(self, path: tuple[Any, ...], key: str) -> int:
        return self.key_lines.get((*path, key), self.key_lines.get(path, 1))

    @contextmanager
    def locate_errors(self, path: tuple[Any, ...], key: str) -> Iterator[None]:
        """Add the line of this key to every error that is raised inside the block."""
        try:
            yield
        except ZoneFileError:
            raise
        except MurmurateError as error:
            raise ZoneFileError(self.line_number(path, key), error.field, error.value, error.allowed) from None
        except (ValueError, TypeError):
            allowed = "must have the form that docs/how-to/zone-file.md shows"
            raise ZoneFileError(self.line_number(path, key), key, "not readable", allowed) from None

    def get(self, table: Mapping[str, Any], path: tuple[Any, ...], key: str, kind: Any, default: Any) -> Any:
        value = table.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            words = f"must be {_KIND_NAMES.get(kind, 'a number')}"
            raise ZoneFileError(self.line_number(path, key), key, repr(value), words)
        return value

    def require(self, table: Mapping[str, Any], path: tuple[Any, ...], key: str, kind: Any) -> Any:
        if key not in table:
            where = f"[{'.'.join(map(str, path))}]" if path else "the top of the file"
            if path and isinstance(path[-1], int):
                where = f"[[{path[0]}]] number {path[-1] + 1}"
            raise ZoneFileError(self.key_lines.get(path, 1), key, "missing", f"must be given in {where}")
        return self.get(table, path, key, kind, None)


def _key_lines(text: str) -> dict[tuple[Any, ...], int]:
    """Return the line of each table and key by path, from the headers and the beginnings of lines."""
    lines: dict[tuple[Any, ...], int] = {}
    path: tuple[Any, ...] = ()
    count: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line)
        key = re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line)
        if header:
            name = header[2]
            if header[1] == "[[":
                path = (name, count.get(name, 0))
                count[name] = count.get(name, 0) + 1
            else:
                path = tuple(part.strip().strip('"') for part in name.split("."))
            lines[path] = number
        elif key:
            lines.setdefault((*path, key[1]), number)
    return lines
