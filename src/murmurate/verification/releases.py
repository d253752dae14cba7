"""What was released for a zone: the rows that a log holds, and what a change of plan is judged by.

A change of plan is judged by the plans before it and by which intervals were measured. Of each shard this is a bit for
each row (`LogHistory`), for the verifier, which reads all tiles, and for `murmurate zone change`, which reads the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from murmurate.errors import MurmurateError
from murmurate.planning.plan import Plan
from murmurate.planning.plan_change import PlanHistory, check_plan_change, lookback_intervals
from murmurate.planning.release_terms import parse_plan
from murmurate.public_log.tile import RowKind, Tile, TileKind, parse_tile
from murmurate.public_log.zone_line import LoggedRelease, find_release, line_table, parse_zone_line
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.units import BoolArray
from murmurate.verification.context import TableStore
from murmurate.verification.plans import ProvenPlan
from murmurate.verification.sources import READ_ERRORS, ItemKind, LogSource, read_items

Chain = tuple[str, str]  # a shard, and the zone whose lines it is; empty for the tiles of the shard
FindTable = Callable[[str], ZoneTable | str]  # by digest; a text says why there is none
FindPlan = Callable[[str], ProvenPlan | str | None]  # likewise; None: it was not given


class LoggedZone(NamedTuple):
    """What a log holds about one zone."""

    releases: list[LoggedRelease]  # ascending intervals
    plans: dict[str, str]  # text of each plan that a release names, by digest
    first_paid_s: int | None = None  # when the first price of the zone is paid [s of UTC]; None: no tile has the zone


def read_zone_history(source: LogSource, zone: str, plans: Iterable[str] = ()) -> LoggedZone:
    """Return the rows of a zone, each interval once, and their plans. The log must have been verified.

    `plans` are further documents.
    """
    tables, by_digest, found = TableStore(), dict[str, str](), dict[int, LoggedRelease]()
    texts, first_paid_s = [*plans], None
    for item in read_items(source, ItemKind.ZONE_TABLE, ItemKind.PLAN):
        if item.kind is ItemKind.PLAN:
            texts.append(item.data.decode())
        else:
            tables.add_document(item.data.decode())
    for text in texts:
        try:
            by_digest[parse_plan(text)[1]] = text
        except READ_ERRORS:  # not a plan: no row names it
            continue
    for item in read_items(source, ItemKind.TILE, ItemKind.ZONE_LINE):
        try:
            is_line = item.kind is ItemKind.ZONE_LINE
            tile = parse_zone_line(item.data.decode()) if is_line else parse_tile(item.data)
        except READ_ERRORS:  # of a shard without the zone: the others were verified
            continue
        table = line_table(tile) if is_line else tables.find_table(tile.header.table)
        row = table.find_row(zone) if isinstance(table, ZoneTable) else None
        if row is None or not isinstance(table, ZoneTable):
            continue
        first_paid_s = first_paid_s or (row.since + tile.header.lead) * tile.header.interval_s
        if (release := find_release(tile, table, zone)) is not None:
            found.setdefault(release.header.interval, release)
    releases = [found[interval] for interval in sorted(found)]
    named = {release.plan for release in releases}
    return LoggedZone(releases, {digest: text for digest, text in by_digest.items() if digest in named}, first_paid_s)


class ReleaseRun(NamedTuple):
    """Successive intervals of a zone under one plan, all measured or none."""

    plan: ProvenPlan
    measured: bool
    length: int  # intervals


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    """What was released for one zone, as far back as it is known."""

    runs: tuple[ReleaseRun, ...]  # oldest first
    end: int  # the interval after the last one
    complete: bool  # whether they reach back to where the zone was opened

    @property
    def begin(self) -> int:
        """The first interval."""
        return self.end - sum(run.length for run in self.runs)

    def to_plan_history(self, after: Plan) -> PlanHistory:
        """Return the newest intervals, as many as a change to `after` must look back."""
        longest = lookback_intervals([*dict.fromkeys(run.plan.plan for run in self.runs), after])
        releases: list[tuple[Plan, bool]] = []
        for run in reversed(self.runs):
            releases += [(run.plan.plan, run.measured)] * min(run.length, longest - len(releases))
        whole = self.complete and len(releases) == self.end - self.begin
        return PlanHistory(releases[::-1], first=self.end - len(releases), complete=whole)


@dataclass(slots=True)
class Stretch:
    """Successive intervals of a chain under one zone table."""

    table: str | ZoneTable  # its digest, or what a line shows of it
    zone_count: int
    first: int  # interval
    seq: int  # of the tile that it begins with
    source: str
    in_tiles: bool  # of lines whose tiles were checked
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

    def runs_of(self, at: int, plan: ProvenPlan) -> list[ReleaseRun]:
        """Return the runs of the zone in row `at`."""
        column = np.frombuffer(bytes(self._bits), np.uint8).reshape(-1, self._width)[:, at // 8]
        measured = ((column >> (7 - at % 8)) & 1).astype(np.bool_)
        if not len(measured):
            return []
        starts = np.concatenate([[0], np.flatnonzero(np.diff(measured)) + 1, [len(measured)]])
        return [ReleaseRun(plan, bool(measured[start]), int(end - start)) for start, end in pairwise(starts)]


class ZoneEntry(NamedTuple):
    """A zone in a shard, where it was seen first."""

    chain: Chain
    since: int  # the first interval that is decided for it
    seq: int
    source: str


class LogHistory:
    """What was released in each chain, and which zones are in it."""

    def __init__(self, find_table: FindTable, find_plan: FindPlan) -> None:
        self._find_table, self._find_plan = find_table, find_plan
        self.stretches: dict[Chain, list[Stretch]] = {}
        self.entries: dict[str, dict[str, ZoneEntry]] = {}  # by zone and shard
        self._results: dict[tuple[ReleaseHistory, ProvenPlan], str | None] = {}  # zones with one history share it

    def add_tile(self, chain: Chain, tile: Tile, table: ZoneTable, source: str = "", *, in_tiles: bool = False) -> bool:
        """Note which rows of a tile are measured. Returns whether a stretch begins: with another table, or after a gap.

        Later tiles may come first: `sort_stretches` puts them in order.
        """
        header, mine = tile.header, self.stretches.setdefault(chain, [])
        begins = not mine or mine[-1].in_tiles != in_tiles or header.kind in {TileKind.OPEN, TileKind.ZONES}
        if not begins:
            last = mine[-1].table if isinstance(mine[-1].table, str) else mine[-1].table.digest
            begins = last != header.table or (header.kind is TileKind.RELEASE and header.interval != mine[-1].end)
        if begins:
            first = header.interval + (header.kind is not TileKind.RELEASE)
            named = table.digest if tile.proof is None else table
            mine.append(Stretch(named, len(table), first, header.seq, source, in_tiles))
            for row in table.rows:
                entry = ZoneEntry(chain, max(row.since, first), header.seq, source)
                self.entries.setdefault(row.zone, {}).setdefault(header.shard, entry)
        if header.kind is TileKind.RELEASE and len(tile.rows) == len(table):
            mine[-1].add_interval(tile.rows["kind"] == RowKind.MEASURED)
        return begins

    def sort_stretches(self) -> None:
        """Put the stretches of each chain in order: a second copy may have had what the first one lacks."""
        for mine in self.stretches.values():
            mine.sort(key=lambda stretch: (stretch.first, stretch.seq))

    def changed_zones(self, chain: Chain, number: int) -> list[ZoneRow]:
        """Return the zones that are under another plan than in the stretch before."""
        mine = self.stretches[chain]
        if number == 0 or mine[number].table == mine[number - 1].table:
            return []
        before, after = (self._table_of(mine[at]) for at in (number - 1, number))
        old = {row.zone: row.plan for row in before.rows}
        return [row for row in after.rows if old.get(row.zone, row.plan) != row.plan]

    def _table_of(self, stretch: Stretch) -> ZoneTable:
        """Return the zone table of a stretch, or an empty one where it is missing."""
        found = self._find_table(stretch.table) if isinstance(stretch.table, str) else stretch.table
        return ZoneTable(()) if isinstance(found, str) else found

    def history_before(self, chain: Chain, number: int, zone: str) -> ReleaseHistory:
        """Return what was released for a zone before a stretch; before the end, where it is the number after all."""
        mine, runs = self.stretches[chain], list[ReleaseRun]()  # newest first
        end = begin = mine[number].first if number < len(mine) else mine[-1].end
        complete = False
        for stretch in reversed(mine[:number]):
            table = self._table_of(stretch)
            at = table.position.get(zone)
            proven = None if at is None else self._find_plan(table.rows[at].plan)
            if at is None or stretch.end != begin or not isinstance(proven, ProvenPlan):
                break
            for run in reversed(stretch.runs_of(at, proven)):
                if runs and runs[-1][:2] == run[:2]:  # neighbours of one kind are joined
                    runs[-1] = run._replace(length=runs[-1].length + run.length)
                else:
                    runs.append(run)
            begin = stretch.first
            if table.rows[at].since >= stretch.first:
                complete = True
                break
        return ReleaseHistory(tuple(runs[::-1]), end, complete)

    def find_broken_promise(self, history: ReleaseHistory, after: ProvenPlan) -> str | None:
        """Return why a change to `after` may cost more than was promised; None where it does not."""
        if not history.runs:
            return None
        key = (history, after)
        if key not in self._results:
            try:
                check_plan_change(history.to_plan_history(after.plan), after.plan)
                self._results[key] = None
            except MurmurateError as error:
                self._results[key] = str(error)  # the error itself would keep the sources open
        return self._results[key]
