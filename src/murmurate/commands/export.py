"""`murmurate log export`: the public log as files that every reader can keep, or the lines of one zone."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Annotated, cast

import typer

from murmurate.errors import MurmurateError
from murmurate.operations.console import print_json, stdout
from murmurate.operations.options import AsJson, Log, complete_zone, optional_imports

with optional_imports():
    from murmurate.operations.log_export import SELECT_ARCHIVED, read_snapshot, write_archive, write_log
    from murmurate.operations.log_files import FolderWriter
    from murmurate.service.log_reader.log_queries import LogReader, TilesArchivedError
    from murmurate.service.storage.databases import Database, name_log
    from murmurate.service.storage.tile_archive import TileArchive


def export_log(
    out: Annotated[Path, typer.Argument(help="File to write, or a folder; .gz compresses a file.")],
    log: Log = "",
    zone: Annotated[
        str | None, typer.Option(help="The lines of this zone only, as log.jsonl.", autocompletion=complete_zone)
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="Folder of murmurate log archive: with the tiles in it.", file_okay=False)
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the log, or the lines of one zone, as they stand at one moment. A file appears only when it is whole."""
    database = Database("log", name_log(log).dsn)
    database.check_reachable()
    files = None if archive is None else TileArchive(archive)
    if zone is not None:
        count = _export_zone(database, out, zone, files)
    elif out.is_dir():
        count = write_log(database, FolderWriter(out), files)
    else:
        with _atomic_file(out) as file:
            count = write_archive(database, file, files)
    if as_json:
        print_json({"records": count, "file": str(out)})
        return
    stdout.print(f"{count:,} records written to {out}.")
    if files is None and zone is None:
        with read_snapshot(database) as connection:
            archived = connection.execute(SELECT_ARCHIVED).fetchall()
        if archived:
            stdout.print(
                f"The first releases of {len(archived):,} shards are in the archive: --archive FOLDER adds them."
            )


def _export_zone(log: Database, out: Path, zone: str, files: TileArchive | None) -> int:
    records = 0
    try:
        with (
            closing(LogReader(log.dsn, files)) as reader,
            read_snapshot(log) as connection,
            _atomic_file(out) as file,
        ):
            for line in reader.zone_lines(connection, zone):
                file.write(line.encode() + b"\n")
                records += '"murmurate_zone":' in line and '"row":null' not in line
            if not file.tell():
                raise MurmurateError(f"zone {zone}", "empty", "there is nothing to export yet")
    except TilesArchivedError:
        allowed = "begins in the archive: add --archive FOLDER"
        raise MurmurateError("log", f"of zone {zone}", allowed) from None
    return records


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
