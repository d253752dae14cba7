"""What was released for zones, read back from the public log: once for all zones of a shard."""

from __future__ import annotations

from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.tile import RowKind, TileKind
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import Offer
from murmurate.service.storage.public_log_store import MAX_TILES_PER_READ, PostgresLogStore
from murmurate.units import BoolArray

_MAX_OTHER_TILES = 64  # changes of zones and keys that may stand among the releases looked at


class ZoneRelease(NamedTuple):
    """The plan of a release of one zone, and whether it was measured."""

    plan: str  # digest
    measured: bool


class _ShardRelease(NamedTuple):
    table: ZoneTable
    measured: BoolArray  # [row of the table]


class ReleaseReader:
    """Reads the last releases of zones. What was read for one zone of a shard is kept for the others."""

    def __init__(self, log: PostgresLogStore) -> None:
        self._log = log
        self._kept: dict[tuple[str, int, int], list[_ShardRelease]] = {}
        self._archived_seq: dict[str, int] = {}  # by shard: releases up to this number are in the archive

    def read_zone(self, head: Offer, zone: str, intervals: int) -> tuple[list[ZoneRelease], bool]:
        """Read the last releases of a zone, and whether these are all of them."""
        header, row = head.tile.header, head.table.rows[head.table.position[zone]]
        first_seq = max(0, header.seq + 1 - intervals - _MAX_OTHER_TILES)
        found = [
            ZoneRelease(release.table.rows[at].plan, bool(release.measured[at]))
            for release in self._read_shard(header.shard, first_seq, header.seq)
            if (at := release.table.position.get(zone)) is not None
        ]
        is_complete = header.interval + 1 - len(found) == row.since
        if not is_complete and len(found) < intervals and first_seq <= self._archived_seq[header.shard]:
            allowed = f"must have the last {intervals:,} intervals of {zone}: older ones are in the archive"
            raise ChainError("log", f"of {header.shard}", allowed)
        return found, is_complete

    def _read_shard(self, shard: str, first_seq: int, last_seq: int) -> list[_ShardRelease]:
        key = (shard, first_seq, last_seq)
        if key not in self._kept:
            self._kept[key] = self._read_tiles(shard, first_seq, last_seq)
        return self._kept[key]

    def _read_tiles(self, shard: str, first_seq: int, last_seq: int) -> list[_ShardRelease]:
        releases: list[_ShardRelease] = []
        seq = first_seq
        while seq <= last_seq:
            count = min(MAX_TILES_PER_READ, last_seq + 1 - seq)
            tail = self._log.read({shard: seq - 1}, max_tiles=count)[shard]
            tiles, seq = tail.tiles, max(seq, tail.archived_seq + 1)
            self._archived_seq[shard] = tail.archived_seq
            if not tiles:
                raise ChainError("log", f"of {shard}", f"has no tile {seq}")
            for offer in tiles:
                if isinstance(offer, str):
                    raise ChainError("log", f"of {shard}", offer)
                if offer.tile.header.kind is TileKind.RELEASE:
                    releases.append(_ShardRelease(offer.table, offer.tile.rows["kind"] == RowKind.MEASURED))
            seq += len(tiles)
        return releases
