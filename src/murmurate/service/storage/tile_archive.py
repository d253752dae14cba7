"""Old tiles in files, so that the databases stay small.

    documents/<SHA-256>.json                 plans and zone tables that the tiles need
    tiles/<shard>/<first>-<last>.tar         the tiles of a range of numbers, each as `tiles/<shard>/<number>.tile`

Each shard is there from its first tile on, without a gap. A file is written once and never changed. The folder is a
copy of the log that `murmurate log verify` takes. The time of a file in a tar is when the log took the tile.
"""

from __future__ import annotations

import fcntl
import os
import re
import tarfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

from murmurate.errors import MurmurateError
from murmurate.public_log.tile import TileHeader, parse_header
from murmurate.service.storage.durable import make_directory, write_once

_NAME_PATTERN = re.compile(r"([0-9]{12})-([0-9]{12})\.tar")
_HEADER_BYTES = 4096  # where the header of a tile usually ends
_MAX_NAME = 80  # of a shard in a tar: a name is for people
_PUBLIC_FILE_MODE, _PUBLIC_FOLDER_MODE = 0o644, 0o755


class TileRange(NamedTuple):
    """A file of the archive."""

    first: int  # number of its first tile
    last: int
    path: Path


class ArchivedTile(NamedTuple):
    """A tile in an open file. Its parts are read when they are asked for, before the next tile is."""

    seq: int
    taken_s: int  # when the log took it [s of UTC]
    size: int
    file: IO[bytes]
    offset: int

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return some bytes, by default all."""
        self.file.seek(self.offset + start)
        return self.file.read(self.size - start if size is None else min(size, self.size - start))

    def read_header(self) -> tuple[TileHeader, int]:
        """Return the header, and the bytes of its line without the end."""
        line, end, _ = self.read(0, _HEADER_BYTES).partition(b"\n")
        if not end:
            line = self.read().partition(b"\n")[0]
        return parse_header(line.decode())[0], len(line)


class TileArchive:
    """A folder of old tiles. Threads may share one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def ranges(self, shard: str) -> list[TileRange]:
        """Return the files of a shard in order. Raises MurmurateError where one is missing before another."""
        folder = self.folder / "tiles" / shard_folder(shard)
        found = [
            TileRange(int(match[1]), int(match[2]), path)
            for path in sorted(folder.glob("*.tar"))
            if (match := _NAME_PATTERN.fullmatch(path.name))
        ]
        expected = 0
        for each in found:
            if each.first != expected:
                allowed = f"must begin with tile {expected}: a file before it is missing or stands twice"
                raise MurmurateError("archive", each.path, allowed)
            expected = each.last + 1
        return found

    def last_seq(self, shard: str) -> int:
        """Return the number of the last tile of a shard that is here; -1: none."""
        ranges = self.ranges(shard)
        return ranges[-1].last if ranges else -1

    def read_tiles(self, shard: str, first: int, last: int) -> Iterator[ArchivedTile]:
        """Yield the tiles with these numbers. Raises MurmurateError where one is missing."""
        for each in self.ranges(shard):
            if each.first <= last and each.last >= first:
                yield from (tile for tile in read_range(each) if first <= tile.seq <= last)

    def read_tile(self, shard: str, seq: int) -> bytes | None:
        return next((tile.read() for tile in self.read_tiles(shard, seq, seq)), None)

    def read_intervals(self, shard: str, first: int, last: int) -> Iterator[ArchivedTile]:
        """Yield the tiles of a stretch of intervals."""
        ranges = self.ranges(shard)
        begin = max(0, bisect_right(ranges, first - 1, key=_first_interval) - 1)
        for each in ranges[begin:]:
            for tile in read_range(each):
                interval = tile.read_header()[0].interval
                if interval > last:
                    return
                if interval >= first:
                    yield tile

    def write_document(self, digest: str, text: str) -> None:
        """Write a plan or a zone table, unless it is there. Raises MurmurateError where another one is there."""
        folder = self.folder / "documents"
        make_directory(folder, _PUBLIC_FOLDER_MODE)
        path = folder / f"{digest}.json"
        if not path.exists():
            write_once(path, text.encode())
        path.chmod(_PUBLIC_FILE_MODE)
        if path.read_text(encoding="utf-8") != text:
            raise MurmurateError("archive", path, "differs from the log: archive to another folder, and verify both")

    def write_tiles(self, shard: str, tiles: Sequence[tuple[int, float, bytes]]) -> TileRange:
        """Write successive tiles to a file, each with its number and when the log took it."""
        data = BytesIO()
        folder = self.folder / "tiles" / shard_folder(shard)
        with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for seq, taken_s, body in tiles:
                info = tarfile.TarInfo(f"tiles/{folder.name[:_MAX_NAME]}/{seq:012}.tile")
                info.size, info.mtime = len(body), int(taken_s)
                tar.addfile(info, BytesIO(body))
        first, last = tiles[0][0], tiles[-1][0]
        make_directory(folder, _PUBLIC_FOLDER_MODE)
        path = folder / f"{first:012}-{last:012}.tar"
        if not write_once(path, data.getbuffer()):
            raise MurmurateError("archive", path, "was written by another process: run murmurate log archive again")
        return TileRange(first, last, path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the folder during the block. Raises MurmurateError where one does."""
        make_directory(self.folder, _PUBLIC_FOLDER_MODE)
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                allowed = "in use: another murmurate log archive writes to it; wait until it has ended"
                raise MurmurateError("archive", self.folder, allowed) from None
            yield
        finally:
            os.close(descriptor)


def shard_folder(shard: str) -> str:
    """Return the name of a shard as that of a folder: quoted as in a URL.

    >>> shard_folder("east/1"), shard_folder("..")
    ('east%2F1', '%2E%2E')
    """
    folder = quote(shard, safe=" ")
    return folder.replace(".", "%2E") if folder in {".", ".."} else folder


def read_range(tiles: TileRange) -> Iterator[ArchivedTile]:
    """Yield the tiles of a file. Raises MurmurateError unless they are those that its name says."""
    expected = tiles.first
    with tiles.path.open("rb") as file:
        while block := file.read(tarfile.BLOCKSIZE):
            if not block.strip(b"\0"):
                break
            try:
                info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
                seq = int(Path(info.name).stem)
            except (tarfile.HeaderError, ValueError):
                break
            offset = file.tell()
            end = offset + info.size + -info.size % tarfile.BLOCKSIZE
            if seq != expected or end > os.fstat(file.fileno()).st_size:
                break
            yield ArchivedTile(seq, int(info.mtime), info.size, file, offset)
            expected += 1
            file.seek(end)
    if expected != tiles.last + 1:
        raise MurmurateError("archive", tiles.path, f"is damaged: it has no tile {expected}; take it from a copy")


def _first_interval(tiles: TileRange) -> int:
    return next(tile.read_header()[0].interval for tile in read_range(tiles))
