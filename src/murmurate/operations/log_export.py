"""The tiles and documents of the log database as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from psycopg import Connection
from rich.progress import Progress

from murmurate.errors import MurmurateError
from murmurate.operations.console import stderr
from murmurate.operations.log_files import LogWriter, document_name, note_name, open_tar_writer, tile_name
from murmurate.public_log.canonical import canonical_json
from murmurate.service.storage.databases import Database, mask_database_errors
from murmurate.service.storage.session import UNLIMITED_OPTIONS, connect
from murmurate.service.storage.tile_archive import TileArchive
from murmurate.verification.sources import archived_note

TILES_PER_FETCH = 16
SELECT_ARCHIVED = "SELECT shard, seq FROM public_log.archived ORDER BY shard"
_COUNT_TILES = "SELECT coalesce(sum(seq + 1), 0)::bigint FROM public_log.head"
_SELECT_DOCUMENTS = "SELECT digest, body FROM public_log.document ORDER BY digest"
_SELECT_TILES = "SELECT shard, seq, body FROM public_log.tile ORDER BY shard, seq"


@contextmanager
def read_snapshot(log: Database) -> Iterator[Connection]:
    """A connection that sees the log as it is now, however long it is read."""
    with mask_database_errors(), connect(log.dsn, options=UNLIMITED_OPTIONS) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection


def write_archive(log: Database, file: IO[bytes], files: TileArchive | None = None) -> int:
    """Write the log as a tar archive. Returns the number of records."""
    with open_tar_writer(file) as writer:
        return write_log(log, writer, files)


def write_log(log: Database, writer: LogWriter, files: TileArchive | None) -> int:
    """Write documents and tiles as they stand at one moment. Returns the number of records.

    Tiles that have left the log are taken from `files`. Without it a note says how far they have.
    """
    with read_snapshot(log) as connection:
        row = connection.execute(_COUNT_TILES).fetchone()
        if not row or not row[0]:
            raise MurmurateError("the log", "empty", "there is nothing to export yet")
        with connection.cursor("documents") as cursor:
            for digest, body in cursor.execute(_SELECT_DOCUMENTS):
                writer.add_file(document_name(digest), canonical_json(json.loads(body)).encode())
        records = 0
        with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
            for shard, seq, data in bar.track(_read_tiles(connection, writer, files), row[0], description="exporting"):
                writer.add_file(tile_name(shard, seq), data)
                records += json.loads(data.partition(b"\n")[0])["count"]
    return records


def _read_tiles(
    connection: Connection, writer: LogWriter, files: TileArchive | None
) -> Iterator[tuple[str, int, bytes]]:
    """Yield the tiles that are in the archive, then those of the log after them."""
    archived: dict[str, int] = dict(connection.execute(SELECT_ARCHIVED).fetchall())
    for shard, last in archived.items():
        if files is None:
            writer.add_file(note_name(shard), archived_note(shard, last))
            continue
        if (found := files.last_seq(shard)) < last:
            allowed = f"ends with tile {found} of {shard}, and the log begins after {last}: give the newest archive"
            raise MurmurateError("archive", files.folder, allowed)
        for tile in files.read_tiles(shard, 0, last):
            yield shard, tile.seq, tile.read()
    with connection.cursor("tiles", binary=True) as cursor:
        cursor.itersize = TILES_PER_FETCH
        for shard, seq, body in cursor.execute(_SELECT_TILES):
            if files is None or seq > archived.get(shard, -1):
                yield shard, seq, bytes(body)
