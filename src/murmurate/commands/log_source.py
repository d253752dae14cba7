"""Where a public log is read from: files, standard input, an address, or a database. Nothing here is trusted."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast
from urllib import request
from urllib.error import URLError

from murmurate.commands.log_address import FirstSeq, copy_whole_log, find_base_address
from murmurate.commands.log_files import MAX_ITEM_BYTES, TAR_BLOCK_BYTES, is_tar, open_tar_writer, read_folder, read_tar
from murmurate.errors import MurmurateError
from murmurate.verification.sources import ItemKind, LogItem, LogSource, find_kind

MAX_LOG_LINE_BYTES = 1 << 20  # bytes; the line of a zone has about 2,000
FETCH_TIMEOUT_S = 30
_COPY_CHUNK_BYTES = 1 << 16
_DATABASE_SCHEMES = ("postgresql://", "postgres://")


def open_log_source(name: str, first_seq: FirstSeq = lambda _: 0) -> LogSource:
    """Return the items of a log, from the first one each time it is called.

    What can be read only once, or may change, is kept in a temporary file. Tiles before `first_seq` of their shard may
    be left out where that is cheaper.
    """
    if name == "-":
        return _FileSource(name, _copy_to_temp_file(name, sys.stdin.buffer))
    if name.lower().startswith(_DATABASE_SCHEMES):
        return _FileSource("the log database", _copy_database(name))
    if "://" in name:
        if not name.lower().startswith(("http://", "https://")):
            raise MurmurateError("source", name, "must be a file, - or an address that begins with http:// or https://")
        base = find_base_address(name)
        return _FileSource(name, _fetch(name) if base is None else _fetch_whole_log(base, first_seq))
    path = Path(name)
    return (lambda: read_folder(path)) if path.is_dir() else _FileSource(name, path.open("rb"))


def source_name(name: str) -> str:
    """How a source is called in a report. The address of a database may hold a password."""
    return "the log database" if name.lower().startswith(_DATABASE_SCHEMES) else name


def _fetch(address: str) -> IO[bytes]:
    """The body at an address."""
    with _open_address(address) as response:
        return _copy_to_temp_file(address, response)


def _fetch_whole_log(base: str, first_seq: FirstSeq) -> IO[bytes]:
    """Every tile and document at the address of a service, as an archive."""
    with _temporary_file() as file, open_tar_writer(file) as writer:
        copy_whole_log(base, fetch_bytes, writer, first_seq)
    return file


def fetch_bytes(address: str) -> bytes:
    """Return the body at an address, which is never a large one."""
    with _open_address(address) as response:
        try:
            data = response.read(MAX_ITEM_BYTES + 1)
        except (OSError, HTTPException) as error:
            raise MurmurateError("source", address, f"broke off ({type(error).__name__}); try again") from None
    if len(data) > MAX_ITEM_BYTES:
        raise MurmurateError("source", address, f"has more than {MAX_ITEM_BYTES:,} bytes; it is no public log")
    return data


@contextmanager
def _open_address(address: str) -> Iterator[IO[bytes]]:
    """The response at an address. Only HTTP and HTTPS are followed, also in redirects."""
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
        response = opener.open(address, timeout=FETCH_TIMEOUT_S)
    except (URLError, ValueError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        words = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
        remedy = "check the address, and whether the service runs"
        raise MurmurateError("source", address, f"cannot be fetched ({words}); {remedy}") from None
    with response:
        yield cast("IO[bytes]", response)


def _copy_database(dsn: str) -> IO[bytes]:
    """The log as it stands at one moment."""
    from murmurate.commands.export import write_archive  # noqa: PLC0415 (the bare install has no psycopg)
    from murmurate.service.storage.databases import Database  # noqa: PLC0415

    with _temporary_file() as file:
        log = Database("log", dsn)
        log.check_reachable()
        write_archive(log, file)
    return file


def _copy_to_temp_file(name: str, stream: IO[bytes]) -> IO[bytes]:
    """A copy in a temporary file without a name: evidence should not change between two readings."""
    with _temporary_file() as file:
        try:
            while chunk := stream.read(_COPY_CHUNK_BYTES):
                file.write(chunk)
        except (OSError, HTTPException) as error:
            raise MurmurateError("source", name, f"broke off ({type(error).__name__}); try again") from None
    return file


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    """A file without a name. It stays open after the block, unless the block fails."""
    file = cast("IO[bytes]", TemporaryFile())  # noqa: SIM115
    try:
        yield file
    except BaseException:
        file.close()
        raise


class _FileSource:
    """A log in an open file, which is closed when the source is no longer needed."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self._name, self._file = name, file

    def __call__(self) -> Iterator[LogItem]:
        try:
            beginning = _rewind(self._file).read(TAR_BLOCK_BYTES)
            stream = _rewind(self._file)
            if is_tar(beginning):
                yield from read_tar(self._name, stream)
            elif find_kind(beginning) is ItemKind.TILE:
                yield _read_item(self._name, stream)
            else:
                yield from _read_lines(self._name, stream)
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise MurmurateError("source", self._name, "is damaged: it does not unpack") from None

    def __del__(self) -> None:
        self._file.close()


def _rewind(file: IO[bytes]) -> IO[bytes]:
    """The file from its beginning, unpacked if it is compressed."""
    file.seek(0)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file


def _read_item(name: str, stream: IO[bytes]) -> LogItem:
    """A single tile, as a service sends it. It may have lines: rows are bytes of any kind."""
    data = stream.read(MAX_ITEM_BYTES + 1)
    if len(data) > MAX_ITEM_BYTES:
        raise MurmurateError("source", name, f"has more than {MAX_ITEM_BYTES:,} bytes; it is no tile")
    return LogItem("the tile", data)


def _read_lines(name: str, stream: IO[bytes]) -> Iterator[LogItem]:
    number = 0
    while raw := stream.readline(MAX_LOG_LINE_BYTES + 1):
        if len(raw) > MAX_LOG_LINE_BYTES:
            raise MurmurateError(
                "source", name, f"has a line of more than {MAX_LOG_LINE_BYTES:,} bytes; it is no public log"
            )
        number += 1
        yield LogItem(f"line {number}", raw.removesuffix(b"\n"))
