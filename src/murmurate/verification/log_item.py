"""What a public log is made of, piece by piece: tiles, plans, zone tables, and lines of one zone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple


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
    UNKNOWN = auto()


_BEGINNINGS = {
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


def read_items(source: LogSource) -> Iterator[LogItem]:
    """Yield the items of a source, each with a name. Empty lines are left out."""
    for number, item in enumerate(source(), 1):
        if isinstance(item, LogItem):
            named = item
        else:
            named = LogItem(f"item {number}", item.encode(errors="replace") if isinstance(item, str) else bytes(item))
        if named.data:
            yield named
