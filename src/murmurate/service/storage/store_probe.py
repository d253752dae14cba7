"""Whether a store keeps what the landing relies on: it is tried before a service believes it.

A store that asks whether a name exists and then writes it passes every check by one writer, and lets two win now and
then. So pairs of writers race for fresh names: in a few races a small object overtakes a large one, in many both are
small. Everything is written below `_probe/`, and deleted. How often this finds such a store, and what it costs, is in
docs/decisions/0029-object-store.md.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from murmurate.errors import MurmurateError
from murmurate.service.storage.remote_store import RemoteStore

_FOLDER = "_probe"
_PAIRS = 8  # that race at the same time
_ROUNDS = 100  # races of each pair
_OVERTAKINGS = 16  # races of a small object with a large one
_SIZES = (2**16, 2**18, 2**20, 2**22, 2**24)  # of a large object [bytes]
_LONG_S = 0.1  # a size is large enough if it takes this long to create
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
        _try_overtaking(store, folder)
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


def _try_overtaking(store: RemoteStore, folder: str) -> None:
    """Let a small object overtake a large one of the same name.

    The more there is to write, the longer such a store takes between asking and having written. A small object that
    comes too early wins, one that comes too late loses. So its delay is steered to where the winner changes: there the
    store is asked for the small object while it writes the large one.
    """
    for size in _SIZES:
        large = os.urandom(size)
        begin_s = time.monotonic()
        store.create(f"{folder}/size/{size}", large)
        took_s = time.monotonic() - begin_s
        if took_s > _LONG_S:
            break
    delay_s, step_s = took_s / 2, took_s / 4
    won_before: bool | None = None
    with ThreadPoolExecutor(1) as rival:
        for number in range(_OVERTAKINGS):
            won = _race(store, rival, f"{folder}/overtaking/{number}", large, b"", delay_s)
            if won_before not in (None, won):
                step_s = max(step_s / 2, took_s / 64)
            won_before = won
            delay_s = max(0.0, delay_s + (step_s if won else -step_s))


def _try_races(store: RemoteStore, folder: str) -> None:
    """Let pairs of writers create small objects, all at the same time."""

    def run_pair(pair: int) -> None:
        with ThreadPoolExecutor(1) as rival:
            for number in range(_ROUNDS):
                _race(store, rival, f"{folder}/{pair}/{number:04}", b"0", b"1")

    with ThreadPoolExecutor(_PAIRS) as pool:
        for running in [pool.submit(run_pair, pair) for pair in range(_PAIRS)]:
            running.result()


def _race(
    store: RemoteStore, rival: ThreadPoolExecutor, name: str, first: bytes, second: bytes, delay_s: float = 0.0
) -> bool:
    """Create a name by two writers, the second after a delay. Returns whether it won, if exactly one of them did."""
    creating = rival.submit(store.create, name, first)
    time.sleep(delay_s)
    won = store.create(name, second)
    if creating.result() == won:
        found = f"letting {2 * won} of 2 writers win a name"
        raise MurmurateError(f"the store {store.address}", found, f"must let exactly one win: {_REMEDY}")
    return won
