"""Both stores in memory, with the semantics of PostgreSQL, and the publishers' connections to them.

A state can be copied, restored and lost. Its transactions are atomic and hold row locks, which other sessions skip. The
log never loses a claim, nor a tile that readers accept. Faults occur in the connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.tile import GENESIS_PREV, Tile, TileKind, parse_tile
from murmurate.public_log.tile_chain import ShardHead, rebuild_head
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import Outcome
from murmurate.publisher.steps import LogTail, Offer, SeenState
from murmurate.types import Demand
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule, ResponseLost


class ShardRow(NamedTuple):
    """What a state holds about a shard."""

    head: ShardHead | None = None
    pending: Offer | None = None
    mirror: tuple[Offer, ...] = ()  # of the log
    unreadable: bool = False
    written: Tile | None = None  # the last tile that was pending here; only the simulator uses it


class Snapshot(NamedTuple):
    """The contents of a backup or of a replica."""

    rows: dict[str, ShardRow]
    demand: dict[tuple[str, int], int]


class MemoryState:
    """A state database: rows, demand, row locks, and the last commits as a lagging replica has them."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.name = name
        self.epoch = 0
        self.restore(snapshot)

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the contents by those of a snapshot. Every open transaction is lost."""
        self.rows = dict(snapshot.rows)
        self.demand = dict(snapshot.demand)
        self.locks: dict[str, StateSession] = {}
        self.epoch += 1
        self.history = [snapshot]

    def snapshot(self) -> Snapshot:
        return Snapshot(dict(self.rows), dict(self.demand))

    def record_commit(self) -> None:
        self.history.append(self.snapshot())
        del self.history[:-6]


@dataclass(slots=True)
class ObservedRound:
    """What the oracle observes of one round of a publisher."""

    desired: dict[str, DesiredState]
    may_block: bool = False  # the publisher lacks a key, or has impossible settings: it may report blocked shards
    seen_seq: dict[str, int] = field(default_factory=dict)  # the number of the last tile that the state has seen
    locked_heads: dict[str, ShardHead | None] = field(default_factory=dict)  # the state's head when it was locked
    unreadable: set[str] = field(default_factory=set)  # shards whose head could not be read
    log_seq: dict[str, int] = field(default_factory=dict)  # the number of the last tile that the log reported
    stale_read: bool = False  # the log reported an older head
    holders: dict[str, str] = field(default_factory=dict)  # the shard that has claimed a zone, as the log reported it
    requested: dict[str, int] = field(default_factory=dict)  # the interval whose demand was requested, by zone
    demand: dict[tuple[str, int], int] = field(default_factory=dict)  # all demand of the state at that time
    loaded_wh: dict[str, int] = field(default_factory=dict)  # the demand that was returned, by zone
    unknown_plans: frozenset[str] = frozenset()  # plans that the publisher cannot read when it writes
    inputs_until: int = 0  # the interval until which late public values are known when it writes
    unpriced: set[str] = field(default_factory=set)  # zones of a new draft whose plan cannot be used
    saved_pending: dict[str, Offer | None] | None = None  # the pending tiles after the commit
    saved_heads: dict[str, ShardHead | None] = field(default_factory=dict)  # of each locked shard after the commit
    slot_reached: bool = False
    set_aside: set[str] = field(default_factory=set)  # shards whose invalid tail was set aside during the round


class StoreObserver(Protocol):
    """Is called for every change of the stores."""

    unknown_plans: set[str]  # that no publisher can read
    inputs_until: int  # the interval until which late public values are known

    def on_save(
        self, session: StateSession, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]
    ) -> None:
        """Called just before a transaction is applied."""

    def on_claim(self, observed: ObservedRound, claims: Mapping[str, str]) -> None:
        """Called just before claims are sent to the log."""

    def on_send(self, observed: ObservedRound, offer: Offer) -> None:
        """Called just before a tile is sent to the log."""

    def on_append(self, offer: Offer) -> None:
        """Called just after the log has taken a tile."""

    def on_round_end(self, session: StateSession, outcome: Outcome) -> None:
        """Called after a round."""


_NOTHING = np.zeros(0, np.int64)
_NO_DEMAND = Demand(zones=(), energy_wh=_NOTHING, reported=_NOTHING, imputed=_NOTHING)


class StateSession:
    """A publisher's connection to a state: one transaction at a time, from `lock` to `save` or `rollback`."""

    def __init__(self, state: MemoryState, faults: FaultSchedule, observer: StoreObserver) -> None:
        self.state = state
        self._faults = faults
        self._observer = observer
        self.observed = ObservedRound({})
        self._epoch = -1

    def lock(self, shards: Iterable[str]) -> dict[str, SeenState]:
        state = self.state
        if self._faults.occurs("state unreachable", state.name):
            raise ResponseLost
        self._epoch = state.epoch
        locked = [shard for shard in shards if shard not in state.locks]
        state.locks.update(dict.fromkeys(locked, self))
        self.observed.seen_seq = {shard: len(state.rows[shard].mirror) - 1 for shard in locked}
        self.observed.locked_heads = {shard: state.rows[shard].head for shard in locked}
        self.observed.unreadable = {shard for shard in locked if state.rows[shard].unreadable}
        return {shard: self._seen_state(state.rows[shard]) for shard in locked}

    def _seen_state(self, row: ShardRow) -> SeenState:
        if row.unreadable:
            return SeenState(None, None, "unreadable")
        head = row.head
        if row.mirror and head is not None and head.tile is row.mirror[-1].tile and self._faults.chance(0.2):
            head = head_after(row.mirror)  # a new session has no head in memory and reads its tiles again
        return SeenState(head, row.pending)

    def load_demand(self, intervals: Mapping[str, tuple[int, tuple[str, ...]]]) -> Demand:
        self._check_transaction()
        self.observed.requested = {zone: interval for interval, zones in intervals.values() for zone in zones}
        stored = self.state.demand
        self.observed.demand = dict(stored)
        self.observed.unknown_plans = frozenset(self._observer.unknown_plans)
        self.observed.inputs_until = self._observer.inputs_until
        self.observed.loaded_wh = loaded_wh = {
            zone: stored[zone, interval]
            for zone, interval in self.observed.requested.items()
            if (zone, interval) in stored
        }
        if not loaded_wh:
            return _NO_DEMAND
        energy_wh = np.array(list(loaded_wh.values()), np.int64)
        bounds = tuple(map(samples.bounds_of, loaded_wh.values()))
        silent = np.array([samples.silent_bounds(wh) for wh in loaded_wh.values()], np.int64)
        return Demand(
            zones=tuple(loaded_wh),
            energy_wh=energy_wh,
            reported=energy_wh % 7,
            imputed=energy_wh % 5,
            silent_bound_wh=silent[:, 0],
            silent_export_bound_wh=silent[:, 1],
            bounds=bounds,
        )

    def save(self, new_heads: Mapping[str, list[ShardHead]], pending: Mapping[str, Offer | None]) -> None:
        self._check_transaction()
        if self._faults.occurs("commit failed", self.state.name):
            raise ResponseLost
        self._observer.on_save(self, new_heads, pending)
        rows = self.state.rows
        for shard, heads in new_heads.items():
            row = rows[shard]
            seen = tuple(Offer(head.tile, head.table) for head in heads)
            rows[shard] = row._replace(head=heads[-1], mirror=row.mirror + seen)
        for shard, draft in pending.items():
            row = rows[shard]
            rows[shard] = row._replace(pending=draft, written=row.written if draft is None else draft.tile)
        locked = [shard for shard, holder in self.state.locks.items() if holder is self]
        self.observed.saved_pending = {shard: rows[shard].pending for shard in locked}
        self.observed.saved_heads = {shard: rows[shard].head for shard in locked}
        self.rollback()
        if new_heads or pending:
            self.state.record_commit()
        if self._faults.occurs("commit acknowledgement lost", self.state.name):
            raise ResponseLost

    def rollback(self) -> None:
        locks = self.state.locks
        for shard in [shard for shard, holder in locks.items() if holder is self]:
            del locks[shard]

    def _check_transaction(self) -> None:
        if self._epoch != self.state.epoch:
            self._faults.record("transaction lost with its database", self.state.name)
            raise ResponseLost


def head_after(offers: tuple[Offer, ...]) -> ShardHead:
    """Return the head after the first tiles of a shard, rebuilt from the last release on."""
    releases = [place for place, offer in enumerate(offers) if offer.tile.header.kind is TileKind.RELEASE]
    needed = offers[releases[-1] if releases else 0 :]
    return rebuild_head([offer.tile for offer in needed], {offer.table.digest: offer.table for offer in needed})


class MemoryLog:
    """A log that checks the header of each tile before it takes it, by the server's own clock: `public_log.append`."""

    strict = True

    def __init__(self, shards: Iterable[str], observer: StoreObserver) -> None:
        self.now = 0  # the current interval
        self.bodies: dict[str, list[bytes]] = {shard: [] for shard in shards}
        self.last: dict[str, Tile] = {}  # of each shard
        self.documents: dict[str, str] = {}  # plans and zone tables, by digest
        self.claims: dict[str, str] = {}  # the shard of each zone
        self.observer = observer
        self._parsed: dict[bytes, Offer | str] = {}
        self._tables: dict[str, ZoneTable] = {}

    def read_offer(self, shard: str, seq: int) -> Offer | str:
        """Return a tile with its table, or why it cannot be read."""
        body = self.bodies[shard][seq]
        if body not in self._parsed:
            try:
                tile = parse_tile(body)
                self._parsed[body] = Offer(tile, self.table(tile.header.table))
            except ChainError as error:
                self._parsed[body] = str(error)
        return self._parsed[body]

    def claim_zones(self, claims: Mapping[str, str]) -> int:
        """Create the claims of zones that have none; return how many there were."""
        new = {zone: shard for zone, shard in claims.items() if zone not in self.claims}
        self.claims |= new
        return len(new)

    def append_tiles(self, offers: Mapping[str, Offer]) -> int:
        """Append each tile that follows the head of its shard; return how many there were."""
        return sum(self.append_if_next(offer) for offer in offers.values())

    def append_if_next(self, offer: Offer) -> bool:
        """Append the tile if it follows the head of its shard. Its zone table is stored in any case."""
        self.documents.setdefault(offer.table.digest, offer.table.text)
        if not self._accepts(offer):
            return False
        self.store_tile(offer.tile, offer.tile.to_bytes())
        self.observer.on_append(offer)
        return True

    def store_tile(self, tile: Tile, body: bytes) -> None:
        self.bodies[tile.header.shard].append(body)
        self.last[tile.header.shard] = tile

    def set_aside(self, shard: str, first_seq: int, last: Tile | None) -> list[bytes]:
        """Remove the tiles of a shard from a number on, as the owner of the log; return them."""
        removed = self.bodies[shard][first_seq:]
        del self.bodies[shard][first_seq:]
        self.last.pop(shard, None)
        if last is not None:
            self.last[shard] = last
        return removed

    def _accepts(self, offer: Offer) -> bool:
        header = offer.tile.header
        if not self._follows(offer.tile, self.last.get(header.shard)):
            return False
        if header.kind is TileKind.RELEASE and header.interval >= self.now:
            return False
        return header.kind in {TileKind.RELEASE, TileKind.KEY} or self._zones_may_enter(offer)

    @staticmethod
    def _follows(tile: Tile, last: Tile | None) -> bool:
        header = tile.header
        if last is None:
            return header.kind is TileKind.OPEN and header.seq == 0 and header.prev == GENESIS_PREV
        before = last.header
        interval = before.interval + (header.kind is TileKind.RELEASE)
        return (
            (header.seq, header.prev, header.interval) == (before.seq + 1, last.hash, interval)
            and (header.key, header.interval_s, header.lead) == (last.key_in_force, before.interval_s, before.lead)
            and header.kind is not TileKind.OPEN
            and (header.kind is TileKind.ZONES or header.table == before.table)
        )

    def _zones_may_enter(self, offer: Offer) -> bool:
        """Whether all plans are published, each zone is claimed for the shard, and none is lost or opened again."""
        shard, after = offer.tile.header.shard, offer.table
        last = self.last.get(shard)
        if last is not None:
            before = self.table(last.header.table)
            new = set(after.closed) - set(before.closed)
            left = before.position.keys() - after.position.keys()
            if not before.rows or set(before.closed) - set(after.closed) or {zone.zone for zone in new} != left:
                return False
            if any(zone.last != last.header.interval for zone in new):
                return False
        return all(row.plan in self.documents and self.claims.get(row.zone) == shard for row in after.rows)

    def table(self, digest: str) -> ZoneTable:
        if digest not in self._tables:
            self._tables[digest] = ZoneTable.from_json(self.documents[digest])
        return self._tables[digest]


class LogConnection:
    """A publisher's connection to the log."""

    def __init__(self, log: MemoryLog, faults: FaultSchedule, delayed: list[Callable[[], int]]) -> None:
        self._log = log
        self._faults = faults
        self._delayed = delayed  # requests that will arrive later
        self.observed = ObservedRound({})
        self.broken = False

    def read(self, after_seq: Mapping[str, int]) -> dict[str, LogTail]:
        if self.broken or self._faults.occurs("log unreachable"):
            raise ResponseLost
        tails = {shard: self._read_tail(shard, seq) for shard, seq in after_seq.items()}
        self.observed.log_seq = {shard: tail.last_seq for shard, tail in tails.items()}
        return tails

    def _read_tail(self, shard: str, after: int) -> LogTail:
        faults, bodies = self._faults, self._log.bodies[shard]
        last, end = len(bodies) - 1, len(bodies)
        if last >= 0 and faults.occurs("stale read of the log", shard):
            self.observed.stale_read = True
            last = max(last - 1 - faults.below(3), -1)
            end = last + 1
        elif last > after and faults.occurs("head read before the tiles", shard):
            last = after + faults.below(last - after)
        if end - after > 2 and faults.occurs("few tiles read", shard):
            end = after + 1 + faults.below(end - after - 1)
        last_hash = sha256(bodies[last].partition(b"\n")[0]).hexdigest() if last >= 0 else GENESIS_PREV
        return LogTail(last, tuple(self._log.read_offer(shard, seq) for seq in range(after + 1, end)), last_hash)

    def claim(self, claims: Mapping[str, str]) -> dict[str, str]:
        faults, log = self._faults, self._log
        log.observer.on_claim(self.observed, claims)
        if faults.occurs("claim lost"):
            raise ResponseLost
        if faults.occurs("claim delayed"):
            self._delayed.append(partial(log.claim_zones, dict(claims)))
            raise ResponseLost
        log.claim_zones(claims)
        if faults.occurs("claim response lost"):
            raise ResponseLost
        holders = {zone: log.claims[zone] for zone in claims}
        self.observed.holders = holders
        faults.trace("  claims", *(f"{zone}: {shard}" for zone, shard in holders.items()))
        return holders

    def append(self, offers: Mapping[str, Offer]) -> None:
        faults, offered = self._faults, dict(offers)
        for offer in offered.values():
            self._log.observer.on_send(self.observed, offer)
        if faults.occurs("append lost"):
            raise ResponseLost
        if faults.occurs("append delayed"):
            self._delayed.append(partial(self._log.append_tiles, offered))
            raise ResponseLost
        if faults.occurs("append duplicated"):
            self._delayed.append(partial(self._log.append_tiles, offered))
        for shard, offer in offered.items():
            if not faults.occurs("append skipped a shard", shard):
                taken = self._log.append_if_next(offer)
                faults.trace("  log", "takes" if taken else "refuses", describe_tile(offer.tile))
        if faults.occurs("append response lost"):
            raise ResponseLost


def describe_tile(tile: Tile | None) -> str:
    """Return one line about a tile for the trace."""
    if tile is None:
        return "nothing"
    header = tile.header
    return f"{header.shard}/{header.seq} {header.kind} of interval {header.interval} ({tile.hash[:6]})"
