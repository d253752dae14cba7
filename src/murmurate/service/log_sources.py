"""Where a public log is read from: a file, standard input, or an address. Nothing here is trusted."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast
from urllib import request
from urllib.error import URLError

from murmurate.errors import MurmurateError
from murmurate.publication.verification_report import Source

LONGEST_LINE = 1 << 20  # bytes; a record has about 900
TIMEOUT_S = 30
_CHUNK = 1 << 16


def open_source(name: str) -> Source:
    """The lines of a log, from the beginning each time it is called. What can be read only once is kept in a file."""
    if name == "-":
        return _source(name, _kept(name, sys.stdin.buffer))
    if "://" in name:
        if not name.lower().startswith(("http://", "https://")):
            raise MurmurateError("source", name, "must be a file, - or an address that begins with http:// or https://")
        return _source(name, _fetched(name))
    return _source(name, Path(name).open("rb"))


def _fetched(address: str) -> IO[bytes]:
    """What an address answers with. Only HTTP is spoken, whatever it redirects to."""
    door = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    ):
        door.add_handler(handler())
    try:
        with door.open(address, timeout=TIMEOUT_S) as answer:
            return _kept(address, cast("IO[bytes]", answer))
    except (URLError, ValueError) as error:
        why = error.reason if isinstance(error, URLError) else error
        raise MurmurateError("source", address, f"cannot be fetched ({why})") from None


def _kept(name: str, stream: IO[bytes]) -> IO[bytes]:
    """A copy in a temporary file without a name: evidence should not change between two readings."""
    file = TemporaryFile()  # noqa: SIM115
    try:
        while chunk := stream.read(_CHUNK):
            file.write(chunk)
    except OSError as error:
        raise MurmurateError("source", name, f"broke off ({type(error).__name__}); try again") from None
    return cast("IO[bytes]", file)


def _source(name: str, file: IO[bytes]) -> Source:
    def lines() -> Iterator[str]:
        file.seek(0)
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            yield from _lines(name, cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise MurmurateError("source", name, "is damaged: it does not unpack") from None

    return lines


def _lines(name: str, stream: IO[bytes]) -> Iterator[str]:
    while raw := stream.readline(LONGEST_LINE + 1):
        if len(raw) > LONGEST_LINE:
            raise MurmurateError("source", name, f"has a line of more than {LONGEST_LINE:,} bytes; it is no public log")
        yield raw.removesuffix(b"\n").decode(errors="replace")
