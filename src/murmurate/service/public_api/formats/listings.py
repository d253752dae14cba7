"""Zones and shards as lists show them."""

from __future__ import annotations

from murmurate.service.log_reader.zone_view import ShardView, ZoneView, format_rfc3339


def zone_entry(view: ZoneView) -> dict[str, object]:
    """A zone in `/zones`."""
    return {
        "zone": view.zone,
        "currency": view.currency,
        "interval_s": view.interval_s,
        "plan": view.plan_digest,
        "timezone": view.display.timezone.key,
        "decided_until": format_rfc3339(view.start_s(view.last_decided + 1)),
        **({} if view.closed is None else {"closed": True}),
    }


def shard_entry(shard: ShardView) -> dict[str, object]:
    """A shard in `/shards`: its last tile, and what a reader needs to begin."""
    header = shard.head.tile.header
    return {
        "shard": shard.name,
        "seq": header.seq,
        "hash": shard.head.tile.hash,
        "interval": header.interval,
        "interval_s": header.interval_s,
        "lead": header.lead,
        "table": header.table,
        "zones": len(shard.table),
        "opening_key": shard.opening_key,
    }
