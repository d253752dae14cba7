"""What a public log is made of, piece by piece: tiles, plans, zone tables, lines of one zone, notes of an archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from murmurate.public_log.canonical import FORMAT_VERSION, canonical_json, parse_canonical, require_types


class LogItem(NamedTuple):
    """One piece of a log."""

    name: str  # of its file, or the number of its line: for findings
    data: bytes


LogSource = Callable[[], Iterable[LogItem | bytes | str]]  # the items of a log, from the first one in each call


class ItemKind(Enum):
    """What an item is. It says so itself: the JSON of each kind begins with another member."""

    TILE = auto()
    ZONE_LINE = auto()
    ZONE_TABLE = auto()
    PLAN = auto()
    ARCHIVED = auto()  # how far the releases of a shard are in an archive
    UNKNOWN = auto()


NOTE_NAME = "archived.json"  # the file of a note, beside the tiles of its shard
_BEGINNINGS = {
    b'{"archived_seq":': ItemKind.ARCHIVED,
    b'{"count":': ItemKind.TILE,
    b'{"index":': ItemKind.ZONE_LINE,
    b'{"murmurate_zones":': ItemKind.ZONE_TABLE,
    b'{"closed":': ItemKind.ZONE_TABLE,  # of a shard with zones that were closed
}
_PLAN_MARKER = b'"murmurate_plan"'


def find_kind(data: bytes) -> ItemKind:
    """Return what an item is, by its first member.

    >>> find_kind(b'{"index":null,"murmurate_zone":1}')
    <ItemKind.ZONE_LINE: 2>
    """
    for beginning, kind in _BEGINNINGS.items():
        if data.startswith(beginning):
            return kind
    return ItemKind.PLAN if _PLAN_MARKER in data else ItemKind.UNKNOWN


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


def read_items(source: LogSource) -> Iterator[LogItem]:
    """Yield the items of a source, each with a name. Empty lines are left out."""
    for number, item in enumerate(source(), 1):
        if isinstance(item, LogItem):
            named = item
        else:
            named = LogItem(f"item {number}", item.encode(errors="replace") if isinstance(item, str) else bytes(item))
        if named.data:
            yield named
