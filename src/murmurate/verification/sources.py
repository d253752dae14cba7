"""What a public log is made of, piece by piece: tiles, plans, zone tables, lines of one zone, notes of an archive."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from hashlib import sha256
from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.canonical import FORMAT_VERSION, canonical_json, parse_canonical, require_types
from murmurate.public_log.tile import TileKind, parse_header

READ_ERRORS = (ChainError, RecursionError, ValueError, OverflowError)
NOTE_NAME = "archived.json"  # the file of a note, in the folder of its shard


class ItemKind(Enum):
    """What an item is. It says so itself: the JSON of each kind begins with another member."""

    TILE = auto()
    ZONE_LINE = auto()
    ZONE_TABLE = auto()
    PLAN = auto()
    ARCHIVED = auto()  # how far the releases of a shard are in an archive
    UNKNOWN = auto()


_BEGINNINGS = {
    b'{"archived_seq":': ItemKind.ARCHIVED,
    b'{"count":': ItemKind.TILE,
    b'{"index":': ItemKind.ZONE_LINE,
    b'{"murmurate_zones":': ItemKind.ZONE_TABLE,
    b'{"closed":': ItemKind.ZONE_TABLE,  # of a shard with zones that were closed
}
_PLAN_MARKER = b'"murmurate_plan"'


class LogItem(NamedTuple):
    """One piece of a log."""

    name: str  # of its file, or the number of its line: for findings
    data: bytes

    @property
    def kind(self) -> ItemKind:
        return find_kind(self.data)

    @property
    def header_line(self) -> bytes:
        """The first line: the header of a tile."""
        return self.data.partition(b"\n")[0]


LogSource = Callable[[], Iterable[LogItem | bytes | str]]  # the items of a log, from the first one in each call


def find_kind(data: bytes) -> ItemKind:
    """Return what an item is, by its first member.

    >>> find_kind(b'{"index":null,"murmurate_zone":1}')
    <ItemKind.ZONE_LINE: 2>
    """
    for beginning, kind in _BEGINNINGS.items():
        if data.startswith(beginning):
            return kind
    return ItemKind.PLAN if _PLAN_MARKER in data else ItemKind.UNKNOWN


def read_items(source: LogSource, *kinds: ItemKind) -> Iterator[LogItem]:
    """Yield the items of a source, each with a name; those of some kinds, if any is given. Empty ones are left out."""
    for number, item in enumerate(source(), 1):
        if isinstance(item, LogItem):
            named = item
        else:
            named = LogItem(f"item {number}", item.encode(errors="replace") if isinstance(item, str) else bytes(item))
        if named.data and (not kinds or named.kind in kinds):
            yield named


def peek_place(data: bytes) -> tuple[str, int | None, str]:
    """Return what a tile or a line states about its place, even if it is damaged: shard, number and zone table."""
    try:
        members = json.loads(data.partition(b"\n")[0])
        members = members.get("tile", members)
        shard, seq, table = members.get("shard", ""), members.get("seq"), members.get("table", "")
    except (AttributeError, RecursionError, ValueError):
        return "", None, ""
    well_typed = isinstance(shard, str) and isinstance(table, str) and (seq is None or isinstance(seq, int))
    return (shard, seq, table) if well_typed else ("", None, "")


def first_release_s(source: LogSource) -> int:
    """Return when the first release of a source begins [s of UTC]: an archive is read before what continues it."""
    for item in read_items(source, ItemKind.TILE):
        try:
            header = parse_header(item.header_line.decode())[0]
        except READ_ERRORS:
            continue
        if header.kind is TileKind.RELEASE:
            return header.interval * header.interval_s
    return 0


def find_items(sources: Mapping[str, LogSource], wanted: Collection[str]) -> dict[str, bytes]:
    """Return the tiles and lines with these hashes: of a header, or of a line itself."""
    found: dict[str, bytes] = {}
    for source in sources.values() if wanted else ():
        for item in read_items(source, ItemKind.TILE, ItemKind.ZONE_LINE):
            texts = [item.header_line]
            if item.kind is ItemKind.ZONE_LINE:
                with suppress(KeyError, RecursionError, TypeError, ValueError):  # one that cannot be read has no tile
                    texts.append(canonical_json(json.loads(item.data)["tile"]).encode())
            for each in (sha256(text).hexdigest() for text in texts):
                if each in wanted:
                    found.setdefault(each, item.data)
    return found


def archived_note(shard: str, seq: int) -> bytes:
    """Return what a copy says where the releases of a shard up to a number are in an archive. It is not signed.

    >>> archived_note("east", 32)
    b'{"archived_seq":32,"murmurate_archived":1,"shard":"east"}'
    """
    return canonical_json({"archived_seq": seq, "murmurate_archived": FORMAT_VERSION, "shard": shard}).encode()


def parse_archived_note(data: bytes) -> tuple[str, int]:
    """Return the shard and the number of a note. Raises ChainError for anything else."""
    members = parse_canonical(data.decode(errors="replace"), "note")
    require_types(members, {"archived_seq": (int,), "murmurate_archived": (int,), "shard": (str,)}, "note")
    return members["shard"], members["archived_seq"]
