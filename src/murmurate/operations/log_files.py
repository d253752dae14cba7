"""A copy of the public log in files: a directory, or the same as one tar archive.

    documents/<SHA-256>.json        plans and zone tables
    tiles/<shard>/<number>.tile     tiles, the number in twelve digits
    tiles/<shard>/<from>-<to>.tar   or successive tiles in one file, as `murmurate log archive` writes them

Names are for people. Documents and tiles say themselves what they are. So the files that a service writes for web
servers (`static_files`), or that were downloaded from it, are a copy as well: there they have no suffix.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from murmurate.errors import MurmurateError
from murmurate.service.storage.tile_archive import shard_folder
from murmurate.verification.sources import NOTE_NAME, LogItem

MAX_ITEM_BYTES = 1 << 24  # a tile of 1,000 zones has about 90,000
TAR_BLOCK_BYTES = 512


class LogWriter(Protocol):
    """Takes the files of a copy, one after the other."""

    def add_file(self, name: str, data: bytes) -> None: ...


def document_name(digest: str) -> str:
    return f"documents/{digest}.json"


def tile_name(shard: str, seq: int) -> str:
    """Return the name of a tile. The name of its shard is quoted as in a URL.

    >>> tile_name("east/1", 7)
    'tiles/east%2F1/000000000007.tile'
    """
    return f"tiles/{shard_folder(shard)}/{seq:012}.tile"


def note_name(shard: str) -> str:
    """Return the name of the note that says how far a shard is in an archive."""
    return f"tiles/{shard_folder(shard)}/{NOTE_NAME}"


class FolderWriter:
    """Writes a copy into a directory. A file that is there must be the same: a log is only ever added to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add_file(self, name: str, data: bytes) -> None:
        path = self._folder / name
        if path.exists() and path.name != NOTE_NAME:
            if path.read_bytes() != data:
                raise MurmurateError("file", path, "differs from the log: export to another folder and verify both")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(data)
        partial.replace(path)


class TarWriter:
    """Writes a copy as a tar archive. Two archives of one log are the same to the byte."""

    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def add_file(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._archive.addfile(info, BytesIO(data))


@contextmanager
def open_tar_writer(file: IO[bytes]) -> Iterator[TarWriter]:
    """Return a writer into an open file, which need not be able to seek."""
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        yield TarWriter(archive)


def read_folder(folder: Path) -> Iterator[LogItem]:
    """Yield the files of a copy: documents, then the tiles of each shard in order."""

    def tile_order(path: Path) -> tuple[str, bool, int, str]:
        """By shard and number, with or without leading zeros; after them any other file."""
        digits = path.stem.partition("-")[0]
        is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
        return path.parent.name, not is_number, int(digits) if is_number else 0, path.name

    for path in [*sorted(folder.glob("documents/*")), *sorted(folder.glob("tiles/*/*"), key=tile_order)]:
        if path.name.startswith(".") or not path.is_file():  # one that is being written
            continue
        if path.suffix == ".tar":
            with path.open("rb") as stream:
                yield from read_tar(str(path), stream)
            continue
        if path.stat().st_size > MAX_ITEM_BYTES:
            raise MurmurateError("source", path, f"has more than {MAX_ITEM_BYTES:,} bytes; it is no public log")
        yield LogItem(path.relative_to(folder).as_posix(), path.read_bytes())


def is_tar(beginning: bytes) -> bool:
    """Whether a file with these first bytes is a tar archive."""
    return beginning[257:262] == b"ustar"


def read_tar(source: str, stream: IO[bytes]) -> Iterator[LogItem]:
    """Yield the files of a copy in a tar archive. Damage is an item that cannot be read; the rest follows."""
    position, in_damage = 0, False
    while block := stream.read(TAR_BLOCK_BYTES):
        at, position = position, position + len(block)
        if not block.strip(b"\0"):
            continue
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            if not in_damage:
                yield LogItem(f"bytes from {at:,} on", b"\0" + block)
            in_damage = True
            continue
        in_damage = False
        if info.size > MAX_ITEM_BYTES:
            raise MurmurateError("source", source, f"has a file of {info.size:,} bytes; it is no public log")
        data = stream.read(info.size)
        position += len(data) + len(stream.read(-info.size % TAR_BLOCK_BYTES))
        if info.isreg() and is_log_file(info.name):
            yield LogItem(info.name, data or b"\0")


def is_log_file(name: str) -> bool:
    """Whether a file of an archive belongs to the log, in any folder."""
    parts = PurePosixPath(name).parts
    return parts[-2:-1] == ("documents",) or parts[-3:-2] == ("tiles",)
