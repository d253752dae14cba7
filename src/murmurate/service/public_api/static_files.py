"""What never changes, as files: tiles, documents and complete days, each under the path of its address.

Any web server or CDN can carry them, and the service is asked for the rest. A file is written once, whole or not at
all. What cannot be the name of a file (a zone with a slash) stays with the service. One file changes: `shards` lists
the shards and how many of their tiles are there, so that the folder alone can be verified.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from datetime import date
from pathlib import Path

import psycopg

from murmurate.errors import MurmurateError
from murmurate.public_log.tile import parse_header
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.archive import Archive
from murmurate.service.log_reader.zone_view import ShardView, ZoneView
from murmurate.service.log_reader.zone_views import MakeView
from murmurate.service.public_api.formats.day import day_document
from murmurate.service.public_api.formats.listings import shard_entry
from murmurate.service.public_api.local_days import is_day_complete, recent_days
from murmurate.service.public_api.response_cache import encode_json

logger = logging.getLogger(__name__)

TILES_AT_ONCE = 16
_LIST_NAME = "shards"
_RETRY_AFTER_S = 5.0
_STOP_TIMEOUT_S = 10.0


class StaticFileWriter:
    """Writes the files of shards that have changed, in a thread of its own."""

    def __init__(self, folder: Path, archive: Archive, make_view: MakeView) -> None:
        self._folder, self._archive, self._make_view = folder, archive, make_view
        self._changed: dict[str, ShardView] = {}
        self._next_seq: dict[str, int] = {}  # by shard: the first tile that may not be there
        self._tables: set[str] = set()  # digests of zone tables that are there
        self._days: dict[str, tuple[object, ...]] = {}  # by shard: zones and complete days that are there
        self._listed = _read_list(folder / _LIST_NAME)  # by shard, as `/shards` shows it; its tiles are there
        self._wake = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="static files", daemon=True)
        self._thread.start()

    def notify(self, shard: ShardView) -> None:
        """Have the files of a shard written. It does not wait."""
        with self._wake:
            self._changed[shard.name] = shard
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._changed or self._is_stopped)
                if self._is_stopped:
                    return
                name = next(iter(self._changed))
                shard = self._changed.pop(name)
            try:
                self.write_shard(shard)
                if not self._changed:  # at the end of many, not after each
                    self.write_list()
            except (psycopg.Error, OSError, MurmurateError) as error:
                logger.warning("files not written", extra={"shard": name, "reason": type(error).__name__})
                with self._wake:
                    self._changed.setdefault(name, shard)
                    self._wake.wait_for(lambda: self._is_stopped, _RETRY_AFTER_S)

    def write_shard(self, shard: ShardView) -> None:
        """Write what is not there yet: tiles up to the head, their zone tables and plans, complete days."""
        if _is_file_name(shard.name):
            self._write_tiles(shard)
        self._write_days(shard)

    def _write_tiles(self, shard: ShardView) -> None:
        folder, end = self._folder / "tiles" / shard.name, shard.head.tile.header.seq + 1
        seq = self._next_seq.get(shard.name, 0)
        while seq < end and (folder / str(seq)).exists():  # by a process before this one
            seq += 1
        while seq < end and not self._is_stopped:
            for number, body in self._archive.read_tiles(shard.name, seq - 1, min(TILES_AT_ONCE, end - seq)):
                header, _ = parse_header(body.partition(b"\n")[0].decode())
                self._write_documents(header.table)
                _write_once(folder / str(number), body)
                seq = number + 1
        self._next_seq[shard.name] = seq
        self._write_documents(shard.table.digest)
        if seq == end:
            self._listed[shard.name] = shard_entry(shard)

    def write_list(self) -> None:
        """Write which shards are here, each up to a tile that is here as well."""
        data = encode_json([entry for _, entry in sorted(self._listed.items())])
        path = self._folder / _LIST_NAME
        if self._listed and not (path.exists() and path.read_bytes() == data):
            _write_whole(path, data)

    def _write_documents(self, digest: str) -> None:
        """A zone table, and the plans in it."""
        if digest in self._tables:
            return
        text = self._archive.read_document(digest) or ""
        folder = self._folder / "documents"
        plans = {row.plan for row in ZoneTable.from_json(text).rows}
        missing = [plan for plan in plans if not (folder / plan).exists()]
        for plan, document in self._archive.read_documents(missing).items():
            _write_once(self._folder / "plans" / f"{plan}.json", document.encode())
            _write_once(folder / plan, document.encode())
        _write_once(folder / digest, text.encode())
        self._tables.add(digest)

    def _write_days(self, shard: ShardView) -> None:
        """The complete days that are in memory, where they are others than the last time."""
        views = [self._make_view(shard, zone) for zone in shard.table.zones if _is_file_name(zone)]
        days = [_complete_days(view) for view in views]
        state = (shard.table.zones, *dict.fromkeys(days))
        if self._days.get(shard.name) == state:
            return
        for view, its_days in zip(views, days, strict=True):
            for day in its_days:
                path = self._folder / "zones" / view.zone / "days" / f"{day}.json"
                if self._is_stopped:
                    return
                if not path.exists():
                    _write_once(path, encode_json(day_document(view, day)))
        self._days[shard.name] = state

    def close(self) -> None:
        """Stop writing. What is left is written by the next process."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()
        self._thread.join(_STOP_TIMEOUT_S)
        self._archive.close()


def _complete_days(view: ZoneView) -> tuple[date, ...]:
    """The days whose prices are all decided and at hand."""
    return tuple(day for day in recent_days(view) if is_day_complete(view, day))


def _is_file_name(name: str) -> bool:
    """Whether a web server finds the file of this name; one that begins with a dot it may hide."""
    return not name.startswith(".") and "/" not in name and "\0" not in name


def _read_list(path: Path) -> dict[str, dict[str, object]]:
    """The list that a process before this one has written. One that cannot be read is written again."""
    try:
        return {str(entry["shard"]): entry for entry in json.loads(path.read_bytes())}
    except (OSError, ValueError, TypeError, LookupError):
        return {}


def _write_once(path: Path, data: bytes) -> None:
    """Put a file in place, unless it is there."""
    if not path.exists():
        _write_whole(path, data)


def _write_whole(path: Path, data: bytes) -> None:
    """Put a file in place that everybody may read. It is on the disk before it has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
