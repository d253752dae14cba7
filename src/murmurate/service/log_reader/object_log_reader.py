"""Read what is old from a public log in an object store: see `log_queries.LogReader`. Tiles are read whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import RowKind, TileKind, is_closed_by
from murmurate.public_log.zone_line import make_zone_line
from murmurate.publisher.steps import Offer
from murmurate.service.log_reader.tile_source import ObjectTiles
from murmurate.service.log_reader.zone_view import PRICE_KINDS, PlanEnd, Price, ZoneView, find_tick
from murmurate.service.storage.object_log import ObjectLogStore
from murmurate.service.storage.object_store import ObjectStore

_TILES_PER_CHUNK = 16  # of the log of a zone


class ObjectLogReader:
    """Reads the public log. Threads may share one."""

    def __init__(self, store: ObjectStore) -> None:
        self._log, self._tiles = ObjectLogStore(store), ObjectTiles(store)

    def read_document(self, digest: str) -> str | None:
        """A plan or a zone table of the log."""
        return self.read_documents([digest]).get(digest)

    def read_documents(self, digests: Sequence[str]) -> dict[str, str]:
        """Plans and zone tables by their digests, as far as the log has them."""
        return self._log.documents(digests)

    def read_tile(self, shard: str, seq: int) -> bytes | None:
        """A tile as it was created."""
        try:
            return self._log.read_body(shard, seq)
        except ChainError:
            return None

    def require_whole_log(self, shard: str) -> None:
        """Nothing ever leaves the log."""

    def read_prices(self, view: ZoneView, first: int, last: int) -> list[Price]:
        """The prices of a stretch of intervals."""
        zone, lead, found = view.zone, view.lead_intervals, list[Price]()
        begin, end = max(view.row.since, first - lead), min(view.last_decided, last) - lead
        for seq in self._tiles.find_numbers(view.shard.name, begin, end, view.shard.head.tile.header.seq):
            tile, table = self._log.read_offer(view.shard.name, seq)
            if tile.header.kind is not TileKind.RELEASE or zone not in table.position:
                continue
            row = tile.rows[table.position[zone]]
            kind = RowKind(int(row["kind"]))
            ticks = None if kind is RowKind.WITHHELD else int(row["price_ticks"])
            scale_wh, logged_s = float(row["scale_wh"]) or None, self._log.created_s(view.shard.name, seq)
            interval, tick = tile.header.interval + lead, find_tick(table, zone)
            found.append(Price(interval, PRICE_KINDS[kind], ticks, tick, scale_wh, logged_s, int(row["core_wh"])))
        return found

    def read_opening_key(self, view: ZoneView) -> str:
        """The key that signed the first line of a zone's log. It is another one than its shard's after a rotation."""
        if view.key == view.shard.opening_key:
            return view.key
        before = view.row.since - 1  # the zone entered its shard in the tile before its first interval
        for offer in self._read_intervals(view, before, before):
            if view.zone in offer.table.position:
                return offer.tile.header.key
        raise ChainError("since", view.row.since, f"must be the interval after {view.zone} entered {view.shard.name}")

    def read_older_plans(self, view: ZoneView, first: int) -> tuple[PlanEnd, ...]:
        """The plans of a zone that ended in `first` or later, and before the prices in memory begin; oldest first."""
        shard, zone, found = view.shard.name, view.zone, list[PlanEnd]()
        first, last = max(view.row.since, first - 1), view.shard.first - 1
        numbers = self._tiles.find_numbers(shard, first, last, view.shard.head.tile.header.seq)
        offers = (self._log.read_offer(shard, seq) for seq in self._tiles.find_without_rows(shard, numbers))
        for interval, group in groupby(offers, key=lambda offer: offer.tile.header.interval):
            changes = list(group)
            before = self._log.read_offer(shard, max(0, changes[0].tile.header.seq - 1))
            tables = [before.table, *(offer.table for offer in changes)]
            plans = [table.rows[table.position[zone]].plan for table in tables if zone in table.position]
            if plans and plans[0] != plans[-1]:
                found.append(PlanEnd(plans[0], interval + 1))
        return tuple(found)

    def _read_intervals(self, view: ZoneView, first: int, last: int) -> Iterator[Offer]:
        shard = view.shard.name
        for seq in self._tiles.find_numbers(shard, first, last, view.shard.head.tile.header.seq):
            yield self._log.read_offer(shard, seq)

    def read_log_chunks(self, view: ZoneView) -> Iterator[bytes]:
        """The lines of one zone as a file that `murmurate log verify` takes, up to the last tile of the view."""
        plans: set[str] = set()
        end = view.shard.head.tile.header.seq + 1
        for first in range(0, end, _TILES_PER_CHUNK):
            lines: list[str] = []
            for seq in range(first, min(end, first + _TILES_PER_CHUNK)):
                tile, table = self._log.read_offer(view.shard.name, seq)
                if view.zone not in table.position and not is_closed_by(tile.header, view.zone):
                    continue
                line = make_zone_line(tile, table, view.zone)
                if line.proof is not None and line.proof.plan not in plans:
                    plans.add(line.proof.plan)
                    if (text := self.read_document(line.proof.plan)) is not None:
                        lines.append(canonical_json(json.loads(text)))
                lines.append(line.to_json())
            yield "".join(f"{line}\n" for line in lines).encode()

    def close(self) -> None:
        """Nothing is open."""
