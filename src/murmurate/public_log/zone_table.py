"""The zones of a shard: one document, named by its SHA-256, that many tiles share.

A tile has a row for each zone of its table, in the order of the table. It holds no names and no plans. A zone that is
opened or put under another plan gets a new table, which is in force from the first tile that names it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.canonical import (
    FORMAT_VERSION,
    canonical_json,
    compute_digest,
    parse_canonical,
    require_types,
)
from murmurate.public_log.merkle import LEAF_PREFIX

MAX_ZONES = 1000  # of a shard
MAX_NAME_BYTES = 200
MAX_NUMBER = 2**62  # intervals stay below it
NO_LEAF = "0" * 64  # what the first row of a chain names as the leaf before


class ZoneRow(NamedTuple):
    """One zone of a shard."""

    zone: str
    plan: str  # digest
    currency: str
    tick: str  # one price step [currency/kWh], as a fraction
    since: int  # the first interval that is decided for it


@dataclass(frozen=True)
class ZoneTable:
    """The zones of a shard, sorted by name."""

    rows: tuple[ZoneRow, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[ZoneRow]) -> ZoneTable:
        """Return the table of these zones. Raises ChainError if it breaks a rule of tables."""
        table = cls(tuple(sorted(rows)))
        table.check()
        return table

    @classmethod
    def from_json(cls, text: str) -> ZoneTable:
        """Read a table. Raises ChainError unless it is one, in canonical form."""
        members = parse_canonical(text, "zone table")
        require_types(members, {"murmurate_zones": (int,), "zones": (list,)}, "zone table")
        if members["murmurate_zones"] != FORMAT_VERSION:
            raise ChainError("zone table", members["murmurate_zones"], f"must have version {FORMAT_VERSION}")
        table = cls(tuple(_parse_row(row) for row in members["zones"]))
        table.check()
        return table

    def check(self) -> None:
        """Raise ChainError unless zones are sorted, each named once, and not too many."""
        names = [row.zone for row in self.rows]
        if not 1 <= len(names) <= MAX_ZONES:
            raise ChainError("zones", len(names), f"must be from 1 to {MAX_ZONES} in a shard")
        if any(first >= second for first, second in pairwise(names)):
            raise ChainError("zones", "in another order", "must be sorted by name, each once")
        for name in names:
            if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
                raise ChainError("zone", name, f"must have a name of 1 to {MAX_NAME_BYTES} bytes")
        for row in self.rows:
            _check_row(row)

    @property
    def text(self) -> str:
        """The document. It is made each time (4 ms for 1,000 zones), because 160 kB are not worth keeping."""
        rows = [row._asdict() for row in self.rows]
        return canonical_json({"murmurate_zones": FORMAT_VERSION, "zones": rows})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the document, as 64 hexadecimal digits."""
        return compute_digest(self.text)

    @cached_property
    def zones(self) -> tuple[str, ...]:
        return tuple(row.zone for row in self.rows)

    @cached_property
    def position(self) -> dict[str, int]:
        """The number of each zone's row."""
        return {zone: number for number, zone in enumerate(self.zones)}

    @cached_property
    def leaf_prefixes(self) -> tuple[bytes, ...]:
        """What a leaf begins with: its zone and its plan."""
        return tuple(LEAF_PREFIX + zone_prefix(row.zone, row.plan) for row in self.rows)

    def find_row(self, zone: str) -> ZoneRow | None:
        at = bisect_left(self.zones, zone)
        return self.rows[at] if at < len(self.rows) and self.zones[at] == zone else None

    def __len__(self) -> int:
        return len(self.rows)


def zone_prefix(zone: str, plan: str) -> bytes:
    """Return the bytes of a leaf that name its zone (its length in two bytes, UTF-8) and its plan (32 bytes)."""
    name = zone.encode()
    return len(name).to_bytes(2, "little") + name + bytes.fromhex(plan)


_ROW_TYPES: dict[str, tuple[type, ...]] = {
    "zone": (str,),
    "plan": (str,),
    "currency": (str,),
    "tick": (str,),
    "since": (int,),
}
_HEX_DIGITS = frozenset("0123456789abcdef")


def _parse_row(members: Any) -> ZoneRow:
    if not isinstance(members, dict):
        raise ChainError("row of a zone table", members, "must be an object")
    require_types(members, _ROW_TYPES, "row of a zone table")
    return ZoneRow(**members)


def _check_row(row: ZoneRow) -> None:
    if len(row.plan) != 64 or not _HEX_DIGITS.issuperset(row.plan):
        raise ChainError("digest", row.plan, "must be 64 hexadecimal digits")
    if abs(row.since) >= MAX_NUMBER:
        raise ChainError("number", f"in the row of {row.zone}", "must be below 2**62")
