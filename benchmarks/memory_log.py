"""A state and a log in memory, for a publisher and for a reader: what is left is the cost of the code itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
from psycopg import Connection

from murmurate.public_log.tile import GENESIS_PREV
from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.steps import LogTail, Offer, SeenState
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


class MemorySession:
    """What a follower asks PostgreSQL for, answered from a log in memory."""

    dsn = ""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        yield cast("Connection", self)

    def execute(self, query: str, parameters: tuple[Any, ...] = (), *, binary: bool = False) -> _Answer:
        del binary
        log = self._log
        if "FROM public_log.head" in query:
            return _Answer(
                [
                    (shard, len(log.tiles[shard]) - 1, offer.tile.header.interval, time.time())
                    for shard, offer in log.offers.items()
                ]
            )
        if "FROM public_log.document" in query:
            return _Answer([(log.tables[parameters[0]],)])
        shard, tiles = parameters[0], log.tiles[parameters[0]]
        if "seq = 0" in query:
            chosen = tiles[:1]
        elif "seq > " in query:
            chosen = tiles[parameters[1] + 1 :][: parameters[2]]
        else:  # by interval: tile 0 opens the shard, each one after it is a release
            last = log.offers[shard].tile.header.interval
            chosen = [
                tile
                for seq, tile in enumerate(tiles)
                if parameters[1] <= last - (len(tiles) - 1 - seq) <= parameters[2]
            ]
        return _Answer([(tile, 0.0) for tile in chosen])

    def close(self) -> None: ...


class _Answer:
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None
