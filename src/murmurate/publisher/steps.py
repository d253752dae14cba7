"""The steps of a publisher, what each of them answers, and the two stores that they are performed on.

The state is confidential and may be lost, set back or split in two; the log is public, in another failure domain, and
must never lose what it has taken. A log needs no more than a conditional write: an object store that creates
`shard/number` only where it does not exist yet can be one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from murmurate.public_log.tile import Tile
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import NextTile
from murmurate.types import Demand

Result = TypeVar("Result")


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


WriteTiles = Callable[[Mapping[str, NextTile], Demand], Drafts]


class StateStore(Protocol):
    """What the publisher keeps for itself. From `lock` to `save` or `rollback` is one transaction."""

    def lock(self, shards: tuple[str, ...]) -> dict[str, SeenState]:
        """What is known of these shards, each locked; those that another publisher has locked are left out."""
        ...

    def load_demand(self, intervals: Mapping[str, tuple[int, tuple[str, ...]]]) -> Demand:
        """The demand of one interval of the zones of each shard; zones without one are left out."""
        ...

    def save(self, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]) -> None:
        """Store both durably and unlock. A pending tile that was seen in the log or is None is dropped."""
        ...

    def rollback(self) -> None:
        """Discard what was not saved, and unlock."""
        ...


class LogStore(Protocol):
    """The public log: for each shard tiles numbered 0, 1, 2, .., of which the last is the head."""

    def read(self, after_seq: Mapping[str, int]) -> dict[str, LogTail]:
        """The next tiles of each shard after a number (not all, if they are many), and number and hash of its head."""
        ...

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        """Give each zone to a shard, durably and for good, unless a shard has it; return the shard of each zone."""
        ...

    def append(self, offers: Mapping[str, Offer]) -> None:
        """Create each tile whose number does not exist yet, durably, with its zone table; ignore the others."""
        ...


def drive_steps(
    machine: Generator[Step, Any, Result], state: StateStore, log: LogStore, wait_for_slot: Callable[[], None]
) -> Result:
    """Perform the steps of a machine until it is done. If one fails, roll the state back and raise its error."""
    try:
        step = next(machine)
        while True:
            step = machine.send(perform_step(step, state, log, wait_for_slot))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    except BaseException:
        state.rollback()
        raise


def perform_step(step: Step, state: StateStore, log: LogStore, wait_for_slot: Callable[[], None]) -> object:
    """Perform one step and return its answer."""
    match step:
        case LockShards(shards):
            return state.lock(shards)
        case ReadLog(after):
            return log.read(after)
        case ClaimZones(claims):
            return log.claim(claims)
        case LoadDemand(intervals):
            return state.load_demand(intervals)
        case SaveState(new_heads, pending):
            state.save(new_heads, pending)
        case WaitForSlot():
            wait_for_slot()
        case AppendToLog(offers):
            log.append(offers)
    return None
