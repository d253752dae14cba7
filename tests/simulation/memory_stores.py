"""Both stores in memory, with the semantics of PostgreSQL, and the publishers' connections to them.

A state can be copied, restored and lost. Its transactions are atomic and hold row locks, which other sessions skip. The
log never loses an entry. Faults occur in the connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np

from murmurate.errors import ChainError
from murmurate.public_log.chain import check_follows
from murmurate.public_log.record import RELEASE_KINDS, Entry, RecordKind
from murmurate.publisher.desired_state import DesiredState
from murmurate.publisher.protocol import LogTail, Outcome, SeenState
from murmurate.types import Demand
from tests.simulation import sample_plans_and_keys as samples
from tests.simulation.fault_schedule import FaultSchedule, ResponseLost, Violation


class ZoneRow(NamedTuple):
    """What a state holds about a zone."""

    head: Entry | None = None
    pending: Entry | None = None
    release: tuple[str, ...] = ()  # the mirror of the log
    unreadable: bool = False
    written: Entry | None = None  # the last entry that was pending here; only the simulator uses it


class Snapshot(NamedTuple):
    """The contents of a backup or of a replica."""

    rows: dict[str, ZoneRow]
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
    may_block: bool = False  # the publisher lacks a key, or has impossible settings: it may report blocked zones
    seen_seq: dict[str, int] = field(default_factory=dict)  # the number of the last line that the state has seen
    locked_heads: dict[str, Entry | None] = field(default_factory=dict)  # the state's head when it was locked
    unreadable: set[str] = field(default_factory=set)  # zones whose head could not be read
    log_seq: dict[str, int] = field(default_factory=dict)  # the number of the last line that the log reported
    stale_read: bool = False  # the log reported an older head
    requested_interval: dict[str, int] = field(default_factory=dict)  # whose demand was requested
    demand: dict[tuple[str, int], int] = field(default_factory=dict)  # all demand of the state at that time
    loaded_wh: dict[str, int] = field(default_factory=dict)  # the demand that was returned
    saved_pending: dict[str, Entry | None] | None = None  # the pending entries after the commit
    saved_heads: dict[str, Entry | None] = field(default_factory=dict)  # the head of each locked zone after the commit
    slot_reached: bool = False


class StoreObserver(Protocol):
    """Is called for every change of the stores."""

    def on_save(
        self, session: StateSession, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]
    ) -> None:
        """Called just before a transaction is applied."""

    def on_send(self, observed: ObservedRound, entry: Entry) -> None:
        """Called just before an entry is sent to the log."""

    def on_append(self, entry: Entry) -> None:
        """Called just after the log has taken an entry."""

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

    def lock(self, zones: Iterable[str]) -> dict[str, SeenState]:
        state = self.state
        if self._faults.occurs("state unreachable", state.name):
            raise ResponseLost
        self._epoch = state.epoch
        locked = [zone for zone in zones if zone not in state.locks]
        state.locks.update(dict.fromkeys(locked, self))
        self.observed.seen_seq = {zone: len(state.rows[zone].release) - 1 for zone in locked}
        self.observed.locked_heads = {zone: state.rows[zone].head for zone in locked}
        self.observed.unreadable = {zone for zone in locked if state.rows[zone].unreadable}
        return {zone: _seen_state(state.rows[zone]) for zone in locked}

    def load_demand(self, interval: Mapping[str, int]) -> Demand:
        self._check_transaction()
        stored = [(zone, self.state.demand.get((zone, number))) for zone, number in interval.items()]
        self.observed.requested_interval = dict(interval)
        self.observed.demand = dict(self.state.demand)
        self.observed.loaded_wh = loaded_wh = {zone: energy for zone, energy in stored if energy is not None}
        if not loaded_wh:
            return _NO_DEMAND
        energy_wh = np.array(list(loaded_wh.values()), np.int64)
        bounds = tuple(map(samples.bounds_of, loaded_wh.values()))
        return Demand(
            zones=tuple(loaded_wh), energy_wh=energy_wh, reported=energy_wh % 7, imputed=energy_wh % 5, bounds=bounds
        )

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        self._check_transaction()
        if self._faults.occurs("commit failed", self.state.name):
            raise ResponseLost
        self._observer.on_save(self, seen, pending)
        rows = self.state.rows
        for zone, entries in seen.items():
            row = rows[zone]
            rows[zone] = row._replace(head=entries[-1], release=row.release + tuple(entry.line for entry in entries))
        for zone, draft in pending.items():
            row = rows[zone]
            rows[zone] = row._replace(pending=draft, written=draft or row.written)
        locked = [zone for zone, holder in self.state.locks.items() if holder is self]
        self.observed.saved_pending = {zone: rows[zone].pending for zone in locked}
        self.observed.saved_heads = {zone: rows[zone].head for zone in locked}
        self.rollback()
        if seen or pending:
            self.state.record_commit()
        if self._faults.occurs("commit acknowledgement lost", self.state.name):
            raise ResponseLost

    def rollback(self) -> None:
        locks = self.state.locks
        for zone in [zone for zone, holder in locks.items() if holder is self]:
            del locks[zone]

    def _check_transaction(self) -> None:
        if self._epoch != self.state.epoch:
            self._faults.record("transaction lost with its database", self.state.name)
            raise ResponseLost


def _seen_state(row: ZoneRow) -> SeenState:
    return SeenState(None, None, "unreadable") if row.unreadable else SeenState(row.head, row.pending)


class MemoryLog:
    """A log that checks each entry before it takes it, by the server's own clock, like `public_log.append`."""

    strict = True

    def __init__(self, zones: Iterable[str], observer: StoreObserver) -> None:
        self.now = 0  # the current interval
        self.lines: dict[str, list[str]] = {zone: [] for zone in zones}
        self.heads: dict[str, Entry | None] = dict.fromkeys(self.lines)
        self.plans: set[str] = set()
        self.observer = observer

    def append_if_next(self, entry: Entry) -> bool:
        """Append the entry if it follows the head of its zone."""
        zone = entry.record.zone
        if not self._accepts(self.heads[zone], entry):
            return False
        self.store_entry(zone, entry)
        self.observer.on_append(entry)
        return True

    def store_entry(self, zone: str, entry: Entry) -> None:
        self.lines[zone].append(entry.line)
        self.heads[zone] = entry

    def _accepts(self, head: Entry | None, entry: Entry) -> bool:
        record = entry.record
        try:
            check_follows(head, entry)
        except ChainError:
            return False
        if record.kind in {RecordKind.OPEN, RecordKind.PLAN} and record.plan not in self.plans:
            return False
        return record.kind not in RELEASE_KINDS or record.interval < self.now


class PutIfAbsentLog(MemoryLog):
    """An object store that creates `zone/number` if it does not exist, and checks nothing else."""

    strict = False

    def _accepts(self, head: Entry | None, entry: Entry) -> bool:  # noqa: ARG002
        zone, seq = entry.record.zone, entry.record.seq
        if seq > len(self.lines[zone]):
            raise Violation("gap", f"{zone} was offered number {seq} after {len(self.lines[zone])} lines")
        return seq == len(self.lines[zone])


class LogConnection:
    """A publisher's connection to the log."""

    def __init__(self, log: MemoryLog, faults: FaultSchedule, delayed: list[list[Entry]]) -> None:
        self._log = log
        self._faults = faults
        self._delayed = delayed  # appends that will arrive later
        self.observed = ObservedRound({})
        self.broken = False

    def read(self, after: Mapping[str, int]) -> dict[str, LogTail]:
        faults = self._faults
        if self.broken or faults.occurs("log unreachable"):
            raise ResponseLost
        tails = {zone: self._read_tail(zone, seq) for zone, seq in after.items()}
        self.observed.log_seq = {zone: tail.last_seq for zone, tail in tails.items()}
        return tails

    def _read_tail(self, zone: str, after: int) -> LogTail:
        faults, lines = self._faults, self._log.lines[zone]
        last, end = len(lines) - 1, len(lines)
        if last >= 0 and faults.occurs("stale read of the log", zone):
            self.observed.stale_read = True
            last = max(last - 1 - faults.below(3), -1)
            end = last + 1
        elif last > after and faults.occurs("head read before the lines", zone):
            last = after + faults.below(last - after)
        if end - after > 2 and faults.occurs("few lines read", zone):
            end = after + 1 + faults.below(end - after - 1)
        last_hash = sha256(lines[last].encode()).hexdigest() if last >= 0 else ""
        return LogTail(last, tuple(lines[after + 1 : end]), last_hash)

    def append(self, entries: Iterable[Entry]) -> None:
        faults, offered = self._faults, list(entries)
        for entry in offered:
            self._log.observer.on_send(self.observed, entry)
        if faults.occurs("append lost"):
            raise ResponseLost
        if faults.occurs("append delayed"):
            self._delayed.append(offered)
            raise ResponseLost
        if faults.occurs("append duplicated"):
            self._delayed.append(offered)
        for entry in offered:
            if not faults.occurs("append skipped a zone", entry.record.zone):
                taken = self._log.append_if_next(entry)
                faults.trace("  log", "takes" if taken else "refuses", describe_entry(entry))
        if faults.occurs("append response lost"):
            raise ResponseLost


def describe_entry(entry: Entry | None) -> str:
    """Return one line about an entry for the trace."""
    if entry is None:
        return "nothing"
    r = entry.record
    return f"{r.zone}/{r.seq} {r.kind} of interval {r.interval} ({entry.hash[:6]})"
