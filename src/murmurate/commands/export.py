"""`murmurate log export`: the public log as files that every reader can keep, or the lines of one zone."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, cast

from psycopg import Connection
from rich.console import Console
from rich.progress import Progress

from murmurate.commands.json_output import print_json
from murmurate.commands.log_files import FolderWriter, LogWriter, document_name, note_name, open_tar_writer, tile_name
from murmurate.errors import MurmurateError
from murmurate.public_log.canonical import canonical_json
from murmurate.service.log_reader.log_queries import LogReader, TilesArchivedError
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.verification.sources import archived_note

TILES_PER_FETCH = 16
_SELECT_ARCHIVED = "SELECT shard, seq FROM public_log.archived ORDER BY shard"
_COUNT_TILES = "SELECT coalesce(sum(seq + 1), 0)::bigint FROM public_log.head"
_SELECT_DOCUMENTS = "SELECT digest, body FROM public_log.document ORDER BY digest"
_SELECT_TILES = "SELECT shard, seq, body FROM public_log.tile ORDER BY shard, seq"

TileProgress = Callable[[int], None]  # is told how many tiles are done


def export_log(
    log: Database, out: Path, zone: str | None, archive: Path | None = None, *, as_json: bool = False
) -> None:
    """Write the log, or the lines of one zone, as they stand at one moment. A file appears only when it is whole.

    Tiles that have left the log are taken from the folder `archive`. Without it a copy says how far they have.
    """
    log.check_reachable()
    files = None if archive is None else TileArchive(archive)
    if zone is not None:
        count = _export_zone(log, out, zone, files)
    elif out.is_dir():
        count = _export_tiles(log, FolderWriter(out), files)
    else:
        with _atomic_file(out) as file:
            count = write_archive(log, file, files)
    if as_json:
        print_json({"records": count, "file": str(out)})
        return
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{count:,} records written to {out}.")
    if files is None and zone is None:
        with _snapshot(log) as connection:
            archived = connection.execute(_SELECT_ARCHIVED).fetchall()
        if archived:
            console.print(
                f"The first releases of {len(archived):,} shards are in the archive: --archive FOLDER adds them."
            )


def write_archive(log: Database, file: IO[bytes], files: TileArchive | None = None) -> int:
    """Write the log as a tar archive. Returns the number of records."""
    with open_tar_writer(file) as writer:
        return _export_tiles(log, writer, files)


def _export_tiles(log: Database, writer: LogWriter, files: TileArchive | None) -> int:
    error = Console(stderr=True)
    with _snapshot(log) as connection:
        row = connection.execute(_COUNT_TILES).fetchone()
        if not row or not row[0]:
            raise MurmurateError("the log", "empty", "there is nothing to export yet")
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            task = bar.add_task("exporting", total=row[0])
            return _write_tiles(connection, writer, files, lambda done: bar.update(task, completed=done))


def _write_tiles(connection: Connection, writer: LogWriter, files: TileArchive | None, progress: TileProgress) -> int:
    records = 0
    with connection.cursor("documents") as cursor:
        for digest, body in cursor.execute(_SELECT_DOCUMENTS):
            writer.add_file(document_name(digest), canonical_json(json.loads(body)).encode())
    archived: dict[str, int] = dict(connection.execute(_SELECT_ARCHIVED).fetchall())
    tiles: Iterable[tuple[str, int, bytes]]
    if files is None:
        for shard, last in archived.items():
            writer.add_file(note_name(shard), archived_note(shard, last))
        tiles = _kept_tiles(connection, {})
    else:
        tiles = chain(_archived_tiles(files, archived), _kept_tiles(connection, archived))
    for done, (shard, seq, data) in enumerate(tiles, 1):
        writer.add_file(tile_name(shard, seq), data)
        records += json.loads(data.partition(b"\n")[0])["count"]
        progress(done)
    return records


def _archived_tiles(files: TileArchive, archived: Mapping[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the tiles of each shard up to a number from the archive."""
    for shard, last in archived.items():
        if (found := files.last_seq(shard)) < last:
            allowed = f"ends with tile {found} of {shard}, and the log begins after {last}: give the newest archive"
            raise MurmurateError("archive", files.folder, allowed)
        for tile in files.read_tiles(shard, 0, last):
            yield shard, tile.seq, tile.read()


def _kept_tiles(connection: Connection, archived: Mapping[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the tiles of the log after these numbers."""
    with connection.cursor("tiles", binary=True) as cursor:
        cursor.itersize = TILES_PER_FETCH
        for shard, seq, body in cursor.execute(_SELECT_TILES):
            if seq > archived.get(shard, -1):
                yield shard, seq, bytes(body)


def _export_zone(log: Database, out: Path, zone: str, files: TileArchive | None) -> int:
    archive, records = LogReader(log.dsn, files), 0
    try:
        with _snapshot(log) as connection, _atomic_file(out) as file:
            for line in archive.zone_lines(connection, zone):
                file.write(line.encode() + b"\n")
                records += '"murmurate_zone":' in line and '"row":null' not in line
            if not file.tell():
                raise MurmurateError(f"zone {zone}", "empty", "there is nothing to export yet")
    except TilesArchivedError:
        allowed = "begins in the archive: add --archive FOLDER"
        raise MurmurateError("log", f"of zone {zone}", allowed) from None
    finally:
        archive.close()
    return records


@contextmanager
def _snapshot(log: Database) -> Iterator[Connection]:
    """A connection that sees the log as it is now, however long it is read."""
    with mask_database_errors(), connect(log.dsn, options=UNLIMITED_OPTIONS) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection


@contextmanager
def _atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name once it is complete and on disk."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as raw:
            if path.suffix == ".gz":
                with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
