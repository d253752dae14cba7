"""An object store in memory that holds a log, and the publishers' connections to it: the log store itself runs here.

The store creates a name once and shows its own time, and nothing else. Each request may be lost, or carried out without
an answer, or carried out late. What is there stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import parse_tile
from murmurate.publisher.steps import LogTail, Offer
from murmurate.service.storage import object_log
from murmurate.service.storage.object_store import StoredObject
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule, ResponseLost, Violation
from tests.simulation.memory_stores import LogConnection, MemoryLog, StoreObserver


class MemoryObjects(MemoryLog):
    """The contents of an object store: tiles, claims, documents, and the objects that show its time."""

    strict = False

    def __init__(self, shards: Iterable[str], observer: StoreObserver) -> None:
        super().__init__(shards, observer)
        self.times: dict[str, float] = {}  # of the objects that show the time

    @property
    def now_s(self) -> float:
        """Its own clock [s of UTC]."""
        return self.now * samples.INTERVAL_S

    def create_object(self, name: str, data: bytes) -> bool:
        """Create an object; return whether its name was free."""
        folder, *parts = name.split("/")
        key = parts[-1].partition(".")[0]
        if folder == "over":
            is_new = name not in self.times
            self.times.setdefault(name, self.now_s)
            return is_new
        if folder == "documents":
            is_new = key not in self.documents
            self.documents.setdefault(key, data.decode())
            return is_new
        return bool(self.claim_zones(_parse_claim(name, data))) if folder == "claims" else self._create_tile(name, data)

    def _create_tile(self, name: str, data: bytes) -> bool:
        tile = parse_tile(data)
        shard, seq = tile.header.shard, tile.header.seq
        if name != object_log.tile_name(shard, seq):
            raise Violation("broken chain", f"{name} holds tile {seq} of {shard}")
        if seq > len(self.bodies[shard]):
            raise Violation("gap", f"{shard} was offered number {seq} after {len(self.bodies[shard])} tiles")
        if seq < len(self.bodies[shard]):
            return False
        self.store_tile(tile, data)
        self.observer.on_append(Offer(tile, self.table(tile.header.table)))
        return True

    def read_object(self, name: str) -> bytes:
        """Return what a name holds. Raises FileNotFoundError where there is no such name."""
        folder, *parts = name.split("/")
        key = parts[-1].partition(".")[0]
        if folder == "documents" and key in self.documents:
            return self.documents[key].encode()
        if folder == "claims":
            for zone, shard in self.claims.items():
                if object_log.claim_name(zone) == name:
                    return canonical_json({"shard": shard, "zone": zone}).encode()
        if folder == "tiles" and int(key) < len(self.bodies[parts[0]]):
            return self.bodies[parts[0]][int(key)]
        raise FileNotFoundError(name)


def _parse_claim(name: str, data: bytes) -> dict[str, str]:
    for zone in samples.ZONES:
        for shard in samples.SHARDS:
            body = canonical_json({"shard": shard, "zone": zone})
            if (object_log.claim_name(zone), body) == (name, data.decode()):
                return {zone: shard}
    raise Violation("claim not desired", f"{name}: {data!r}")


class ObjectSession:
    """What a publisher sees of the store: an `ObjectStore`, with faults."""

    def __init__(self, objects: MemoryObjects, faults: FaultSchedule, delayed: list[Callable[[], int]]) -> None:
        self._objects, self._faults, self._delayed = objects, faults, delayed

    def create(self, name: str, data: bytes) -> bool:
        faults, create = self._faults, partial(self._objects.create_object, name, bytes(data))
        if faults.occurs("create lost", name):
            raise ResponseLost
        if faults.occurs("create delayed", name):
            self._delayed.append(create)
            raise ResponseLost
        is_new = create()
        faults.trace("  store", "creates" if is_new else "has", name)
        if faults.occurs("create response lost", name):
            raise ResponseLost
        return is_new

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        if self._faults.occurs("read failed", name):
            raise ResponseLost
        return self._objects.read_object(name)[begin:end]

    def exists(self, name: str) -> bool:
        try:
            self.read(name)
        except FileNotFoundError:
            return False
        return True

    def list_objects(self, folder: str) -> Iterator[StoredObject]:
        times = self._objects.times
        return iter([StoredObject(name, 0, times[name]) for name in sorted(times) if name.startswith(f"{folder}/")])


class ObjectLogConnection(LogConnection):
    """A publisher's connection to a log in an object store."""

    def __init__(
        self, log: MemoryObjects, faults: FaultSchedule, delayed: list[Callable[[], int]], verify: samples.Verify
    ) -> None:
        super().__init__(log, faults, delayed)
        self._objects, self._verify = log, verify
        self._store = self._open()

    def _open(self) -> object_log.ObjectLogStore:
        session: Any = ObjectSession(self._objects, self._faults, self._delayed)
        return object_log.ObjectLogStore(
            session, verify=self._verify, monotonic_s=lambda: self._objects.now_s, threads=1
        )

    def read(self, after_seq: Mapping[str, int]) -> dict[str, LogTail]:
        if self.broken or self._faults.occurs("log unreachable"):
            raise ResponseLost
        if self._faults.chance(0.2):  # a publisher that was started again
            self._store = self._open()
        tails = self._store.read(after_seq)
        self.observed.log_seq = {shard: tail.last_seq for shard, tail in tails.items()}
        return tails

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        self._log.observer.on_claim(self.observed, claims)
        self.observed.holders = holders = self._store.claim(claims)
        return holders

    def append(self, offers: Mapping[str, Offer]) -> None:
        for offer in offers.values():
            self._log.observer.on_send(self.observed, offer)
        self._store.append(offers)
        for shard, reason in self._store.refused.items():
            self._faults.trace("  store refuses", shard, reason)
