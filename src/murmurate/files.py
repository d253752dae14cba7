"""Read text files as people save them, and say what the system refuses about a file, with its remedy."""

from __future__ import annotations

import codecs
import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from murmurate.errors import MurmurateError, ReadingError

_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REMEDY = "must be saved as UTF-8, for example with iconv -f {codec} -t UTF-8, or in the editor under Save as"
_SENTENCES = {
    errno.EISDIR: "is a folder: name a file in it",
    errno.ENOTDIR: "is not in a folder: part of this path is a file; choose another path",
    errno.EACCES: "may not be read or written by this user: change its rights (ls -l shows them), or name another one",
    errno.EEXIST: "is there already: name another one, or delete it first",
    errno.EROFS: "is on a disk that cannot be written: name another place",
    errno.ENOSPC: "cannot be written: the disk is full; delete something, or name another place",
    errno.ENAMETOOLONG: "has too long a name: choose a shorter one",
    errno.EMFILE: "cannot be opened: too many files are open; raise the limit with ulimit -n",
}
_SENTENCES[errno.EPERM] = _SENTENCES[errno.EACCES]
_SENTENCES[errno.EDQUOT] = _SENTENCES[errno.ENOSPC]


def read_text(path: os.PathLike[str]) -> str:
    """Return the text of a file. Raises MurmurateError if it is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise _encoding_error(Path(path)) from None


def read_secret(name: str, environment: Mapping[str, str]) -> str | None:
    """Return what an environment variable holds, or the file that `{name}_FILE` names; None if neither is set.

    Raises MurmurateError if both are set, OSError if the file cannot be read.
    """
    file = environment.get(f"{name}_FILE")
    if not file:
        return environment.get(name)
    if environment.get(name):
        raise MurmurateError(f"{name}_FILE", f"set together with {name}", "set one of them, a file or a text")
    return read_text(Path(file)).removesuffix("\n").removesuffix("\r")


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


def describe_os_error(error: OSError) -> str:
    """Return what went wrong and what to do about it. An HTTPError is an OSError whose file is an address.

    >>> describe_os_error(IsADirectoryError(errno.EISDIR, "Is a directory", "plans"))
    'plans is a folder: name a file in it'
    """
    if not error.filename:
        return f"{error.strerror or error}: fix this and run the command again"
    name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
    if error.errno != errno.ENOENT:
        unknown = f"cannot be used ({error.strerror or error}): name another one"
        return f"{name} {_SENTENCES.get(error.errno or 0, unknown)}"
    path, folder = Path(name), Path(name).parent
    if not folder.is_dir():
        return f"{path} is not there: there is no folder {folder}; check the name, or create it: mkdir -p {folder}"
    return f"{path} is not there: check the name; the command looks in {folder.resolve()}"
