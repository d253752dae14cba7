"""What was released in each shard, a bit for each row, and which zones entered and left it.

Changes of plan and moves are checked when all shards have been read: the shard that a zone came from may be read after
the one that it went to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from murmurate.public_log.tile import RowKind, TileHeader, TileKind
from murmurate.public_log.tile_chain import ShardHead
from murmurate.public_log.zone_table import MovedFrom, ZoneRow, ZoneTable
from murmurate.units import BoolArray
from murmurate.verification.plan_check import PlanStore, ProvenPlan, ReleaseHistory, ReleaseRun, encode_runs
from murmurate.verification.table_store import TableStore


@dataclass(slots=True)
class Stretch:
    """Successive intervals of a shard under one zone table."""

    table: str  # digest
    zone_count: int
    first: int  # interval
    seq: int  # of the tile that it begins with
    source: str
    _bits: bytearray = field(default_factory=bytearray)  # whether each row is measured

    @property
    def _width(self) -> int:
        return (self.zone_count + 7) // 8

    @property
    def end(self) -> int:
        """The interval after the last one."""
        return self.first + len(self._bits) // self._width

    def add_interval(self, measured: BoolArray) -> None:
        self._bits += np.packbits(measured).tobytes()

    def measured_of(self, at: int) -> BoolArray:
        """Return whether the zone in row `at` was measured, for each interval."""
        column = np.frombuffer(bytes(self._bits), np.uint8).reshape(-1, self._width)[:, at // 8]
        return ((column >> (7 - at % 8)) & 1).astype(np.bool_)


class Presence(NamedTuple):
    """A zone enters a shard."""

    shard: str
    row: ZoneRow
    seq: int
    key: str  # that signed the tile
    interval_s: int
    lead: int
    source: str


class Departure(NamedTuple):
    """A zone leaves a shard."""

    state: MovedFrom  # where its chain stood
    known: bool  # whether that could be followed
    to_shard: str
    key: str
    interval_s: int
    lead: int


@dataclass(slots=True)
class LogHistory:
    """The stretches of all shards, and the ways of the zones."""

    tables: TableStore
    plans: PlanStore
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    presences: dict[str, dict[tuple[str, int], Presence]] = field(default_factory=dict)  # by zone
    departures: dict[tuple[str, str], Departure] = field(default_factory=dict)  # by zone and shard, the last one

    def enter_table(self, header: TileHeader, table: ZoneTable, before: ShardHead | None, source: str) -> None:
        """Begin a stretch: a tile puts a zone table in force, or follows after a gap."""
        mine = self.stretches.setdefault(header.shard, [])
        first = header.interval + (header.kind is not TileKind.RELEASE)
        mine.append(Stretch(table.digest, len(table), first, header.seq, source))
        for row in table.rows:
            if row.since == first and row.zone not in (before.table.position if before else ()):
                terms = (header.key, header.interval_s, header.lead)
                presence = Presence(header.shard, row, header.seq, *terms, source)
                self.presences.setdefault(row.zone, {}).setdefault((header.shard, row.since), presence)

    def add_departures(self, header: TileHeader, table: ZoneTable, before: ShardHead, *, known: bool) -> None:
        """Note the zones that leave with a zone table, and where their chains stood, if that is `known`."""
        moved = dict(table.moved)
        for at, row in enumerate(before.table.rows):
            if row.zone not in table.position:
                leaf, totals = before.leaf_hashes[at].tobytes().hex(), before.totals[:, at].tolist()
                state = MovedFrom(header.shard, header.interval, leaf, *totals)
                terms = (header.key, header.interval_s, header.lead)
                departure = Departure(state, known, moved.get(row.zone, ""), *terms)
                self.departures[row.zone, header.shard] = departure

    def needs_stretch(self, header: TileHeader) -> bool:
        """Whether a tile begins a stretch."""
        mine = self.stretches.get(header.shard)
        if not mine or mine[-1].table != header.table or header.kind in {TileKind.OPEN, TileKind.ZONES}:
            return True
        return header.kind is TileKind.RELEASE and header.interval != mine[-1].end

    def add_release(self, header: TileHeader, kinds: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
        """Note which rows of a release are measured. The stretch must have begun."""
        self.stretches[header.shard][-1].add_interval(kinds == RowKind.MEASURED)

    def sort_stretches(self) -> None:
        """Put the stretches of each shard in order: a second copy may have had what the first one lacks."""
        for mine in self.stretches.values():
            mine.sort(key=lambda stretch: (stretch.first, stretch.seq))

    def changed_zones(self, shard: str, number: int) -> list[str]:
        """Return the zones that are under another plan than in the stretch before."""
        mine = self.stretches[shard]
        if number == 0 or mine[number].table == mine[number - 1].table:
            return []
        before, after = (self.tables.find_table(mine[at].table) for at in (number - 1, number))
        if isinstance(before, str) or isinstance(after, str):
            return []
        old = {row.zone: row.plan for row in before.rows}
        return [row.zone for row in after.rows if old.get(row.zone, row.plan) != row.plan]

    def last_interval(self, shard: str) -> int | None:
        """The last interval that is known of a shard."""
        return max((stretch.end - 1 for stretch in self.stretches.get(shard, ())), default=None)

    def row_at(self, shard: str, number: int, zone: str) -> tuple[int, ZoneRow] | None:
        """The row of a zone in a stretch, and its number."""
        table = self.tables.find_table(self.stretches[shard][number].table)
        if isinstance(table, str) or zone not in table.position:
            return None
        at = table.position[zone]
        return at, table.rows[at]

    def stretch_before_move(self, zone: str, state: MovedFrom) -> int | None:
        """The number of the last stretch of a zone in the shard that it left."""
        mine = self.stretches.get(state.shard, [])
        for number in reversed(range(len(mine))):
            if mine[number].end == state.interval + 1 and self.row_at(state.shard, number, zone) is not None:
                return number
        return None

    def history_before(self, shard: str, number: int, zone: str) -> ReleaseHistory:
        """Return what was released for a zone before a stretch, through all shards that it was in."""
        runs: list[list[ReleaseRun]] = []
        complete = False
        for run in self._walk_back(shard, number, zone):
            if run is None:
                complete = True
            else:
                runs.append(run)
        found = (each for run in reversed(runs) for each in run)
        return ReleaseHistory.from_runs(found, end=self.stretches[shard][number].first, complete=complete)

    def _walk_back(self, shard: str, number: int, zone: str) -> Iterator[list[ReleaseRun] | None]:
        """Yield the runs of each stretch before one, the newest first; None at last, if the zone was opened there."""
        visited: set[tuple[str, int]] = set()
        while (shard, number) not in visited:
            visited.add((shard, number))
            end, here = self.stretches[shard][number].first, self.row_at(shard, number, zone)
            if here is None:
                return
            row, waited = here[1], 0
            if row.since < end:
                number -= 1
            elif row.moved_from is None:
                yield None
                return
            else:
                shard, waited = row.moved_from.shard, row.since - 1 - row.moved_from.interval
                end, found = row.moved_from.interval + 1, self.stretch_before_move(zone, row.moved_from)
                number = -1 if found is None else found
            if number < 0 or self.stretches[shard][number].end != end:
                return
            before = self.row_at(shard, number, zone)
            proven = None if before is None else self.plans.proven_plan(before[1].plan)
            if before is None or not isinstance(proven, ProvenPlan):
                return
            released = encode_runs(proven, self.stretches[shard][number].measured_of(before[0]))
            yield [*released, *([ReleaseRun(proven, measured=False, length=waited)] if waited else [])]
