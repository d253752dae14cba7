"""The two stores of a publisher, as small as they can be, and how each step of the machine is performed on them.

The state is confidential and may be lost, set back or split in two; the log is public, in another failure domain, and
must never lose what it has taken. A log needs no more than a conditional write: an object store that creates
`zone/number` only where it does not exist yet can be one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from murmurate.publication.publisher import Append, Beat, Beyond, Known, Lock, Read, Recall, Save, Step
from murmurate.publication.record import Entry
from murmurate.quantities import Demand

Result = TypeVar("Result")


class State(Protocol):
    """What the publisher keeps for itself. From `lock` to `save` or `rollback` is one transaction."""

    def lock(self, zones: Iterable[str]) -> dict[str, Known]:
        """What is known of these zones, each locked; those that somebody else has locked are left out."""
        ...

    def recall(self, interval: Mapping[str, int]) -> Demand:
        """The demand of one interval of each zone; zones without one are left out."""
        ...

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        """Store both durably and unlock. A pending entry that was seen in the log or is None is dropped."""
        ...

    def rollback(self) -> None:
        """Forget what was not saved, and unlock."""
        ...


class Log(Protocol):
    """The public log: for each zone lines numbered 0, 1, 2, .., of which the last is the head."""

    def read(self, after: Mapping[str, int]) -> dict[str, Beyond]:
        """The next lines of each zone after a number (not all, if they are many), and number and hash of its head."""
        ...

    def append(self, entries: Iterable[Entry]) -> None:
        """Take each entry that follows the head of its zone, durably; ignore the others."""
        ...


def drive(machine: Generator[Step, Any, Result], state: State, log: Log, wait: Callable[[], None]) -> Result:
    """Perform the steps of a machine until it is done. If one fails, the state is rolled back and the error goes on."""
    try:
        step = next(machine)
        while True:
            step = machine.send(perform(step, state, log, wait))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    except BaseException:
        state.rollback()
        raise


def perform(step: Step, state: State, log: Log, wait: Callable[[], None]) -> object:
    """Perform one step and return its answer."""
    match step:
        case Lock(zones):
            return state.lock(zones)
        case Read(after):
            return log.read(after)
        case Recall(interval):
            return state.recall(interval)
        case Save(seen, pending):
            state.save(seen, pending)
        case Beat():
            wait()
        case Append(entries):
            log.append(entries.values())
    return None
