"""Whether a store keeps what the landing relies on: it is tried before a service believes it.

A store that asks whether a name exists and then writes it passes every check by one writer, and lets two win now and
then. So pairs of writers race for fresh names. Everything is written below `_probe/`, and deleted.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError, Event

from murmurate.errors import MurmurateError
from murmurate.service.storage.remote_store import RemoteStore

_FOLDER = "_probe"
_PAIRS = 8  # that race at the same time
_ROUNDS = 450  # races of each pair; how often they find a double winner: docs/decisions/0029-object-store.md
_MAX_AGE_S = 3600.0  # of what a probe left that was killed
_REMEDY = "use a store that honours `If-None-Match: *`, such as Ceph, or a folder"


def probe_store(store: RemoteStore) -> None:
    """Raise MurmurateError if two writers can win a name, or none, or if the store writes over what is there.

    Raises:
        OSError: The store cannot be reached, or refuses: nothing is known about it.
    """
    folder = f"{_FOLDER}/{os.urandom(8).hex()}"
    try:
        _try_in_order(store, folder)
        _try_races(store, folder)
    finally:
        with suppress(OSError), ThreadPoolExecutor(2 * _PAIRS) as pool:
            names = [each.name for each in store.list_objects(folder)]
            list(pool.map(store.delete, names))


def _try_in_order(store: RemoteStore, folder: str) -> None:
    """What one writer can see: no name is written over, tokens come back, and a listing has what was created."""
    names = [f"{folder}/order/{number}" for number in range(5)]
    created = [store.create(name, b"first") for name in names]
    if not all(created):
        raise MurmurateError(f"the store {store.address}", "refusing a name that is free", f"must create it: {_REMEDY}")
    if any(store.writer_of(name) == "" for name in names):
        dropped = "dropping the metadata `writer` of an object"
        raise MurmurateError(f"the store {store.address}", dropped, f"must give it back: {_REMEDY}")
    if any(store.create(name, b"again") for name in names) or any(store.read(name) != b"first" for name in names):
        raise MurmurateError(f"the store {store.address}", "writing over what is there", f"must refuse it: {_REMEDY}")
    listed = [each for each in store.list_objects(_FOLDER) if each.name in names]
    if [each.name for each in listed] != names:
        missed = "listing less than what was created before"
        raise MurmurateError(f"the store {store.address}", missed, "must list it at once: use a store that does")
    for each in store.list_objects(_FOLDER):
        if each.changed_s < listed[-1].changed_s - _MAX_AGE_S:
            store.delete(each.name)


def _try_races(store: RemoteStore, folder: str) -> None:
    """Let pairs of writers create the same names at the same time, until a race has two winners or none."""
    starts = [Barrier(2) for _ in range(_PAIRS)]
    won: list[tuple[list[bool], list[bool]]] = [([], []) for _ in range(_PAIRS)]
    unfair = Event()

    def run(pair: int, writer: int) -> None:
        one, other = won[pair]
        try:
            for number in range(_ROUNDS):
                starts[pair].wait()
                if number and one[number - 1] == other[number - 1]:
                    unfair.set()
                if unfair.is_set():
                    break
                won[pair][writer].append(store.create(f"{folder}/{pair}/{number:04}", b"%d" % writer))
        except BrokenBarrierError:
            return  # the other one has ended
        finally:
            if len(won[pair][writer]) < _ROUNDS:
                starts[pair].abort()

    with ThreadPoolExecutor(2 * _PAIRS) as pool:
        for running in [pool.submit(run, pair, writer) for pair in range(_PAIRS) for writer in range(2)]:
            running.result()
    wins = [first + second for one, other in won for first, second in zip(one, other, strict=False)]
    for winners in (2, 0):
        if winners in wins:
            found = f"letting {winners} of 2 writers win a name in {wins.count(winners)} of {len(wins)} races"
            raise MurmurateError(f"the store {store.address}", found, f"must let exactly one win: {_REMEDY}")
