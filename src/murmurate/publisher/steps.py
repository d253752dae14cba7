"""The steps of a publisher, what each of them is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from murmurate.public_log.tile import Tile
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import NextTile
from murmurate.types import Demand


class Offer(NamedTuple):
    """A tile, with the zone table that it names."""

    tile: Tile
    table: ZoneTable


class SeenState(NamedTuple):
    """What the state holds about a shard: the head it has seen in the log, and a tile that may have been sent."""

    head: ShardHead | None
    pending: Offer | None
    damage: str | None = None  # why neither can be read


class LogTail(NamedTuple):
    """What the log holds about a shard beyond a number: some of the next tiles in order, and where its chain ends.

    A tile or table that cannot be read is the reason, as a text.
    """

    last_seq: int  # -1: it has no tile
    tiles: tuple[Offer | str, ...]
    last_hash: str  # of the tile with the number last_seq
    archived_seq: int = -1  # releases up to this number are in an archive; the tiles begin after it
    kept: tuple[Tile, ...] = ()  # the tiles without rows up to that number, where nothing was seen of the shard


@dataclass(frozen=True, slots=True)
class LockShards:
    """Lock these shards in the state; the result is the SeenState of each. One with another lock is left out."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read the log after these numbers; the result is the LogTail of each shard."""

    after_seq: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClaimZones:
    """Claim zones for shards in the log; the result is the shard that holds each. A claim that exists stays."""

    claims: Mapping[str, str]  # shard by zone


@dataclass(frozen=True, slots=True)
class LoadDemand:
    """Load the demand of an interval for the zones of each shard; the result is a Demand of those that have one."""

    intervals: Mapping[str, tuple[int, tuple[str, ...]]]  # by shard


@dataclass(frozen=True, slots=True)
class SaveState:
    """Store what was seen in the log and the pending tiles (None: drop it), unlock, and commit."""

    new_heads: Mapping[str, list[ShardHead]]
    pending: Mapping[str, Offer | None]


@dataclass(frozen=True, slots=True)
class WaitForSlot:
    """Wait for the next release slot, so that the time of a publication shows nothing about its noise."""


@dataclass(frozen=True, slots=True)
class AppendToLog:
    """Offer these tiles to the log, which creates each whose number does not exist yet. No answer is needed."""

    offers: Mapping[str, Offer]


Step = LockShards | ReadLog | ClaimZones | LoadDemand | SaveState | WaitForSlot | AppendToLog


class Drafts(NamedTuple):
    """Tiles that may be stored; shards that can have none, and zones whose row is withheld, each with the reason."""

    written: dict[str, Tile]
    refused: dict[str, str]
    withheld: dict[str, str]


WriteTiles = Callable[[Mapping[str, tuple[ShardHead | None, NextTile]], Demand], Drafts]
