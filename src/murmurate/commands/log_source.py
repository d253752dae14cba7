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
from murmurate.verification.report import LogSource

MAX_LOG_LINE_BYTES = 1 << 20  # bytes; a record has about 900
FETCH_TIMEOUT_S = 30
_COPY_CHUNK_BYTES = 1 << 16


def open_log_source(name: str) -> LogSource:
    """The lines of a log, from the beginning each time it is called. What can be read only once is kept in a file."""
    if name == "-":
        return _make_source(name, _copy_to_temp_file(name, sys.stdin.buffer))
    if "://" in name:
        if not name.lower().startswith(("http://", "https://")):
            raise MurmurateError("source", name, "must be a file, - or an address that begins with http:// or https://")
        return _make_source(name, _fetch(name))
    return _make_source(name, Path(name).open("rb"))


def _fetch(address: str) -> IO[bytes]:
    """The body at an address. Only HTTP and HTTPS are followed, also in redirects."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler,
        request.HTTPHandler,
        request.HTTPSHandler,
        request.HTTPRedirectHandler,
        request.HTTPDefaultErrorHandler,
        request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    try:
        with opener.open(address, timeout=FETCH_TIMEOUT_S) as response:
            return _copy_to_temp_file(address, cast("IO[bytes]", response))
    except (URLError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise MurmurateError("source", address, f"cannot be fetched ({reason})") from None


def _copy_to_temp_file(name: str, stream: IO[bytes]) -> IO[bytes]:
    """A copy in a temporary file without a name: evidence should not change between two readings."""
    file = TemporaryFile()  # noqa: SIM115
    try:
        while chunk := stream.read(_COPY_CHUNK_BYTES):
            file.write(chunk)
    except OSError as error:
        raise MurmurateError("source", name, f"broke off ({type(error).__name__}); try again") from None
    return cast("IO[bytes]", file)


def _make_source(name: str, file: IO[bytes]) -> LogSource:
    def lines() -> Iterator[str]:
        file.seek(0)
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            yield from _read_lines(name, cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise MurmurateError("source", name, "is damaged: it does not unpack") from None

    return lines


def _read_lines(name: str, stream: IO[bytes]) -> Iterator[str]:
    while raw := stream.readline(MAX_LOG_LINE_BYTES + 1):
        if len(raw) > MAX_LOG_LINE_BYTES:
            raise MurmurateError(
                "source", name, f"has a line of more than {MAX_LOG_LINE_BYTES:,} bytes; it is no public log"
            )
        yield raw.removesuffix(b"\n").decode(errors="replace")
