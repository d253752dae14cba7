"""Processes that race to create the same names in an object store, and whether what they believe is true."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from murmurate.service.storage.object_store import ObjectStore
from murmurate.service.storage.open_store import open_store

pytest.importorskip("obstore")  # requirements-quick.txt lacks it: tests that import this file are skipped
from murmurate.service.storage.remote_store import RemoteStore

_context = multiprocessing.get_context("spawn")  # the threads of obstore do not survive a fork
_TIMEOUT_S = 600

Opener = Callable[[str], ObjectStore]


class RaceCounts(NamedTuple):
    """What writers believed, against what the store holds."""

    races: int
    doubles: int  # more than one believed that it had won
    without_winner: int  # none did, and none was in doubt
    wrong: int  # believed that it had won or lost, and the store holds something else
    doubts: int  # creates that raised OSError: no claim


class OverwritingStore(RemoteStore):
    """A bug: it writes over what is there, as a store does that ignores `If-None-Match`."""

    def create(self, name: str, data: bytes | memoryview) -> bool:
        self._store.put(name, data)
        return True


class HastyStore(RemoteStore):
    """A bug: it takes "exists already" for "lost", also after an attempt of its own whose answer was cut off."""

    def writer_of(self, name: str) -> str | None:
        return "another" if super().writer_of(name) is not None else None


class ContentComparingStore(RemoteStore):
    """A bug: it takes equal contents for its own."""

    def create(self, name: str, data: bytes | memoryview) -> bool:
        return super().create(name, data) or self.read(name) == data


def write_names(
    opener: Opener,
    address: str,
    environment: Mapping[str, str],
    names: Sequence[str],
    data: bytes,
    start: Any,
    done: Any,
) -> None:
    """Create each name at the same moment as the other writers, and send what became of it."""
    os.environ.update(environment)
    store = opener(address)
    outcomes: list[bool | None] = []
    for name in names:
        start.wait(_TIMEOUT_S)
        try:
            outcomes.append(store.create(name, data))
        except OSError:
            outcomes.append(None)
    done.send(outcomes)


def race(
    address: str,
    environments: Sequence[Mapping[str, str]],
    races: int,
    *,
    opener: Opener = open_store,
    equal: bool = False,
) -> RaceCounts:
    """Let one process for each environment race for fresh names; with `equal`, all of them write the same bytes."""
    names = [f"races/{number:05}" for number in range(races)]
    data = [b"same" if equal else f"writer {number}".encode() for number in range(len(environments))]
    start = _context.Barrier(len(environments))
    pipes, processes = [], []
    for environment, own in zip(environments, data, strict=True):
        near, far = _context.Pipe(duplex=False)
        given = (opener, address, environment, names, own, start, far)
        processes.append(_context.Process(target=write_names, args=given, daemon=True))
        processes[-1].start()
        far.close()
        pipes.append(near)
    try:
        assert all(pipe.poll(_TIMEOUT_S) for pipe in pipes), "a writer did not finish"
        outcomes: list[list[bool | None]] = [pipe.recv() for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
    store = open_store(address)
    doubles = without_winner = wrong = 0
    for number, name in enumerate(names):
        beliefs = [each[number] for each in outcomes]
        doubles += beliefs.count(True) > 1
        without_winner += True not in beliefs and None not in beliefs
        held = store.read(name) if store.exists(name) else None
        for own, belief in zip(data, beliefs, strict=True):
            wrong += not equal and ((belief is True and held != own) or (belief is False and held in {own, None}))
    return RaceCounts(races, doubles, without_winner, wrong, sum(each.count(None) for each in outcomes))
