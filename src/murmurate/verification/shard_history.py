"""What was released in each shard, a bit for each row, and which zones are in it.

Changes of plan are checked when all copies of a shard have been read: a later one may have what an earlier one lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from murmurate.public_log.tile import RowKind, TileHeader, TileKind
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
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
        return max(1, (self.zone_count + 7) // 8)

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


class ZoneEntry(NamedTuple):
    """A zone in a shard, where it was seen first."""

    shard: str
    since: int  # the first interval that is decided for it
    seq: int
    source: str


@dataclass(slots=True)
class LogHistory:
    """The stretches of all shards, and the zones in them."""

    tables: TableStore
    plans: PlanStore
    stretches: dict[str, list[Stretch]] = field(default_factory=dict)
    entries: dict[str, dict[str, ZoneEntry]] = field(default_factory=dict)  # by zone and shard

    def enter_table(self, header: TileHeader, table: ZoneTable, source: str) -> None:
        """Begin a stretch: a tile puts a zone table in force, or follows after a gap."""
        mine = self.stretches.setdefault(header.shard, [])
        first = header.interval + (header.kind is not TileKind.RELEASE)
        mine.append(Stretch(table.digest, len(table), first, header.seq, source))
        for row in table.rows:
            entry = ZoneEntry(header.shard, row.since, header.seq, source)
            self.entries.setdefault(row.zone, {}).setdefault(header.shard, entry)

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

    def row_at(self, shard: str, number: int, zone: str) -> tuple[int, ZoneRow] | None:
        """The row of a zone in a stretch, and its number."""
        table = self.tables.find_table(self.stretches[shard][number].table)
        if isinstance(table, str) or zone not in table.position:
            return None
        at = table.position[zone]
        return at, table.rows[at]

    def history_before(self, shard: str, number: int, zone: str) -> ReleaseHistory:
        """Return what was released for a zone before a stretch."""
        mine, runs, complete = self.stretches[shard], list[list[ReleaseRun]](), False
        for at in range(number, -1, -1):
            here = self.row_at(shard, at, zone)
            if here is None:
                break
            if at < number:
                proven = self.plans.proven_plan(here[1].plan)
                if mine[at].end != mine[at + 1].first or not isinstance(proven, ProvenPlan):
                    break
                runs.append(encode_runs(proven, mine[at].measured_of(here[0])))
            if here[1].since >= mine[at].first:
                complete = True
                break
        found = (each for run in reversed(runs) for each in run)
        return ReleaseHistory.from_runs(found, end=mine[number].first, complete=complete)
