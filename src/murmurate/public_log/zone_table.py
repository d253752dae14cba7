"""The zones of a shard: one document, named by its SHA-256, that many tiles share.

A tile has a row for each open zone of its table, in the order of the table. It holds no names and no plans. A zone that
is opened, put under another plan or closed gets a new table, which is in force from the first tile that names it. A
zone that was closed stays in every later table, with what it has spent: it is never opened again.
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
    is_hash,
    parse_canonical,
    require_types,
)
from murmurate.public_log.merkle import LEAF_PREFIX

MAX_ZONES = 1000  # of a shard, open and closed
MAX_NAME_BYTES = 200
MAX_NUMBER = 2**62  # intervals stay below it


class ZoneRow(NamedTuple):
    """One zone of a shard."""

    zone: str
    plan: str  # digest
    currency: str
    tick: str  # one price step [currency/kWh], as a fraction
    since: int  # the first interval that is decided for it


class ClosedZone(NamedTuple):
    """A zone of a shard that was closed: its row as it last stood, and where its chain ended."""

    zone: str
    plan: str
    currency: str
    tick: str
    since: int
    last: int  # the last interval that was decided for it; the one before `since`: none
    total_epsilon_micro: int  # what its chain has spent
    total_rho_micro: int

    @property
    def row(self) -> ZoneRow:
        return ZoneRow(*self[:5])

    @property
    def totals(self) -> dict[str, int]:
        """What its chain has spent, as the tile that closes it states it."""
        return {"total_epsilon_micro": self.total_epsilon_micro, "total_rho_micro": self.total_rho_micro}


@dataclass(frozen=True)
class ZoneTable:
    """The zones of a shard, sorted by name: those that are open, and those that were closed."""

    rows: tuple[ZoneRow, ...]
    closed: tuple[ClosedZone, ...] = ()
    stated_digest: str = ""  # of the whole table, where this is what a line shows of it

    @classmethod
    def from_rows(cls, rows: Iterable[ZoneRow], closed: Iterable[ClosedZone] = ()) -> ZoneTable:
        """Return the table of these zones. Raises ChainError if it breaks a rule of tables."""
        table = cls(tuple(sorted(rows)), tuple(sorted(closed)))
        table.check()
        return table

    @classmethod
    def from_json(cls, text: str) -> ZoneTable:
        """Read a table. Raises ChainError unless it is one, in canonical form."""
        members = parse_canonical(text, "zone table")
        types: dict[str, tuple[type, ...]] = {"murmurate_zones": (int,), "zones": (list,)}
        if "closed" in members:
            types["closed"] = (list,)
        require_types(members, types, "zone table")
        if members["murmurate_zones"] != FORMAT_VERSION:
            raise ChainError("zone table", members["murmurate_zones"], f"must have version {FORMAT_VERSION}")
        if members.get("closed") == []:
            raise ChainError("closed", "empty", "must be left out where no zone was closed")
        rows = tuple(ZoneRow(**_parse_members(row, _ROW_TYPES)) for row in members["zones"])
        closed = tuple(ClosedZone(**_parse_members(zone, _CLOSED_TYPES)) for zone in members.get("closed", ()))
        table = cls(rows, closed)
        table.check()
        return table

    def check(self) -> None:
        """Raise ChainError unless zones are sorted, each named once, and not too many."""
        if not 1 <= len(self.rows) + len(self.closed) <= MAX_ZONES:
            raise ChainError("zones", len(self.rows) + len(self.closed), f"must be from 1 to {MAX_ZONES} in a shard")
        for names in ([row.zone for row in self.rows], [zone.zone for zone in self.closed]):
            if any(first >= second for first, second in pairwise(names)):
                raise ChainError("zones", "in another order", "must be sorted by name, each once")
        for row in (*self.rows, *(zone.row for zone in self.closed)):
            _check_row(row)
        for zone in self.closed:
            if not zone.since - 1 <= zone.last < MAX_NUMBER:
                words = f"must be an interval that was decided for {zone.zone}, or the one before"
                raise ChainError("last", zone.last, words)
            if not all(0 <= total < 2**63 for total in zone.totals.values()):
                raise ChainError("total", f"of {zone.zone}", "must be from 0 to 2**63 - 1")
            if zone.zone in self.position:
                raise ChainError("zone", zone.zone, "is closed: it is never opened again under this name")

    @property
    def text(self) -> str:
        """The document. It is made each time (4 ms for 1,000 zones), because 160 kB are not worth keeping."""
        members = {"murmurate_zones": FORMAT_VERSION, "zones": [row._asdict() for row in self.rows]}
        if self.closed:
            members["closed"] = [zone._asdict() for zone in self.closed]
        return canonical_json(members)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the document, as 64 hexadecimal digits."""
        return self.stated_digest or compute_digest(self.text)

    @cached_property
    def zones(self) -> tuple[str, ...]:
        """Those that are open."""
        return tuple(row.zone for row in self.rows)

    @cached_property
    def zones_ever(self) -> tuple[str, ...]:
        """Those that are open and those that were closed, sorted."""
        return tuple(sorted([*self.zones, *self.closed_by_zone]))

    @cached_property
    def column(self) -> dict[str, int]:
        """The number of each zone among `zones_ever`."""
        return {zone: number for number, zone in enumerate(self.zones_ever)}

    @cached_property
    def closed_by_zone(self) -> dict[str, ClosedZone]:
        return {zone.zone: zone for zone in self.closed}

    @cached_property
    def position(self) -> dict[str, int]:
        """The number of each open zone's row."""
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
_CLOSED_TYPES: dict[str, tuple[type, ...]] = _ROW_TYPES | dict.fromkeys(ClosedZone._fields[5:], (int,))


def _parse_members(members: Any, types: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    if not isinstance(members, dict):
        raise ChainError("row of a zone table", members, "must be an object")
    require_types(members, types, "row of a zone table")
    return members


def _check_row(row: ZoneRow) -> None:
    if not 1 <= len(row.zone.encode()) <= MAX_NAME_BYTES:
        raise ChainError("zone", row.zone, f"must have a name of 1 to {MAX_NAME_BYTES} bytes")
    if not is_hash(row.plan):
        raise ChainError("digest", row.plan, "must be 64 hexadecimal digits")
    if abs(row.since) >= MAX_NUMBER:
        raise ChainError("number", f"in the row of {row.zone}", "must be below 2**62")
