"""Make the next tile of a shard: fill in what follows from the head, and sign it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from murmurate.public_log.merkle import compute_root
from murmurate.public_log.signing import Signer
from murmurate.public_log.tile import (
    CLOSED,
    GENESIS_PREV,
    ROW_LAYOUT,
    Rows,
    Tile,
    TileHeader,
    TileKind,
    hash_leaves,
    sign_tile,
)
from murmurate.public_log.tile_chain import COST_COLUMNS, ShardHead
from murmurate.public_log.zone_table import ZoneTable


def open_shard(shard: str, table: ZoneTable, *, interval: int, interval_s: int, lead: int, signer: Signer) -> Tile:
    """Return the first tile of a shard. Its zones are decided from the interval after `interval` on."""
    header = TileHeader(
        shard=shard,
        seq=0,
        kind=TileKind.OPEN,
        interval=interval,
        interval_s=interval_s,
        lead=lead,
        table=table.digest,
        prev=GENESIS_PREV,
        key=signer.public_key,
    )
    return sign_tile(header, signer)


def change_zones(head: ShardHead, table: ZoneTable, signer: Signer) -> Tile:
    """Return the tile that puts another zone table in force. It states what the zones that it closes have spent."""
    closing = {zone.zone: zone.totals for zone in table.closed if zone.zone in head.table.position}
    header = replace(_next_header(head, TileKind.ZONES), table=table.digest)
    return sign_tile(replace(header, extensions={CLOSED: closing} if closing else {}), signer)


def change_key(head: ShardHead, next_key: str, signer: Signer) -> Tile:
    """Return the tile after which another key signs."""
    return sign_tile(replace(_next_header(head, TileKind.KEY), next_key=next_key), signer)


def release_interval(
    head: ShardHead, rows: Rows, signer: Signer, layout: str = ROW_LAYOUT, extensions: dict[str, Any] | None = None
) -> Tile:
    """Return the tile of the next interval. Totals and hashes of the leaves before are filled in here."""
    rows = rows.copy()
    rows["prev"] = head.leaf_hashes
    for number, cost in enumerate(COST_COLUMNS):
        rows[f"total_{cost}"] = head.totals[number] + rows[cost]
    interval = head.interval + 1
    root = compute_root(hash_leaves(head.table, interval, rows)).hex()
    header = replace(_next_header(head, TileKind.RELEASE), interval=interval, count=len(rows), row=layout, root=root)
    header = replace(header, extensions=extensions or {})
    return sign_tile(header, signer, rows)


def _next_header(head: ShardHead, kind: TileKind) -> TileHeader:
    last = head.tile.header
    return TileHeader(
        shard=last.shard,
        seq=last.seq + 1,
        kind=kind,
        interval=last.interval,
        interval_s=last.interval_s,
        lead=last.lead,
        table=last.table,
        prev=head.tile.hash,
        key=head.tile.key_in_force,
    )
