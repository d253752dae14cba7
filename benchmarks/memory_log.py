"""A state and a log in memory, for a publisher and for a reader: what is left is the cost of the code itself."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from murmurate.public_log.tile import GENESIS_PREV
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.steps import LogTail, Offer, SeenState
from murmurate.service.log_reader.tile_source import LastTile, LoggedTile
from murmurate.service.storage.session import ClockReading
from murmurate.types import Demand


class MemoryState:
    """See `publisher.steps.StateStore`. Every zone has a demand."""

    def __init__(self) -> None:
        self._heads: dict[str, ShardHead] = {}
        self._pending: dict[str, Offer] = {}

    def lock(self, shards: tuple[str, ...]) -> dict[str, SeenState]:
        return {shard: SeenState(self._heads.get(shard), self._pending.get(shard)) for shard in shards}

    def load_demand(self, intervals: Mapping[str, tuple[int, tuple[str, ...]]]) -> Demand:
        zones = tuple(zone for _, names in intervals.values() for zone in names)
        energy_wh = np.random.default_rng(1).integers(150_000, 250_000, len(zones))
        count, bounds = np.full(len(zones), 800), ({"": 1000},) * len(zones)
        return Demand(zones=zones, energy_wh=energy_wh, reported=count, imputed=0 * count, bounds=bounds)

    def save(self, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]) -> None:
        for shard, heads in new_heads.items():
            self._heads[shard] = heads[-1]
            self._pending.pop(shard, None)
        self._pending |= {shard: offer for shard, offer in pending.items() if offer is not None}

    def rollback(self) -> None: ...


class MemoryLog:
    """See `publisher.steps.LogStore`. A tile is kept as its bytes; the last one also as it was offered."""

    def __init__(self) -> None:
        self.tiles: dict[str, list[bytes]] = {}
        self.offers: dict[str, Offer] = {}
        self.tables: dict[str, str] = {}

    def read(self, after_seq: Mapping[str, int]) -> dict[str, LogTail]:
        return {shard: self._tail(shard, seq) for shard, seq in after_seq.items()}

    def _tail(self, shard: str, after_seq: int) -> LogTail:
        if shard not in self.offers:
            return LogTail(-1, (), GENESIS_PREV)
        offer, last_seq = self.offers[shard], len(self.tiles[shard]) - 1
        assert after_seq >= last_seq - 1
        return LogTail(last_seq, (offer,) if last_seq > after_seq else (), offer.tile.hash)

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        return dict(claims)

    def append(self, offers: Mapping[str, Offer]) -> None:
        for shard, offer in offers.items():
            self.tables.setdefault(offer.table.digest, offer.table.text)
            self.tiles.setdefault(shard, []).append(offer.tile.to_bytes())
        self.offers |= offers


class MemoryTiles:
    """See `tile_source.TileSource`. Tile 0 opens a shard, each one after it is a release."""

    clock_reading: ClockReading | None = None

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def last_tiles(self) -> list[LastTile]:
        log = self._log
        return [
            LastTile(shard, len(log.tiles[shard]) - 1, offer.tile.header.interval, -1)
            for shard, offer in log.offers.items()
        ]

    def read_new(self, shard: str, after_seq: int, max_tiles: int) -> list[LoggedTile]:
        return self._read(shard, range(after_seq + 1, min(after_seq + 1 + max_tiles, len(self._log.tiles[shard]))))

    def read_intervals(self, shard: str, first: int, last: int) -> list[LoggedTile]:
        end = len(self._log.tiles[shard]) - 1
        before = self._log.offers[shard].tile.header.interval - end  # the interval that tile 0 would release
        return self._read(shard, range(max(0, first - before), min(end, last - before) + 1))

    def read_one(self, shard: str, seq: int) -> list[LoggedTile]:
        return self._read(shard, range(seq, seq + 1))

    def _read(self, shard: str, numbers: range) -> list[LoggedTile]:
        return [LoggedTile(seq, self._log.tiles[shard][seq], 0.0) for seq in numbers]

    def kept_seqs(self, shard: str, archived_seq: int) -> tuple[int, ...]:  # noqa: ARG002
        return ()

    def read_table(self, shard: str, digest: str) -> ZoneTable:  # noqa: ARG002
        return ZoneTable.from_json(self._log.tables[digest])

    def close(self) -> None: ...
