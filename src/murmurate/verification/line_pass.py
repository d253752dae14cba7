"""Check the lines of single zones. Where tiles are at hand as well, lines are compared with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from murmurate.public_log.predicted_rows import Carried, carry_over
from murmurate.public_log.tile import RowKind, Rows, TileHeader
from murmurate.public_log.tile_chain import COST_COLUMNS
from murmurate.public_log.zone_line import ZoneLine, is_closed_by, parse_zone_line
from murmurate.public_log.zone_table import ZoneRow, ZoneTable
from murmurate.verification.chain_run import BrokenRule, NumberSet, Placement
from murmurate.verification.check_context import READ_ERRORS, CheckContext
from murmurate.verification.log_item import LogItem
from murmurate.verification.plan_check import ChangeCheck, ProvenPlan, ReleaseHistory, ReleaseRun
from murmurate.verification.row_terms import RowTerms
from murmurate.verification.tile_pass import PLACED, TilePass
from murmurate.verification.zone_line_check import ZoneLineCheck


class LinePass:
    """Lines find their place in the chains of their zones, and rows are held against their plans."""

    def __init__(self, context: CheckContext, tiles: TilePass) -> None:
        self._context, self._tiles = context, tiles
        self.chains: dict[str, ZoneLineCheck] = {}  # by zone
        self._accounts: dict[str, _Account] = {}  # by zone
        self._read: dict[tuple[str, str, str], NumberSet] = {}  # numbers of the tiles in a source, shard and zone

    def check_line(self, item: LogItem, source: str) -> None:
        """Find the place of a line in the chain of its zone, and hold its row against its plan."""
        context = self._context
        try:
            line = parse_zone_line(item.data.decode())
        except READ_ERRORS as error:
            context.add_unreadable(item, error, source)
            return
        if not context.is_chosen(line.zone):
            return
        header = line.header
        context.report.tiles_by_source[source] += 1
        context.report.records_by_source[source] += line.row is not None
        shard = self._tiles.find_shard(header.shard)
        chain = self.chains.setdefault(line.zone, ZoneLineCheck(context.verify))
        in_tile, follows_tile = shard.hash_at(header.seq), shard.hash_at(header.seq - 1) == header.prev
        known = in_tile == line.tile.hash
        place, broken = chain.place_line(line, item.data, source, in_tiles=in_tile is not None or follows_tile)
        is_new = self._read.setdefault((source, header.shard, line.zone), NumberSet()).add(header.seq)
        if place is Placement.DUPLICATE and not is_new:
            broken = [BrokenRule(line.zone, "repeated", "stands twice in this source")]
        context.add_broken(header, broken, source)
        if place not in PLACED:
            return
        shard.note_header(line.tile, item.data, line.zone, source)
        if known:
            self._compare_with_table(line, source)
        elif in_tile is None:
            self._sum_up(line)
        if known or in_tile is None:
            self._hold_against_plan(line, source, report=in_tile is None)

    def _compare_with_table(self, line: ZoneLine, source: str) -> None:
        """The plan of a line without a row is not proven by the line itself. The zone table of its tile shows it."""
        table = self._context.tables.find_table(line.header.table)
        row = _find_row(table, line) if isinstance(table, ZoneTable) else None
        if row is None or row.plan != line.plan:
            words = f"is {line.plan} in this line and {row.plan if row else 'not there'} in the zone table"
            self._context.add_finding(line.header, line.zone, "plan", words, source)

    def _sum_up(self, line: ZoneLine) -> None:
        header, summary = line.header, self._context.report.zone_summary(line.zone)
        summary.add_terms(key=header.key, plan=line.plan, interval_s=header.interval_s)
        if header.next_key is not None:
            summary.keys.append(header.next_key)
            self._context.keys.add_rotation(header)
        if is_closed_by(header, line.zone):
            summary.closed_after = header.interval
        if line.row is not None:
            kinds = Counter(kind.name.lower() for kind in RowKind if kind == line.row["kind"][0])
            epsilon, rho = (int(line.row[f"total_{cost}"][0]) for cost in COST_COLUMNS)
            summary.add_rows(kinds, header.interval, header.interval, (epsilon, rho))

    def _hold_against_plan(self, line: ZoneLine, source: str, *, report: bool) -> None:
        """Check a line under its plan. What tiles have shown already is noted without a `report`."""
        proven = self._context.prove_plan(line.header, line.plan, line.zone, source)
        begins = line.zone not in self._accounts and line.row is None
        account = self._accounts.setdefault(line.zone, _Account(complete=begins))
        if proven is None:
            account.drop_runs()  # what was released here is not known: a later change finds a gap
            return
        carried = account.carry_over(line.header)
        for rule, words in (*account.change_plan(proven, self._context.changes), *_broken_terms(line, proven, carried)):
            if report:
                self._context.add_finding(line.header, line.zone, rule, words, source)
        if line.row is not None:
            account.add_release(proven, line.header, line.row)


def _find_row(table: ZoneTable, line: ZoneLine) -> ZoneRow | None:
    """The row of a line's zone in the zone table of its tile. A tile that closes the zone has it among the closed."""
    if is_closed_by(line.header, line.zone) and line.zone in table.closed_by_zone:
        return table.closed_by_zone[line.zone].row
    return table.find_row(line.zone)


def _broken_terms(line: ZoneLine, proven: ProvenPlan, carried: Carried | None) -> Iterator[tuple[str, str]]:
    """Yield where a line does not say what its plan says."""
    if line.header.interval_s != proven.terms.interval_s:
        yield "terms", f"interval_s is {line.header.interval_s}: the plan says {proven.terms.interval_s}"
    if line.row is not None:
        for _, rule, words in RowTerms.from_plans([proven]).broken_terms(line.header, line.row, carried):
            yield rule, words


class _Account:
    """One zone under its plans."""

    def __init__(self, *, complete: bool) -> None:
        self._complete = complete  # whether it began with the chain
        self._plan: ProvenPlan | None = None
        self._runs: list[ReleaseRun] = []
        self._end = 0  # the interval after the last one
        self._last: tuple[TileHeader, Rows] | None = None  # the last row

    def drop_runs(self) -> None:
        self._runs, self._plan, self._complete, self._last = [], None, False, None

    def carry_over(self, header: TileHeader) -> Carried | None:
        """Return what the next row takes from the row before; None where that is not known."""
        if self._last is None:
            return carry_over(None, 1, header.lead) if self._complete and not self._runs else None
        before, row = self._last
        follows = (before.shard, before.interval + 1) == (header.shard, header.interval)
        return carry_over(row, 1, header.lead) if follows else None

    def change_plan(self, plan: ProvenPlan, changes: ChangeCheck) -> Iterator[tuple[str, str]]:
        """Yield why a change to a plan may cost more than was promised."""
        before, self._plan = self._plan, plan
        if before is not None and before is not plan:
            history = ReleaseHistory(tuple(self._runs), self._end, self._complete)
            words = changes.find_broken_promise(history, plan)
            if words is not None:
                yield "change", words

    def add_release(self, plan: ProvenPlan, header: TileHeader, row: Rows) -> None:
        interval, measured = header.interval, bool(row["kind"][0] == RowKind.MEASURED)
        self._last = header, row
        if self._runs and interval != self._end:  # lines are missing: nothing is known of the time before
            self._runs, self._complete = [], False
        if self._runs and self._runs[-1][:2] == (plan, measured):
            self._runs[-1] = self._runs[-1]._replace(length=self._runs[-1].length + 1)
        else:
            self._runs.append(ReleaseRun(plan, measured, 1))
        self._end = interval + 1
