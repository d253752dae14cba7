"""Check the tiles of all shards, one after the other."""

from __future__ import annotations

from murmurate.errors import ChainError
from murmurate.public_log.canonical import shorten
from murmurate.public_log.predicted_rows import carry_over
from murmurate.public_log.tile import Tile, TileHeader, TileKind, parse_tile
from murmurate.public_log.tile_chain import check_signature
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.chain_run import BrokenRule, NumberSet, Placement
from murmurate.verification.check_context import READ_ERRORS, CheckContext, peek_place
from murmurate.verification.log_item import LogItem
from murmurate.verification.row_terms import RowTerms
from murmurate.verification.shard_check import ShardCheck
from murmurate.verification.shard_history import LogHistory
from murmurate.verification.zone_tally import ZoneTally

PLACED = frozenset({Placement.NEXT, Placement.OUT_OF_ORDER})


class TilePass:
    """Tiles find their place in their shards, and rows are held against their plans."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self.shards: dict[str, ShardCheck] = {}
        self.history = LogHistory(context.tables, context.plans)
        self._tallies: dict[str, ZoneTally] = {}
        self._terms: dict[str, RowTerms] = {}  # by shard, of its last zone table
        self._read: dict[tuple[str, str], NumberSet] = {}  # numbers of the tiles in a source and shard
        self._tables_of_shard: dict[str, set[str]] = {}  # only where some zones are chosen

    def note_tile(self, item: LogItem) -> None:
        """Note which zone tables a shard has, where only some zones are checked."""
        if self._context.zones is not None:
            shard, _, table = peek_place(item.data)
            self._tables_of_shard.setdefault(shard, set()).add(table)

    def find_shard(self, shard: str) -> ShardCheck:
        if shard not in self.shards:
            known, archived_seq = self._context.known_tiles.get(shard), self._context.archived_seq.get(shard, -1)
            self.shards[shard] = ShardCheck(self._context.verify, known, archived_seq=archived_seq)
        return self.shards[shard]

    def check_tile(self, item: LogItem, source: str) -> None:
        """Find the place of a tile in its shard, and hold its rows against their plans."""
        context = self._context
        chosen = context.zones is None or self._has_chosen_zone(peek_place(item.data)[0])
        try:
            tile = parse_tile(item.data)
        except READ_ERRORS as error:
            if chosen:
                context.add_unreadable(item, error, source)
            return
        if not chosen:
            self._follow_key(tile)
            return
        header = tile.header
        context.report.tiles_by_source[source] += 1
        context.report.records_by_source[source] += header.count
        check, table = self.find_shard(header.shard), context.tables.find_table(header.table)
        if isinstance(table, str):
            words = f"zone table {header.table} {table}; rows cannot be checked"
            context.add_once(header, header.table, "", "table", words, source)
            context.add_broken(header, check.place_header(tile, source), source)
            return
        place, broken = check.place_tile(tile, table, source)
        is_new = self._read.setdefault((source, header.shard), NumberSet()).add(header.seq)
        if place is Placement.DUPLICATE and not is_new:
            broken = [BrokenRule("", "repeated", "stands twice in this source")]
        context.add_broken(header, broken, source)
        if place in PLACED:
            self._book_tile(check, tile, table, source)

    def _follow_key(self, tile: Tile) -> None:
        """Learn from a shard that is not checked which key comes after which."""
        if tile.header.next_key is not None:
            try:
                check_signature(tile, self._context.verify)
            except ChainError:
                return
            self._context.keys.add_rotation(tile.header)

    def _book_tile(self, check: ShardCheck, tile: Tile, table: ZoneTable, source: str) -> None:
        header = tile.header
        tally = self._tallies.setdefault(header.shard, ZoneTally())
        if self.history.needs_stretch(header):
            self.history.enter_table(header, table, source)
            summary = self._context.report.zone_summary
            chosen = [(at, summary(zone)) for at, zone in enumerate(table.zones) if self._context.is_chosen(zone)]
            tally.begin(tile, table, chosen)
            for zone in table.closed:
                if self._context.is_chosen(zone.zone):
                    summary(zone.zone).closed_after = zone.last
            self._enter_plans(header, table, source)
        if header.kind is TileKind.KEY and header.next_key is not None:
            tally.change_key(header.next_key)
            self._context.keys.add_rotation(header)
        if header.kind is TileKind.RELEASE and len(tile.rows) == len(table):
            tally.add_rows(header.interval, tile.rows)
            self.history.add_release(header, tile.rows["kind"])
            head = check.head_before if check.head_before_known else None
            carried = None if head is None else carry_over(head.last_rows, len(tile.rows), header.lead)
            for at, rule, words in self._terms[header.shard].broken_terms(header, tile.rows, carried):
                self._context.add_finding(header, "" if at is None else table.zones[at], rule, words, source)

    def _enter_plans(self, header: TileHeader, table: ZoneTable, source: str) -> None:
        """Prove the plans of a zone table, and hold the table against them."""
        rows = [row for row in table.rows if self._context.is_chosen(row.zone)]
        zone_of_plan = {row.plan: row.zone for row in reversed(rows)}
        proven = {
            plan: self._context.prove_plan(header, plan, zone, source) for plan, zone in reversed(zone_of_plan.items())
        }
        self._terms[header.shard] = RowTerms.from_plans([proven.get(row.plan) for row in table.rows])
        for row in rows:
            plan = proven[row.plan]
            stated = {"interval_s": header.interval_s, "currency": row.currency, "tick": row.tick}
            for name, value in stated.items():
                if plan is not None and value != getattr(plan.terms, name):
                    words = f"{name} is {shorten(str(value))}: the plan says {getattr(plan.terms, name)}"
                    self._context.add_finding(header, row.zone, "terms", words, source)

    def _has_chosen_zone(self, shard: str) -> bool:
        """Whether a shard has one of the zones that are checked."""
        digests = self._tables_of_shard.get(shard, set())
        tables = (self._context.tables.find_table(digest) for digest in digests)
        chosen = any(isinstance(table, str) or any(map(self._context.is_chosen, table.zones_ever)) for table in tables)
        self._tables_of_shard[shard] = digests if chosen else set()
        return chosen

    def finish(self) -> None:
        """Add to the summaries what was counted."""
        for tally in self._tallies.values():
            tally.flush()
        self.history.sort_stretches()
        for shard, check in self.shards.items():
            if check.runs:
                last = check.runs[-1].head.tile
                self._context.report.last_tiles[shard] = (last.header.seq, last.hash)
