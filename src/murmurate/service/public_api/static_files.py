"""What never changes, as files: tiles, documents, complete days, and the prices of a shard for each recent interval.

Each has the path of its address. Any web server or CDN can carry them, and the service is asked for the rest. A file is
there whole or not at all. What cannot be the name of a file (a zone with a slash) stays with the service. One file
changes: `shards` lists the shards and how many of their tiles are there, so that the folder alone can be verified. What
was lost or damaged is written again, as far as the log has it. Prices of a shard leave after hours: days have them.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import psycopg

from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import parse_header, parse_tile
from murmurate.public_log.tile_chain import check_signature
from murmurate.public_log.zone_table import ZoneTable
from murmurate.service.log_reader.log_queries import LogReader
from murmurate.service.log_reader.zone_view import MakeView, ShardView, ZoneView
from murmurate.service.public_api.local_days import is_day_complete, recent_days
from murmurate.service.public_api.price_formats import (
    day_document,
    shard_entry,
    shard_prices_document,
    shard_prices_path,
)
from murmurate.service.public_api.response_cache import encode_json
from murmurate.verification.sources import NOTE_NAME, archived_note

logger = logging.getLogger(__name__)

TILES_AT_ONCE = 16
DOCUMENTS_AT_ONCE = 64
LOOK_EVERY_S = 60.0  # whether all files are there, also without a new tile
CHECK_EVERY_S = 86_400.0  # whether each file is what the log has
CHECK_PAUSE_S = 0.1  # between two groups of files that are compared
KEPT_PRICES_S = 6 * 3600  # of a shard, before the interval that was measured last
_LIST_NAME = "shards"
_RETRY_AFTER_S = 5.0
_STOP_TIMEOUT_S = 10.0


class StaticFileWriter:
    """Writes the files of shards that have changed, in its own thread.

    Nothing that was written once is believed to be there. Each round looks for the files of its shard; where one is
    missing that the list names, the list is removed first, and comes back when all shards were looked at. Once a day
    each file is compared with the log, a few at a time.
    """

    def __init__(self, folder: Path, archive: LogReader, make_view: MakeView) -> None:
        self._folder, self._archive, self._make_view = folder, archive, make_view
        self._shards: dict[str, ShardView] = {}  # as they stand
        self._changed: dict[str, None] = {}  # names of shards to be written
        self._tables: dict[str, set[str]] = {}  # by shard: zone tables that its tiles name
        self._plans: dict[str, set[str]] = {}  # by shard: plans that those name
        self._listed = _read_list(folder / _LIST_NAME)  # by shard, as `/shards` shows it; its tiles are there
        self._is_list_written = bool(self._listed)
        self._check, self._check_at_s = self._check_files(), 0.0
        self._wake = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="static files", daemon=True)
        self._thread.start()

    def notify(self, shard: ShardView) -> None:
        """Have the files of a shard written. It does not wait."""
        with self._wake:
            self._shards[shard.name] = shard
            self._changed[shard.name] = None
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                wait_s = max(0.0, self._check_at_s - time.monotonic())
                self._wake.wait_for(lambda: self._changed or self._is_stopped, wait_s)
                if self._is_stopped:
                    return
                name = next(iter(self._changed), "")
                self._changed.pop(name, None)
            try:
                if name:
                    self.write_shard(self._shards[name])
                    if not self._changed:  # at the end of many, not after each
                        self.write_list()
                if time.monotonic() >= self._check_at_s:
                    self._check_at_s = time.monotonic() + next(self._check)
            except (psycopg.Error, OSError, MurmurateError) as error:
                logger.warning("files not written", extra={"shard": name, "reason": type(error).__name__})
                self._check = self._check_files()  # an error has ended it
                with self._wake:
                    self._changed.update(dict.fromkeys([name] if name else []))
                    self._wake.wait_for(lambda: self._is_stopped, _RETRY_AFTER_S)

    def write_shard(self, shard: ShardView) -> None:
        """Write what is not there: tiles up to the head, their zone tables and plans, complete days."""
        if self._is_list_written and not (self._folder / _LIST_NAME).exists():
            self._withdraw_list(shard.name)
        if _is_file_name(shard.name):
            self._write_log(shard)
            self._write_prices(shard)
        for path, day, view in self._day_files(shard):
            if not path.exists() and not self._is_stopped:
                _write_whole(path, encode_json(day_document(view, day)))

    def _write_prices(self, shard: ShardView) -> None:
        """Write the prices of recent intervals, and remove older ones."""
        for path, interval in reversed([*self._price_files(shard)]):  # the newest first: clients ask for it next
            if not path.exists() and not self._is_stopped:
                _write_whole(path, encode_json(shard_prices_document(shard, interval)))
        oldest = self._folder / shard_prices_path(shard, _first_kept(shard))
        for path in oldest.parent.glob("[0-9]*.json"):
            if path.name < oldest.name:
                path.unlink(missing_ok=True)

    def _price_files(self, shard: ShardView) -> Iterator[tuple[Path, int]]:
        """The files of the prices of a shard that are kept and in memory, each with its interval."""
        lead = shard.lead_intervals
        for interval in range(max(shard.first + lead, _first_kept(shard)), shard.last + lead + 1):
            yield self._folder / shard_prices_path(shard, interval), interval

    def _write_log(self, shard: ShardView) -> None:
        """Write the tiles that are not there, each after the documents that it names."""
        name, folder = shard.name, self._folder / "tiles" / shard.name
        if name not in self._tables:
            self._tables[name], self._plans[name] = set(), set()
            for digest in self._archive.read_table_digests(name):
                self._note_table(name, digest)
        missing = _missing_numbers(folder, shard.head.tile.header.seq + 1)
        documents = self._missing_documents(name)
        listed = self._listed.get(name)
        if listed is not None and (documents or any(_is_listed(listed, seq) for seq in missing)):
            self._withdraw_list(name)
        self._write_documents(documents)
        left, at = set(missing), 0
        while at < len(missing) and not self._is_stopped:
            tiles = self._archive.read_tiles(name, missing[at] - 1, TILES_AT_ONCE)
            for seq, body in tiles:
                if seq in left:
                    header, _ = parse_header(body.partition(b"\n")[0].decode())
                    if header.table not in self._tables[name]:
                        self._note_table(name, header.table)
                        self._write_documents(self._missing_documents(name))
                    _write_whole(folder / str(seq), body)
                    left.remove(seq)
            at = bisect_right(missing, tiles[-1][0]) if tiles else len(missing)
        if not self._is_stopped:
            self._list_shard(shard, left, was_whole="archived" not in (listed or {}))

    def _list_shard(self, shard: ShardView, left: set[int], *, was_whole: bool) -> None:
        """List a shard, if all its tiles are here but for some that have left the log. What is not here is logged."""
        archived = {seq for seq in left if seq <= shard.archived_seq}.difference(shard.kept_seqs)
        note, path = archived_note(shard.name, shard.archived_seq), self._folder / "tiles" / shard.name / NOTE_NAME
        if not archived:
            path.unlink(missing_ok=True)  # a reader of the folder finds all tiles here
        elif not path.exists() or _differs(path, note):
            _write_whole(path, note)
        remedy = "put them back from a copy"
        if left == archived:
            self._listed[shard.name] = shard_entry(shard, has_archived=not archived)
            remedy = "set archive in the settings to the folder of murmurate log archive"
        if left != archived or (archived and was_whole):
            extra = {"shard": shard.name, "count": len(left), "first": min(left), "remedy": remedy}
            logger.error("tiles lost", extra=extra)

    def _note_table(self, shard: str, digest: str) -> None:
        """Have a zone table and its plans among the documents of a shard."""
        table = ZoneTable.from_json(self._archive.read_document(digest) or "")
        self._plans[shard].update(row.plan for row in (*table.rows, *(zone.row for zone in table.closed)))
        self._tables[shard].add(digest)

    def _document_files(self, shard: str) -> Iterator[tuple[Path, str]]:
        """The files of the zone tables and plans of a shard, each with its digest."""
        for digest in self._tables[shard] | self._plans[shard]:
            yield self._folder / "documents" / digest, digest
        for digest in self._plans[shard]:
            yield self._folder / "plans" / f"{digest}.json", digest

    def _missing_documents(self, shard: str) -> list[tuple[Path, str]]:
        return [(path, digest) for path, digest in self._document_files(shard) if not path.exists()]

    def _write_documents(self, files: Sequence[tuple[Path, str]]) -> None:
        for group in self._read_documents(files):
            for path, digest, data in group:
                if data is None:
                    raise ChainError("document", digest, "is not in the log")
                _write_whole(path, data)

    def _read_documents(self, files: Sequence[tuple[Path, str]]) -> Iterator[list[tuple[Path, str, bytes | None]]]:
        """Yield files of documents with what the log has of them, a group at a time."""
        for first in range(0, len(files), DOCUMENTS_AT_ONCE):
            some = files[first : first + DOCUMENTS_AT_ONCE]
            texts = self._archive.read_documents([digest for _, digest in some])
            yield [(path, digest, texts[digest].encode() if digest in texts else None) for path, digest in some]

    def _day_files(self, shard: ShardView) -> Iterator[tuple[Path, date, ZoneView]]:
        """The files of the complete days that are in memory."""
        for zone in filter(_is_file_name, shard.table.zones_ever):
            view = self._make_view(shard, zone)
            for day in recent_days(view):
                if is_day_complete(view, day):
                    yield self._folder / "zones" / zone / "days" / f"{day}.json", day, view

    def write_list(self) -> None:
        """Write which shards are here, each up to a tile that is here as well; no list where there is none."""
        path = self._folder / _LIST_NAME
        data = encode_json([entry for _, entry in sorted(self._listed.items())])
        if not self._listed:
            path.unlink(missing_ok=True)
        elif not (path.exists() and path.read_bytes() == data):
            _write_whole(path, data)
        self._is_list_written = bool(self._listed)

    def _withdraw_list(self, shard: str) -> None:
        """Remove the list until all shards were looked at: where a file was lost, others may be."""
        logger.warning("files lost", extra={"shard": shard})
        self._listed.clear()
        self.write_list()
        with self._wake:
            self._changed.update(dict.fromkeys(self._shards))

    def _check_files(self) -> Iterator[float]:
        """Compare each file with the log, a few at a time, and a day later again. Yields how long to wait [s]."""
        while True:
            while not self._shards:
                yield LOOK_EVERY_S
            end_s = time.monotonic() + CHECK_EVERY_S
            for name in list(self._shards):
                for _ in self._check_shard(name):
                    yield CHECK_PAUSE_S
            while time.monotonic() < end_s:
                yield LOOK_EVERY_S
                with self._wake:
                    self._changed.update(dict.fromkeys(self._shards))

    def _check_shard(self, name: str) -> Iterator[None]:
        """Compare the files of a shard with the log, a group at a time, and write again what was damaged."""
        after = -1
        while name in self._tables and (tiles := self._archive.read_tiles(name, after, TILES_AT_ONCE)):
            for seq, body in tiles:
                path = self._folder / "tiles" / name / str(seq)
                if _differs(path, body) and _is_another_tile(path.read_bytes(), body):
                    logger.error("file differs from the log", extra={"file": str(path)})
                else:
                    _restore_file(path, body)
            after = tiles[-1][0]
            yield
        for group in self._read_documents(list(self._document_files(name)) if name in self._tables else []):
            for path, _, data in group:
                if data is not None:
                    _restore_file(path, data)
            yield
        for path, day, view in self._day_files(self._shards[name]):
            _restore_file(path, encode_json(day_document(view, day)))
            yield
        shard = self._shards[name]
        for path, interval in self._price_files(shard) if _is_file_name(name) else ():
            _restore_file(path, encode_json(shard_prices_document(shard, interval)))
        yield

    def close(self) -> None:
        """Stop writing. What is left is written by the next process."""
        with self._wake:
            self._is_stopped = True
            self._wake.notify()
        self._thread.join(_STOP_TIMEOUT_S)
        self._archive.close()


def _first_kept(shard: ShardView) -> int:
    """The first interval whose prices stay as a file of the shard."""
    return shard.last - KEPT_PRICES_S // shard.interval_s


def _missing_numbers(folder: Path, end: int) -> list[int]:
    """The numbers below `end` that are not the name of a file in a folder, ascending."""
    is_there = bytearray(end)
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):  # noqa: PTH208  no object for each of many files
            if name.isdecimal() and int(name) < end:
                is_there[int(name)] = 1
    return [] if is_there.find(0) < 0 else [number for number in range(end) if not is_there[number]]


def _is_listed(entry: dict[str, Any], seq: int) -> bool:
    """Whether the list names a tile."""
    archived = entry.get("archived", {"seq": -1, "kept": []})
    return bool(seq <= entry["seq"] and (seq > archived["seq"] or seq in archived["kept"]))


def _differs(path: Path, data: bytes) -> bool:
    """Whether a file is there and holds something else."""
    try:
        return path.stat().st_size != len(data) or path.read_bytes() != data
    except FileNotFoundError:
        return False


def _is_another_tile(found: bytes, logged: bytes) -> bool:
    """Whether bytes are a signed tile with another header: evidence against the log, which must stay."""
    try:
        tile = parse_tile(found)
        check_signature(tile, verify_signature)
    except (ChainError, ValueError):
        return False
    return tile.header_line != logged.partition(b"\n")[0]


def _restore_file(path: Path, data: bytes) -> None:
    """Write a file again that holds something else."""
    if _differs(path, data):
        logger.warning("file was damaged", extra={"file": str(path)})
        _write_whole(path, data)


def _is_file_name(name: str) -> bool:
    """Whether a web server finds the file of this name; one that begins with a dot it may hide."""
    return not name.startswith(".") and "/" not in name and "\0" not in name


def _read_list(path: Path) -> dict[str, dict[str, Any]]:
    """The list that a process before this one has written. One that cannot be read is written again."""
    try:
        found = {str(entry["shard"]): {**entry, "seq": int(entry["seq"])} for entry in json.loads(path.read_bytes())}
        return {shard: entry for shard, entry in found.items() if _is_listed(entry, entry["seq"])}  # all of its members
    except (OSError, ValueError, TypeError, LookupError):
        return {}


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
