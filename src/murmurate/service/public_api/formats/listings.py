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


def shard_entry(shard: ShardView, *, has_archived: bool = False) -> dict[str, object]:
    """A shard in `/shards`: its last tile, and what a reader needs to begin.

    Where old tiles have left the log and are not at hand: up to which number, and which of them are here all the same.
    """
    header = shard.head.tile.header
    entry: dict[str, object] = {
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
    if shard.archived_seq >= 0 and not has_archived:
        entry["archived"] = {"seq": shard.archived_seq, "kept": list(shard.kept_seqs)}
    return entry
