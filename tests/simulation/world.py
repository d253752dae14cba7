"""The two stores in memory, with the semantics of PostgreSQL, and the connections through which a publisher sees them.

A state may be copied, set back and lost; its transactions hold row locks that others skip, and apply at once or not at
all. The log keeps what it took for ever. Faults strike in the connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np

from murmurate.errors import ChainError
from murmurate.publication.chain import refuse_misfit
from murmurate.publication.publisher import Beyond, Known, Outcome
from murmurate.publication.record import RELEASES, Entry, Kind
from murmurate.publication.wish import Wish
from murmurate.quantities import Demand
from tests.simulation import cast
from tests.simulation.weather import Lost, Violation, Weather


class Row(NamedTuple):
    """What a state holds about a zone."""

    head: Entry | None = None
    pending: Entry | None = None
    release: tuple[str, ...] = ()  # the mirror of the log
    unreadable: bool = False
    written: Entry | None = None  # the last entry ever pending here: the simulator's own memory, set back with the row


class Snapshot(NamedTuple):
    """A backup, or how far a replica has come."""

    rows: dict[str, Row]
    demand: dict[tuple[str, int], int]


class MemoryState:
    """A state database: rows, demand, row locks, and the last commits as a lagging replica has them."""

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.name = name
        self.epoch = 0
        self.set_back(snapshot)

    def set_back(self, snapshot: Snapshot) -> None:
        """The database becomes what it was; every open transaction is lost."""
        self.rows = dict(snapshot.rows)
        self.demand = dict(snapshot.demand)
        self.locks: dict[str, Session] = {}
        self.epoch += 1
        self.history = [snapshot]

    def snapshot(self) -> Snapshot:
        return Snapshot(dict(self.rows), dict(self.demand))

    def committed(self) -> None:
        self.history.append(self.snapshot())
        del self.history[:-6]


@dataclass(slots=True)
class Turn:
    """What happened in one turn of a publisher, as the oracle must know it."""

    wishes: dict[str, Wish]
    excused: bool = False  # the publisher lacks a key, or was told what cannot be done: zones may be set aside
    known: dict[str, int] = field(default_factory=dict)  # the number of the last line that the state had seen
    found: dict[str, Entry | None] = field(default_factory=dict)  # and that line, as the state told it
    unreadable: set[str] = field(default_factory=set)  # or could not tell
    told: dict[str, int] = field(default_factory=dict)  # the number of the last line, as the log was read
    stale: bool = False  # the log was not read as it is
    asked: dict[str, int] = field(default_factory=dict)  # the interval whose demand was asked for
    demand: dict[tuple[str, int], int] = field(default_factory=dict)  # all that the state held then
    recalled: dict[str, int] = field(default_factory=dict)  # demand that was handed out [Wh]
    saved: dict[str, Entry | None] | None = None  # what stood pending when the turn was committed
    heads: dict[str, Entry | None] = field(default_factory=dict)  # and the head, of each zone that was locked
    beaten: bool = False


class Witness(Protocol):
    """Whoever watches the stores."""

    def saving(self, session: Session, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        """Just before a transaction is applied."""

    def sending(self, turn: Turn, entry: Entry) -> None:
        """Just before an entry leaves."""

    def taken(self, entry: Entry) -> None:
        """Just after the log took an entry."""

    def ended(self, session: Session, outcome: Outcome) -> None:
        """After a turn."""


_NOTHING = np.zeros(0, np.int64)
_NO_DEMAND = Demand(zones=(), energy_wh=_NOTHING, reported=_NOTHING, imputed=_NOTHING)


class Session:
    """A publisher's connection to a state: one transaction at a time, from `lock` to `save` or `rollback`."""

    def __init__(self, state: MemoryState, weather: Weather, witness: Witness) -> None:
        self.state = state
        self._weather = weather
        self._witness = witness
        self.turn = Turn({})
        self._epoch = -1

    def lock(self, zones: Iterable[str]) -> dict[str, Known]:
        state = self.state
        if self._weather.strikes("state unreachable", state.name):
            raise Lost
        self._epoch = state.epoch
        mine = [zone for zone in zones if zone not in state.locks]
        state.locks.update(dict.fromkeys(mine, self))
        self.turn.known = {zone: len(state.rows[zone].release) - 1 for zone in mine}
        self.turn.found = {zone: state.rows[zone].head for zone in mine}
        self.turn.unreadable = {zone for zone in mine if state.rows[zone].unreadable}
        return {zone: _known(state.rows[zone]) for zone in mine}

    def recall(self, interval: Mapping[str, int]) -> Demand:
        self._refuse_if_lost()
        has = [(zone, self.state.demand.get((zone, number))) for zone, number in interval.items()]
        self.turn.asked = dict(interval)
        self.turn.demand = dict(self.state.demand)
        self.turn.recalled = found = {zone: energy for zone, energy in has if energy is not None}
        if not found:
            return _NO_DEMAND
        energy_wh = np.array(list(found.values()), np.int64)
        bounds = tuple(map(cast.bounds_of, found.values()))
        return Demand(
            zones=tuple(found), energy_wh=energy_wh, reported=energy_wh % 7, imputed=energy_wh % 5, bounds=bounds
        )

    def save(self, seen: Mapping[str, list[Entry]], pending: Mapping[str, Entry | None]) -> None:
        self._refuse_if_lost()
        if self._weather.strikes("commit failed", self.state.name):
            raise Lost
        self._witness.saving(self, seen, pending)
        rows = self.state.rows
        for zone, entries in seen.items():
            row = rows[zone]
            rows[zone] = row._replace(head=entries[-1], release=row.release + tuple(entry.line for entry in entries))
        for zone, draft in pending.items():
            row = rows[zone]
            rows[zone] = row._replace(pending=draft, written=draft or row.written)
        mine = [zone for zone, holder in self.state.locks.items() if holder is self]
        self.turn.saved = {zone: rows[zone].pending for zone in mine}
        self.turn.heads = {zone: rows[zone].head for zone in mine}
        self.rollback()
        if seen or pending:
            self.state.committed()
        if self._weather.strikes("commit acknowledgement lost", self.state.name):
            raise Lost

    def rollback(self) -> None:
        locks = self.state.locks
        for zone in [zone for zone, holder in locks.items() if holder is self]:
            del locks[zone]

    def _refuse_if_lost(self) -> None:
        if self._epoch != self.state.epoch:
            self._weather.count("transaction lost with its database", self.state.name)
            raise Lost


def _known(row: Row) -> Known:
    return Known(None, None, "unreadable") if row.unreadable else Known(row.head, row.pending)


class MemoryLog:
    """A log that compares before it takes: `public_log.append`, with the server's own true clock."""

    strict = True

    def __init__(self, zones: Iterable[str], witness: Witness) -> None:
        self.now = 0  # the interval that is running
        self.lines: dict[str, list[str]] = {zone: [] for zone in zones}
        self.heads: dict[str, Entry | None] = dict.fromkeys(self.lines)
        self.plans: set[str] = set()
        self.witness = witness

    def take(self, entry: Entry) -> bool:
        """Take the entry if it follows the head of its zone."""
        zone = entry.record.zone
        if not self._admits(self.heads[zone], entry):
            return False
        self.put(zone, entry)
        self.witness.taken(entry)
        return True

    def put(self, zone: str, entry: Entry) -> None:
        self.lines[zone].append(entry.line)
        self.heads[zone] = entry

    def _admits(self, head: Entry | None, entry: Entry) -> bool:
        record = entry.record
        try:
            refuse_misfit(head, entry)
        except ChainError:
            return False
        if record.kind in {Kind.OPEN, Kind.PLAN} and record.plan not in self.plans:
            return False
        return record.kind not in RELEASES or record.interval < self.now


class PutIfAbsentLog(MemoryLog):
    """An object store that creates `zone/number` where it does not exist yet, and looks into nothing."""

    strict = False

    def _admits(self, head: Entry | None, entry: Entry) -> bool:  # noqa: ARG002
        zone, seq = entry.record.zone, entry.record.seq
        if seq > len(self.lines[zone]):
            raise Violation("gap", f"{zone} was offered number {seq} after {len(self.lines[zone])} lines")
        return seq == len(self.lines[zone])


class Channel:
    """A publisher's connection to the log."""

    def __init__(self, log: MemoryLog, weather: Weather, post: list[list[Entry]]) -> None:
        self._log = log
        self._weather = weather
        self._post = post  # messages that will arrive later
        self.turn = Turn({})
        self.broken = False

    def read(self, after: Mapping[str, int]) -> dict[str, Beyond]:
        weather = self._weather
        if self.broken or weather.strikes("log unreachable"):
            raise Lost
        answer = {zone: self._beyond(zone, seq) for zone, seq in after.items()}
        self.turn.told = {zone: beyond.last_seq for zone, beyond in answer.items()}
        return answer

    def _beyond(self, zone: str, after: int) -> Beyond:
        weather, lines = self._weather, self._log.lines[zone]
        last, end = len(lines) - 1, len(lines)
        if last >= 0 and weather.strikes("stale read of the log", zone):
            self.turn.stale = True
            last = max(last - 1 - weather.below(3), -1)
            end = last + 1
        elif last > after and weather.strikes("head read before the lines", zone):
            last = after + weather.below(last - after)
        if end - after > 2 and weather.strikes("few lines read", zone):
            end = after + 1 + weather.below(end - after - 1)
        hashed = sha256(lines[last].encode()).hexdigest() if last >= 0 else ""
        return Beyond(last, tuple(lines[after + 1 : end]), hashed)

    def append(self, entries: Iterable[Entry]) -> None:
        weather, offered = self._weather, list(entries)
        for entry in offered:
            self._log.witness.sending(self.turn, entry)
        if weather.strikes("append lost"):
            raise Lost
        if weather.strikes("append delayed"):
            self._post.append(offered)
            raise Lost
        if weather.strikes("append duplicated"):
            self._post.append(offered)
        for entry in offered:
            if not weather.strikes("append passed over a zone", entry.record.zone):
                taken = self._log.take(entry)
                weather.tell("  log", "takes" if taken else "refuses", brief(entry))
        if weather.strikes("append answer lost"):
            raise Lost


def brief(entry: Entry | None) -> str:
    """An entry in a story."""
    if entry is None:
        return "nothing"
    r = entry.record
    return f"{r.zone}/{r.seq} {r.kind} of interval {r.interval} ({entry.hash[:6]})"
