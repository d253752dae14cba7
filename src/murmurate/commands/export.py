"""`murmurate export`: the public log as files that every reader can keep, or the lines of one zone."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from psycopg import Connection
from rich.console import Console
from rich.progress import Progress

from murmurate.commands.json_output import print_json
from murmurate.commands.log_files import FolderWriter, LogWriter, document_name, open_tar_writer, tile_name
from murmurate.errors import MurmurateError
from murmurate.public_log.canonical import canonical_json
from murmurate.service.log_reader.archive import Archive
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect

TILES_PER_FETCH = 16
_COUNT_TILES = "SELECT coalesce(sum(seq + 1), 0)::bigint FROM public_log.head"
_SELECT_DOCUMENTS = "SELECT digest, body FROM public_log.document ORDER BY digest"
_SELECT_TILES = "SELECT shard, seq, body FROM public_log.tile ORDER BY shard, seq"

TileProgress = Callable[[int], None]  # is told how many tiles are done


def export_log(log: Database, out: Path, zone: str | None, *, as_json: bool = False) -> None:
    """Write the log, or the lines of one zone, as they stand at one moment. A file appears only when it is whole."""
    log.check_reachable()
    if zone is not None:
        count = _export_zone(log, out, zone)
    elif out.is_dir():
        count = _export_tiles(log, FolderWriter(out))
    else:
        with _atomic_file(out) as file:
            count = write_archive(log, file)
    if as_json:
        print_json({"records": count, "file": str(out)})
    else:
        Console(highlight=False, soft_wrap=True, markup=False).print(f"{count:,} records written to {out}.")


def write_archive(log: Database, file: IO[bytes]) -> int:
    """Write the log as a tar archive. Returns the number of records."""
    with open_tar_writer(file) as writer:
        return _export_tiles(log, writer)


def _export_tiles(log: Database, writer: LogWriter) -> int:
    error = Console(stderr=True)
    with _snapshot(log) as connection:
        row = connection.execute(_COUNT_TILES).fetchone()
        if not row or not row[0]:
            raise MurmurateError("the log", "empty", "there is nothing to export yet")
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            task = bar.add_task("exporting", total=row[0])
            return _write_tiles(connection, writer, lambda done: bar.update(task, completed=done))


def _write_tiles(connection: Connection, writer: LogWriter, progress: TileProgress) -> int:
    records = 0
    with connection.cursor("documents") as cursor:
        for digest, body in cursor.execute(_SELECT_DOCUMENTS):
            writer.add_file(document_name(digest), canonical_json(json.loads(body)).encode())
    with connection.cursor("tiles", binary=True) as cursor:
        cursor.itersize = TILES_PER_FETCH
        for done, (shard, seq, body) in enumerate(cursor.execute(_SELECT_TILES), 1):
            writer.add_file(tile_name(shard, seq), bytes(body))
            records += json.loads(bytes(body).partition(b"\n")[0])["count"]
            progress(done)
    return records


def _export_zone(log: Database, out: Path, zone: str) -> int:
    archive, records = Archive(log.dsn), 0
    try:
        with _snapshot(log) as connection, _atomic_file(out) as file:
            for line in archive.zone_lines(connection, zone):
                file.write(line.encode() + b"\n")
                records += '"murmurate_zone":' in line and '"row":null' not in line
            if not file.tell():
                raise MurmurateError(f"zone {zone}", "empty", "there is nothing to export yet")
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
