"""TOML that remembers on which line each key stands, so that a mistake is reported with its place and a remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from murmurate.errors import MurmurateError, ZoneFileError


class TomlReader:
    """The document, and on which line each key stands."""

    def __init__(self, text: str) -> None:
        try:
            self.document: dict[str, Any] = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"line (\d+)", str(error))
            reason = str(error).split(" (at")[0]
            raise ZoneFileError(int(found[1]) if found else 1, "file", reason, "must be TOML") from None
        self.lines = _lines(text)

    def table(self, path: tuple[Any, ...], allowed: set[str]) -> dict[str, Any]:
        """The table at `path`; a key that has no meaning there is a mistake."""
        found: Any = self.document
        for step in path:
            found = found[step]
        for key in found:
            if key not in allowed:
                near = get_close_matches(key, allowed, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(allowed))}"
                raise ZoneFileError(self.line(path, key), "key", repr(key), remedy)
        return dict(found)

    def line(self, path: tuple[Any, ...], key: str) -> int:
        return self.lines.get((*path, key), self.lines.get(path, 1))

    @contextmanager
    def at(self, path: tuple[Any, ...], key: str) -> Iterator[None]:
        """Whatever is refused in here is refused with the line of this key."""
        try:
            yield
        except ZoneFileError:
            raise
        except MurmurateError as error:
            raise ZoneFileError(self.line(path, key), error.field, error.value, error.allowed) from None
        except (ValueError, TypeError):
            allowed = "must have the form that docs/how-to/zone-file.md shows"
            raise ZoneFileError(self.line(path, key), key, "not readable", allowed) from None

    def get(self, table: Mapping[str, Any], path: tuple[Any, ...], key: str, kind: Any, default: Any) -> Any:
        value = table.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = {
                bool: "true or false",
                int: "a whole number",
                str: "a text in quotes",
                list: "a list",
                dict: "a table { .. }",
            }
            raise ZoneFileError(self.line(path, key), key, repr(value), f"must be {names.get(kind, 'a number')}")
        return value

    def need(self, table: Mapping[str, Any], path: tuple[Any, ...], key: str, kind: Any) -> Any:
        if key not in table:
            raise ZoneFileError(self.lines.get(path, 1), key, "missing", f"must be given in {_place(path)}")
        return self.get(table, path, key, kind, None)


def _place(path: tuple[Any, ...]) -> str:
    if path and isinstance(path[-1], int):
        return f"[[{path[0]}]] number {path[-1] + 1}"
    return f"[{'.'.join(path)}]" if path else "the top of the file"


def _lines(text: str) -> dict[tuple[Any, ...], int]:
    """{path of a table or key: its line}, by a look at the headers and the beginnings of lines."""
    found: dict[tuple[Any, ...], int] = {}
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
            found[path] = number
        elif key:
            found.setdefault((*path, key[1]), number)
    return found
