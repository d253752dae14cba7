"""`murmurate export`: the public log as a file: plans first, then every entry in order."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import psycopg
from rich.console import Console
from rich.progress import Progress

from murmurate.errors import MurmurateError
from murmurate.service.log_reader.archive import LOG_CURSOR_ROWS, log_lines
from murmurate.service.storage.databases import Database, mask_database_errors

_COUNT_RECORDS = (
    "SELECT coalesce(sum(seq + 1), 0)::bigint FROM public_log.head WHERE %(zone)s::text IS NULL OR zone = %(zone)s"
)


def export_log(log: Database, out: Path, zone: str | None) -> None:
    """Write the log, or one zone of it, as it stands at one moment. A file appears only when it is whole."""
    log.check_reachable()
    error = Console(stderr=True)
    with mask_database_errors(), psycopg.connect(log.dsn) as connection, _atomic_file(out) as file:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        parameters = {"zone": zone}
        row = connection.execute(_COUNT_RECORDS, parameters).fetchone()
        total = row[0] if row else 0
        if not total:
            what = "the log" if zone is None else f"zone {zone}"
            raise MurmurateError(what, "empty", "there is nothing to export yet")
        with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
            task = bar.add_task("exporting", total=total)
            for written, line in enumerate(log_lines(connection, zone)):
                file.write(line.encode() + b"\n")
                if written % LOG_CURSOR_ROWS == 0:
                    bar.update(task, completed=written)
    Console(highlight=False, soft_wrap=True, markup=False).print(f"{total:,} records written to {out}.")


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
