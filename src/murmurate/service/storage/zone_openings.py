"""How zones enter their shards, as the state keeps it: JSON in a column of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from murmurate.public_log.zone_table import MovedFrom
from murmurate.publisher.desired_state import ShardOpening, ZoneOpening


def encode_openings(zones: Mapping[str, tuple[str, ZoneOpening]]) -> tuple[list[str], list[str], list[str]]:
    """Return columns of names, shards and openings."""
    openings = [json.dumps(asdict(opening)) for _, opening in zones.values()]
    return list(zones), [shard for shard, _ in zones.values()], openings


def decode_opening(members: dict[str, Any]) -> ZoneOpening:
    """Return the opening that was encoded."""
    moved, left = members.get("moved_from"), members.get("came_from")
    return ZoneOpening(
        **members
        | {
            "moved_from": None if moved is None else MovedFrom(*moved),
            "came_from": None if left is None else ShardOpening(**left),
        }
    )
