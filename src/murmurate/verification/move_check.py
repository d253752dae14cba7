"""Check the ways of zones through shards: one shard at a time, and each begins where the one before ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from murmurate.public_log.zone_table import MovedFrom
from murmurate.verification.shard_history import LogHistory, Presence


class TwoRows(NamedTuple):
    """One interval of a zone that two shards have decided."""

    zone: str
    interval: int
    shards: tuple[str, str]


class BrokenMove(NamedTuple):
    """A rule that the way of a zone breaks."""

    presence: Presence  # where the zone enters the later shard
    rule: str
    message: str
    two_rows: TwoRows | None = None


@dataclass(frozen=True, slots=True)
class MoveCheck:
    """The ways of all zones that were in a shard."""

    history: LogHistory

    def broken_moves(self, zone: str) -> Iterator[BrokenMove]:
        """Yield what is wrong with the way of a zone."""
        presences = self.history.presences.get(zone, {}).values()
        way = sorted(presences, key=lambda at: (at.row.since, at.row.moved_from is not None, at.seq))
        for number, presence in enumerate(way):
            state = presence.row.moved_from
            if state is not None:
                yield from self._broken_start(zone, presence, state)
            elif number:
                words = f"was opened in {way[number - 1].shard} before; it can be moved, and not opened again"
                yield BrokenMove(presence, "two shards", words, self._two_rows(zone, way[number - 1], presence))

    def _broken_start(self, zone: str, presence: Presence, state: MovedFrom) -> Iterator[BrokenMove]:
        last = self.history.last_interval(state.shard)
        departure = self.history.departures.get((zone, state.shard))
        if last is None or (departure is None and last < state.interval):
            words = f"moved from {state.shard}, whose tiles up to interval {state.interval} are not here"
            yield BrokenMove(presence, "gap", words)
        elif departure is None:
            if last > state.interval:
                way = self.history.presences[zone].values()
                old = next((each for each in way if each.shard == state.shard), None)
                both = self._two_rows(zone, old, presence) if old else None
                yield BrokenMove(presence, "two shards", f"moved from {state.shard}, but never left it", both)
        else:
            if departure.to_shard != presence.shard:
                words = f"moved from {state.shard}, which has handed it to {departure.to_shard or 'no shard'}"
                yield BrokenMove(presence, "two shards", words)
            if departure.key != presence.key:
                words = f"{presence.key} signs for the zone after its move, not {departure.key} as in {state.shard}"
                yield BrokenMove(presence, "key", words)
            for member in ("interval_s", "lead"):
                before, after = getattr(departure, member), getattr(presence, member)
                if before != after:
                    words = f"is {after} for the zone after its move, not {before} as in {state.shard}"
                    yield BrokenMove(presence, member, words)
            if departure.state.interval != state.interval or (departure.known and departure.state != state):
                words = f"begins with {_describe(state)}; in {state.shard} it ended with {_describe(departure.state)}"
                yield BrokenMove(presence, "moved_from", words)

    def _two_rows(self, zone: str, old: Presence, new: Presence) -> TwoRows | None:
        """The first interval that both shards have decided, if there is one."""
        first = max(old.row.since, new.row.since)
        departure = self.history.departures.get((zone, old.shard))
        ends = [self.history.last_interval(at.shard) for at in (old, new)]
        ends += [] if departure is None else [departure.state.interval]
        if old.shard == new.shard or any(end is None or end < first for end in ends):
            return None
        return TwoRows(zone, first, (old.shard, new.shard))


def _describe(state: MovedFrom) -> str:
    totals = f"{state.total_epsilon_micro} and {state.total_rho_micro}"
    return f"interval {state.interval}, leaf {state.leaf[:16]}, totals {totals}"
