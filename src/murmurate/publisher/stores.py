"""The two stores of a publisher, as small as they can be, and how each step of the machine is performed on them.

The state is confidential and may be lost, set back or split in two; the log is public, in another failure domain, and
must never lose what it has taken. A log needs no more than a conditional write: an object store that creates
`shard/number` only where it does not exist yet can be one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol, TypeVar

from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.steps import (
    AppendToLog,
    ClaimZones,
    LoadDemand,
    LockShards,
    LogTail,
    Offer,
    ReadLog,
    SaveState,
    SeenState,
    Step,
    WaitForSlot,
)
from murmurate.types import Demand

Result = TypeVar("Result")


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
        """Give each zone to a shard, durably and for ever, unless a shard has it; return the shard of each zone."""
        ...

    def append(self, offers: Mapping[str, Offer]) -> None:
        """Create each tile whose number does not exist yet, durably, with its zone table; ignore the others."""
        ...


def drive_steps(
    machine: Generator[Step, Any, Result], state: StateStore, log: LogStore, wait_for_slot: Callable[[], None]
) -> Result:
    """Perform the steps of a machine until it is done. If one fails, the state is rolled back and the error goes on."""
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
