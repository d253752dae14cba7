"""Where a public log is read from: files, standard input, an address, or a database. Nothing here is trusted.

The whole log at an address is the list of its shards, and under it each tile and each document. A service answers so,
and so does any web server that carries its `static_files`.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, cast
from urllib import request
from urllib.error import URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from murmurate.errors import MurmurateError
from murmurate.extras import require_extra
from murmurate.operations.console import stderr
from murmurate.operations.log_files import (
    MAX_ITEM_BYTES,
    TAR_BLOCK_BYTES,
    LogWriter,
    document_name,
    is_tar,
    note_name,
    open_tar_writer,
    read_folder,
    read_tar,
    tile_name,
)
from murmurate.operations.plan_files import read_plan_document
from murmurate.verification.releases import LoggedZone, read_zone_history
from murmurate.verification.sources import ItemKind, LogItem, LogSource, archived_note, find_kind, read_items
from murmurate.verification.verifier import check_log

if TYPE_CHECKING:
    from murmurate.service.storage.object_store import ObjectStore

MAX_LOG_LINE_BYTES = 1 << 20  # bytes; the line of a zone has about 2,000
FETCH_TIMEOUT_S = 30
SHARD_LIST = "shards"
FirstSeq = Callable[[str], int]  # of a shard: the first tile that is wanted
_COPY_CHUNK_BYTES = 1 << 16
_DATABASE_SCHEMES = ("postgresql://", "postgres://")
_OBJECT_STORES = ("s3://", "gs://", "az://")
_DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")


def open_log_source(name: str, first_seq: FirstSeq = lambda _: 0) -> LogSource:
    """Return the items of a log, from the first one each time it is called.

    What can be read only once, or may change, is kept in a temporary file. Tiles before `first_seq` of their shard may
    be left out where that is cheaper.
    """
    path = Path(name)
    if "://" not in name and path.is_dir():
        return lambda: read_folder(path)
    if "://" not in name and name != "-":
        return _FileSource(name, path.open("rb"))
    with _temporary_file() as file:
        if name == "-":
            _copy_stream(name, sys.stdin.buffer, file)
        elif name.lower().startswith(_DATABASE_SCHEMES):
            require_extra("service", "psycopg")
            from murmurate.operations.log_export import write_archive  # noqa: PLC0415  the base install has no psycopg
            from murmurate.service.storage.databases import Database  # noqa: PLC0415

            log = Database("log", name)
            log.check_reachable()
            write_archive(log, file)
        elif name.startswith(_OBJECT_STORES):
            from murmurate.service.storage.open_store import open_log_store  # noqa: PLC0415  the base install has no obstore

            with open_tar_writer(file) as writer:
                _copy_objects(open_log_store(name), writer, first_seq)
        elif not name.lower().startswith(("http://", "https://")):
            allowed = "must be a file, - or an address that begins with http://, https:// or s3://"
            raise MurmurateError("source", name, allowed)
        elif (base := find_base_address(name)) is not None:
            with open_tar_writer(file) as writer:
                _copy_whole_log(base, writer, first_seq)
        else:
            with _open_address(name) as response:
                _copy_stream(name, response, file)
    return _FileSource(source_name(name), file)


def source_name(name: str) -> str:
    """How a source is called in a report. The address of a database may hold a password."""
    return "the log database" if name.lower().startswith(_DATABASE_SCHEMES) else name


def read_verified_zone(source: str, zone: str, plans: Sequence[Path] = (), key: str | None = None) -> LoggedZone:
    """Verify a log and return what it holds about a zone. `source` is as `murmurate log verify` takes it.

    Raises MurmurateError where anything is wrong, a plan is missing or the zone is not there.
    """
    name, texts = source_name(source), [read_plan_document(path) for path in plans]
    opened = open_log_source(source)
    require_log(name, opened, is_only=True)
    with show_verification_progress() as show_records:
        report = check_log({name: opened}, plans=texts, expected_key=key, zones={zone}, progress=show_records)
    found = read_zone_history(opened, zone, texts) if report.is_valid and report.is_complete else None
    del opened  # closes the log, also where something is raised
    if not report.is_valid:
        first = report.findings[0]
        words = f"not right ({report.finding_count:,} findings; the first is {first.rule}: {first.message})"
        remedy = f"nothing is made from it. murmurate log verify {name} lists everything; take another copy of the log"
        raise MurmurateError(f"log {name}", words, remedy)
    for digest in report.missing_plans:
        raise MurmurateError("plan", f"{digest}, which {name} does not hold", "must be given: --plan plan.json")
    if found is None:
        remedy = "must be whole: murmurate log export log.tar --archive FOLDER writes such a copy"
        raise MurmurateError(f"log {name}", "without its first releases, which are in the archive", remedy)
    if zone not in report.zones:
        raise MurmurateError(
            f"zone {zone}", f"not in {name}", "must be one that murmurate log verify shows for this log"
        )
    return found


def require_log(name: str, source: LogSource, *, is_only: bool) -> None:
    """Raise MurmurateError for what is no log; that says nothing about the operator.

    Nothing in it is a tile, a document or a line of a zone; or it is one tile, and there is nothing to compare it with.
    """
    kinds = (item.kind for item in read_items(source))
    first = next(kinds, None)
    if is_only and first is ItemKind.TILE and next(kinds, None) is None:
        raise MurmurateError("source", name, "is a single tile; give the log first, and this tile after it")
    if first is ItemKind.UNKNOWN and all(kind in {ItemKind.UNKNOWN, ItemKind.PLAN} for kind in kinds):
        where = "the log of a zone is at …/zones/<zone>/log.jsonl, the whole log at the address of the service"
        raise MurmurateError("source", f"{name}, which is no public log", where)


@contextmanager
def show_verification_progress() -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many records are done: a function takes the number."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("reading the log")
        yield lambda done: bar.update(task, description=f"verifying the log: {done:,} records")


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


def _copy_stream(name: str, stream: IO[bytes], file: IO[bytes]) -> None:
    """Copy what could change between two readings."""
    try:
        while chunk := stream.read(_COPY_CHUNK_BYTES):
            file.write(chunk)
    except (OSError, HTTPException) as error:
        raise MurmurateError("source", name, f"broke off ({type(error).__name__}); try again") from None


@contextmanager
def _temporary_file() -> Iterator[IO[bytes]]:
    """A file without a name. It stays open after the block, unless the block fails."""
    file = cast("IO[bytes]", TemporaryFile())  # noqa: SIM115
    try:
        yield file
    except BaseException:
        file.close()
        raise


def find_base_address(address: str) -> str | None:
    """Return what the paths of a log begin with, if this is the address of a whole log; otherwise None.

    >>> find_base_address("https://prices.example/shards"), find_base_address("https://prices.example")
    ('https://prices.example/', 'https://prices.example/')
    >>> find_base_address("https://prices.example/zones/harbour/log.jsonl")
    """
    parts = urlsplit(address)
    folder, _, last = parts.path.rpartition("/")
    if parts.query or last not in {"", SHARD_LIST}:
        return None
    return urlunsplit((parts.scheme, parts.netloc, f"{folder}/", "", ""))


def _copy_whole_log(base: str, writer: LogWriter, first_seq: FirstSeq) -> None:
    """Copy every tile that the list of shards names, with its zone tables and their plans. Nothing of it is trusted."""
    documents: set[str] = set()

    def copy_document(digest: object) -> bytes:
        """Copy a document once, where a text is the digest of one. A second time it is empty."""
        if not isinstance(digest, str) or not _DIGEST_PATTERN.fullmatch(digest) or digest in documents:
            return b""
        documents.add(digest)
        data = fetch_bytes(f"{base}documents/{digest}")
        writer.add_file(document_name(digest), data)
        return data

    for shard, last_seq, archived_seq, kept in _fetch_shards(base):
        if archived_seq >= 0:
            writer.add_file(note_name(shard), archived_note(shard, archived_seq))
        first = first_seq(shard)
        for seq in (*(seq for seq in kept if seq >= first), *range(max(first, archived_seq + 1), last_seq + 1)):
            tile = fetch_bytes(f"{base}tiles/{quote(shard, safe='')}/{seq}")
            header = _parse_json(tile.partition(b"\n")[0])
            table = _parse_json(copy_document(header.get("table") if isinstance(header, dict) else None))
            rows = table.get("zones") if isinstance(table, dict) else None
            for row in rows if isinstance(rows, list) else []:
                copy_document(row.get("plan") if isinstance(row, dict) else None)
            writer.add_file(tile_name(shard, seq), tile)


def _copy_objects(store: ObjectStore, writer: LogWriter, first_seq: FirstSeq) -> None:
    """Copy the documents and tiles of a log in an object store. Nothing of it is trusted."""
    for folder in ("documents", "tiles"):
        wanted: dict[str, int] = {}  # by folder of a shard: the first tile
        for each in store.list_objects(folder):
            shard, _, file = each.name.removeprefix("tiles/").partition("/")
            if (
                folder == "tiles"
                and file[:-5].isdigit()
                and int(file[:-5]) < wanted.setdefault(shard, first_seq(unquote(shard)))
            ):
                continue
            data = store.read(each.name, 0, MAX_ITEM_BYTES + 1)
            if len(data) > MAX_ITEM_BYTES:
                raise MurmurateError(
                    "source", each.name, f"has more than {MAX_ITEM_BYTES:,} bytes; it is no public log"
                )
            writer.add_file(each.name, data)


def _fetch_shards(base: str) -> Iterator[tuple[str, int, int, list[int]]]:
    """Yield the shards of the list: name, last tile, last tile of those that are archived, and those of them it has."""
    listed = _parse_json(fetch_bytes(base + SHARD_LIST))
    if not isinstance(listed, list):
        raise MurmurateError("source", base + SHARD_LIST, "is no list of shards; is this the address of a service?")
    for members in listed:
        try:
            archived = members.get("archived", {"seq": -1, "kept": []})
            shard, last_seq, archived_seq, kept = members["shard"], members["seq"], archived["seq"], [*archived["kept"]]
        except (AttributeError, LookupError, TypeError):
            shard, last_seq, archived_seq, kept = None, 0, 0, []
        if not isinstance(shard, str) or not all(type(number) is int for number in (last_seq, archived_seq, *kept)):
            raise MurmurateError("source", base + SHARD_LIST, "must name each shard and the number of its last tile")
        yield shard, last_seq, archived_seq, kept


def _parse_json(data: bytes) -> object:
    """A document, or None where it is none: the check of the copy will say so."""
    try:
        return json.loads(data)
    except (RecursionError, ValueError):
        return None


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
            elif find_kind(beginning) is ItemKind.TILE:  # as a service sends it; its rows are bytes of any kind
                data = stream.read(MAX_ITEM_BYTES + 1)
                self._require(len(data) <= MAX_ITEM_BYTES, f"has more than {MAX_ITEM_BYTES:,} bytes; it is no tile")
                yield LogItem("the tile", data)
            else:
                words = f"has a line of more than {MAX_LOG_LINE_BYTES:,} bytes; it is no public log"
                for number, raw in enumerate(iter(lambda: stream.readline(MAX_LOG_LINE_BYTES + 1), b""), 1):
                    self._require(len(raw) <= MAX_LOG_LINE_BYTES, words)
                    yield LogItem(f"line {number}", raw.removesuffix(b"\n"))
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise MurmurateError("source", self._name, "is damaged: it does not unpack") from None

    def _require(self, is_small: bool, otherwise: str) -> None:
        if not is_small:
            raise MurmurateError("source", self._name, otherwise)

    def __del__(self) -> None:
        self._file.close()


def _rewind(file: IO[bytes]) -> IO[bytes]:
    """The file from its beginning, unpacked if it is compressed."""
    file.seek(0)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if packed else file
