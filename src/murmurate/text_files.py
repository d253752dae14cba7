"""Read text files as people save them: UTF-8 with or without a byte order mark. Other encodings get a remedy."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from murmurate.errors import MurmurateError, ReadingError

_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REMEDY = "must be saved as UTF-8, for example with iconv -f {codec} -t UTF-8, or in the editor under Save as"


def read_text(path: Path) -> str:
    """Return the text of a file. Raises MurmurateError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _encoding_error(path) from None


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a text file for the csv module. Raises MurmurateError in the block where it is not UTF-8."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            yield file
        except UnicodeDecodeError:
            raise _encoding_error(path) from None


def check_utf_8(path: Path, head: bytes) -> None:
    """Raise MurmurateError if a file that begins with these bytes is UTF-16, which other readers call damaged."""
    if is_utf_16(head):
        raise _encoding_error(path)


def is_utf_16(head: bytes) -> bool:
    """Return whether a text begins with the mark of UTF-16, as some Windows programs save it.

    >>> is_utf_16("meter,zone".encode("utf-16")), is_utf_16(b"meter,zone")
    (True, False)
    """
    return head.startswith(_UTF_16_MARKS)


def _encoding_error(path: Path) -> MurmurateError:
    with path.open("rb") as file:
        head = file.read(2)
    name, codec = ("UTF-16", "UTF-16") if is_utf_16(head) else ("not UTF-8", "WINDOWS-1252")
    return ReadingError(str(path), name, _REMEDY.format(codec=codec))
