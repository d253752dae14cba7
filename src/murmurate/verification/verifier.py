"""Check a public log from public data alone: signatures, chains, plans, costs. Nothing of the operator is believed.

Sources are read item by item: documents first, then tiles, then lines of single zones. A line is a tile with one row
and its proof, and is checked as a tile is; where its tile was given as well, the two are compared. Of each tile 64
bytes are kept, to notice a second one in its place, and a bit of each row. Where two signed items contradict each
other, the sources are read once more for the earlier of the two: both together are a proof that anyone can check.

What no reader can see from a log alone: tiles missing at its end, and whether the demand was right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from murmurate.errors import ChainError
from murmurate.public_log.canonical import shorten
from murmurate.public_log.predicted_rows import carry_over
from murmurate.public_log.signing import check_public_key, verify_signature
from murmurate.public_log.tile import Tile, TileKind, is_closed_by, parse_tile
from murmurate.public_log.tile_chain import VerifySignature, check_signature
from murmurate.public_log.zone_line import make_zone_line, parse_zone_line
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.context import CheckContext
from murmurate.verification.plans import ProvenPlan, RowTerms, ZoneTally
from murmurate.verification.releases import Chain, LogHistory
from murmurate.verification.report import (
    BrokenRule,
    LogFinding,
    MisbehaviourProof,
    UncheckedBeginning,
    VerificationReport,
)
from murmurate.verification.shard import ChainCheck, Placement, prove_contradiction
from murmurate.verification.sources import (
    READ_ERRORS,
    ItemKind,
    LogItem,
    LogSource,
    find_items,
    find_kind,
    first_release_s,
    peek_place,
    read_items,
)

RecordProgress = Callable[[int], None]  # is told how many records are done
_PLACED = frozenset({Placement.NEXT, Placement.OUT_OF_ORDER})


def check_log(
    sources: Mapping[str, LogSource],
    *,
    plans: Iterable[str] = (),
    expected_key: str | None = None,
    zones: Collection[str] | None = None,
    progress: RecordProgress = lambda _: None,
    verify: VerifySignature = verify_signature,
    known_tiles: Mapping[str, tuple[int, str]] | None = None,
) -> VerificationReport:
    """Check a public log, or several copies of one, and return a report of everything that is wrong.

    Signatures, chains, plans and costs are checked from public data alone. A source has tiles of shards with their zone
    tables and plans, or lines of single zones with their plans. What a log cannot show: tiles missing at its end, and
    whether the demand was right.

    Args:
        sources: For each copy a name and a function that returns its items from the first one: tiles, zone tables,
            plans and lines of zones, as bytes or text. Put the fullest copy first.
        plans: Further plan documents, as texts.
        expected_key: Public key that must have opened each chain, or signed who comes after it, 64 hexadecimal digits;
            None: the first key seen is trusted and reported.
        zones: Names of the zones to check; None: all.
        progress: Is called with the number of records that are done. A record is what was decided for one zone and
            interval.
        verify: Returns whether a public key signed a message: (key, message, signature). The default is Ed25519.
        known_tiles: Number and hash of a tile of each shard that was checked before, from `last_tiles` of an earlier
            report: the shard may begin with it. None: each must begin with its first tile.

    Returns:
        The report: `is_valid` (nothing is wrong), `is_complete` (no plan was missing, nor releases that a copy says are
        in an archive), `findings`, `proofs` of misbehaviour, and a summary of each zone with its total cost [millionths
        of epsilon or rho].

    Raises:
        ChainError: `expected_key` is not a public key.

    Example:
        >>> import murmurate as mm
        >>> report = mm.check_log({"copy": lambda: [b"not a tile"]})
        >>> report.is_valid, [(finding.source, finding.rule) for finding in report.findings]
        (False, [('copy', 'unreadable')])
    """
    if expected_key is not None:
        check_public_key(expected_key)
    context = CheckContext(expected_key, verify, zones, known_tiles)
    check = _LogCheck(context, sources)
    for text in plans:
        context.plans.add_document(text)
    kinds = {name: check.read_documents(name) for name in sources}
    begins_s = {name: first_release_s(source) for name, source in sources.items()} if len(sources) > 1 else {}
    for kind, check_item in ((ItemKind.TILE, check.check_tile), (ItemKind.ZONE_LINE, check.check_line)):
        for name in sorted((name for name in sources if kind in kinds[name]), key=lambda name: begins_s.get(name, 0)):
            for item in read_items(sources[name], kind):
                check_item(item, name)
                progress(context.report.records_by_source.total())
    check.finish()
    return context.report


class _LogCheck:
    """Places each tile and line in its chain, checks its rows against their plans, then what needs the whole log."""

    def __init__(self, context: CheckContext, sources: Mapping[str, LogSource]) -> None:
        self._context, self._sources = context, sources
        self._history = LogHistory(context.tables.find_table, context.plans.proven_plan)
        self._chains: dict[Chain, ChainCheck] = {}
        self._tallies: dict[Chain, ZoneTally] = {}
        self._terms: dict[Chain, RowTerms] = {}  # of the last zone table
        self._tables_of_shard: dict[str, set[str]] = {}  # only where some zones are chosen

    def read_documents(self, name: str) -> set[ItemKind]:
        """Keep the documents of a source. Returns the kinds of its items."""
        kinds: set[ItemKind] = set()
        for item in read_items(self._sources[name]):
            kinds.add(item.kind)
            if item.kind is ItemKind.TILE and self._context.zones is not None:
                shard, _, table = peek_place(item.data)
                self._tables_of_shard.setdefault(shard, set()).add(table)
            elif item.kind not in {ItemKind.TILE, ItemKind.ZONE_LINE}:
                self._context.add_document(item, name)
        return kinds

    def _find_chain(self, shard: str, zone: str = "") -> ChainCheck:
        chain = (shard, zone)
        if chain not in self._chains:
            known, archived_seq = self._context.known_tiles.get(shard), self._context.archived_seq.get(shard, -1)
            of_tiles = ChainCheck(self._context.verify, "", known, archived_seq)
            self._chains[chain] = ChainCheck(self._context.verify, zone) if zone else of_tiles
        return self._chains[chain]

    def check_tile(self, item: LogItem, source: str) -> None:
        """Find the place of a tile in its shard, and check its rows against their plans."""
        context = self._context
        chosen = context.zones is None or self._has_chosen_zone(peek_place(item.data)[0])
        try:
            tile = parse_tile(item.data)
        except READ_ERRORS as error:
            if chosen:
                context.add_unreadable(item, error, source)
            return
        header = tile.header
        if not chosen:  # a shard that is not checked may show which key comes after which
            if header.next_key is not None and self._is_signed(tile):
                context.add_rotation(header)
            return
        context.report.tiles_by_source[source] += 1
        context.report.records_by_source[source] += header.count
        check, table = self._find_chain(header.shard), context.tables.find_table(header.table)
        if isinstance(table, str):
            words = f"zone table {header.table} {table}; rows cannot be checked"
            context.add_once(header, header.table, "", "table", words, source)
            context.add_broken(header, check.place_header(tile, source), source)
            return
        place, broken = check.place_tile(tile, table, tile.header_line, source)
        context.add_broken(header, broken, source)
        if place in _PLACED:
            self._book_tile((header.shard, ""), tile, table, source)

    def check_line(self, item: LogItem, source: str) -> None:
        """Find the place of a line in the chain of its zone, and check its row against its plan."""
        context = self._context
        try:
            line = parse_zone_line(item.data.decode())
        except READ_ERRORS as error:
            context.add_unreadable(item, error, source)
            return
        if line.proof is None or not context.is_chosen(line.proof.zone):
            return
        header, zone, plan = line.header, line.proof.zone, line.proof.plan
        context.report.tiles_by_source[source] += 1
        context.report.records_by_source[source] += len(line.rows)
        shard, check = self._find_chain(header.shard), self._find_chain(header.shard, zone)
        tile_hash, table = shard.hash_at(header.seq), check.line_table(line)
        in_tiles = tile_hash is not None or shard.hash_at(header.seq - 1) == header.prev
        place, broken = check.place_tile(line, table, item.data, source, in_tiles=in_tiles)
        context.add_broken(header, broken, source)
        if place not in _PLACED:
            return
        shard.note_header(line, item.data, source)
        if tile_hash == line.hash:  # the tile proves the row; the plan of a line without one is in the zone table
            whole = context.tables.find_table(header.table)
            row = None if isinstance(whole, str) else whole.find_row(zone)
            if not isinstance(whole, str) and row is None and is_closed_by(header, zone):
                row = whole.closed_by_zone[zone].row
            if row is None or row.plan != plan:
                words = f"is {plan} in this line and {row.plan if row else 'not there'} in the zone table"
                context.add_broken(header, [BrokenRule(zone, "plan", words)], source)
        if tile_hash in {None, line.hash}:
            self._book_tile((header.shard, zone), line, table, source, in_tiles=tile_hash is not None)

    def _book_tile(self, chain: Chain, tile: Tile, table: ZoneTable, source: str, *, in_tiles: bool = False) -> None:
        """Check the rows of a tile that has its place, and count them. `in_tiles`: of a line that tiles have shown."""
        context, header = self._context, tile.header
        check, tally = self._chains[chain], self._tallies.setdefault(chain, ZoneTally())
        if self._history.add_tile(chain, tile, table, source, in_tiles=in_tiles):
            self._enter_table(chain, tile, table, source, in_tiles=in_tiles)
        if header.kind is TileKind.KEY and header.next_key is not None:
            context.add_rotation(header)
            for _, summary in tally.summaries:
                summary.keys.append(header.next_key)
        if header.kind is TileKind.RELEASE and len(tile.rows) == len(table) and not in_tiles:
            tally.add_rows(header.interval, tile.rows)
            head = check.head_before if check.head_before_known else None
            carried = None if head is None else carry_over(head.last_rows, len(tile.rows), header.lead)
            context.add_broken(header, self._terms[chain].broken_terms(header, tile.rows, carried), source)

    def _enter_table(self, chain: Chain, tile: Tile, table: ZoneTable, source: str, *, in_tiles: bool) -> None:
        """Prove the plans of a zone table, compare the table with them, and begin to count the rows under it."""
        context, header, is_chosen = self._context, tile.header, self._context.is_chosen
        chosen = [at for at, row in enumerate(table.rows) if is_chosen(row.zone)]
        rows = [table.rows[at] for at in chosen]
        zone_of_plan = {row.plan: row.zone for row in reversed(rows)}
        proven = {plan: context.prove_plan(header, plan, zone, source) for plan, zone in reversed(zone_of_plan.items())}
        self._terms[chain] = RowTerms(table.zones, [proven.get(row.plan) for row in table.rows])
        if in_tiles:
            self._tallies[chain].begin([], 0)
            return
        summaries = [(at, context.report.zone_summary(table.rows[at].zone)) for at in chosen]
        self._tallies[chain].begin(summaries, len(table))
        for at, summary in summaries:
            summary.add_terms(key=header.key, plan=table.rows[at].plan, interval_s=header.interval_s)
        closed = {zone.zone: zone.last for zone in table.closed}
        if tile.proof is not None and not table.rows:
            closed = {tile.proof.zone: header.interval}
        for zone in filter(is_chosen, closed):
            context.report.zone_summary(zone).closed_after = closed[zone]
        for row in rows:
            plan = proven[row.plan]
            stated = {"interval_s": header.interval_s, "currency": row.currency, "tick": row.tick}
            for name in stated if tile.proof is None else ("interval_s",):  # a line states neither of the others
                if plan is not None and stated[name] != getattr(plan.terms, name):
                    words = f"{name} is {shorten(str(stated[name]))}: the plan says {getattr(plan.terms, name)}"
                    context.add_broken(header, [BrokenRule(row.zone, "terms", words)], source)

    def _is_signed(self, tile: Tile) -> bool:
        try:
            check_signature(tile, self._context.verify)
        except ChainError:
            return False
        return True

    def _has_chosen_zone(self, shard: str) -> bool:
        """Whether a shard has one of the zones that are checked."""
        digests = self._tables_of_shard.get(shard, set())
        tables = (self._context.tables.find_table(digest) for digest in digests)
        chosen = any(isinstance(table, str) or any(map(self._context.is_chosen, table.zones_ever)) for table in tables)
        self._tables_of_shard[shard] = digests if chosen else set()
        return chosen

    def finish(self) -> None:
        """Check what needs the whole log, when all tiles and lines have been read."""
        for tally in self._tallies.values():
            tally.flush()
        self._history.sort_stretches()
        report = self._context.report
        for (shard, zone), check in self._chains.items():
            if check.runs and not zone:
                last = check.runs[-1].head.tile
                report.last_tiles[shard] = (last.header.seq, last.hash)
            if (header := check.unchecked_before) is not None:
                first = header.interval + (header.kind is not TileKind.RELEASE)
                report.unchecked_beginnings[shard] = UncheckedBeginning(header.seq, first, header.interval_s)
        expected, trusted = self._context.expected_key, self._context.trusted_keys()
        for (_, zone), check in self._chains.items():  # each begins with the expected key, or one that replaced it
            if expected is not None and check.opening is not None and check.opening[0].key not in trusted:
                header, source = check.opening
                words = f"{header.key} opens it, not the key you expect, {expected}, nor one that replaced it"
                self._context.add_broken(header, [BrokenRule(zone, "key", words)], source)
        self._check_changes()
        self._check_shards()
        self._prove_conflicts()

    def _check_changes(self) -> None:
        """Check each change of plan against what was released before it."""
        history, report = self._history, self._context.report
        places = ((chain, number) for chain, mine in history.stretches.items() for number in range(len(mine)))
        for chain, number in places:
            stretch, unchecked = history.stretches[chain][number], self._chains[chain].unchecked_before
            for row in () if stretch.in_tiles else history.changed_zones(chain, number):
                proven = self._context.plans.proven_plan(row.plan) if self._context.is_chosen(row.zone) else None
                if not isinstance(proven, ProvenPlan):
                    continue
                released = history.history_before(chain, number, row.zone)
                error = history.find_broken_promise(released, proven)
                after_archive = unchecked is not None and released.begin <= unchecked.interval + 1
                if error is not None and not released.complete and after_archive:
                    report.unchecked_changes.append((row.zone, stretch.first))
                elif error is not None:
                    words = f"moments or windows across this change may cost more than promised: {error}"
                    report.add_finding(LogFinding(chain[0], stretch.seq, row.zone, "change", words, stretch.source))

    def _check_shards(self) -> None:
        """Check that each zone is in one shard. Two rows for one interval are a proof."""
        for zone, by_shard in self._history.entries.items():
            first, *others = sorted(by_shard.values(), key=lambda entry: (entry.since, entry.chain))
            for entry in others if self._context.is_chosen(zone) else ():
                words = f"is in {first.chain[0]} as well: a zone stays in the shard that it was opened in"
                finding = LogFinding(entry.chain[0], entry.seq, zone, "two shards", words, entry.source)
                self._context.report.add_finding(finding)
                hashes = [self._chains[each.chain].release_hash(entry.since) for each in (first, entry)]
                found = find_items(self._sources, hashes) if all(hashes) else {}
                lines = [self._make_line(found.get(each, b""), zone) for each in hashes]
                self._add_proof(prove_contradiction(lines[0], lines[1], self._context.verify))

    def _make_line(self, data: bytes, zone: str) -> bytes:
        """Return the line of a zone in a tile, or a line as it is; nothing where there is none."""
        if find_kind(data) is ItemKind.ZONE_LINE:
            return data
        try:
            tile = parse_tile(data)
            table = self._context.tables.find_table(tile.header.table)
            return b"" if isinstance(table, str) else make_zone_line(tile, table, zone).to_json().encode()
        except (*READ_ERRORS, KeyError):
            return b""

    def _prove_conflicts(self) -> None:
        """Make a proof of each contradiction: read the sources again for the item that stood there first."""
        wanted = {conflict.other_hash for check in self._chains.values() for conflict in check.conflicts}
        found = find_items(self._sources, wanted)
        for (shard, zone), check in self._chains.items():
            for conflict in check.conflicts:
                other, key = found.get(conflict.other_hash, b""), conflict.header.key
                proof = prove_contradiction(other, conflict.item, self._context.verify)
                if proof is None:
                    rule, words = "forgery", "another signed tile has its place; this one is signed by "
                    words += f"{key}, which proves nothing about the other"
                else:
                    rule = "two values"
                    words = f"{proof.key} has signed two values for {proof.contradicts}: see the proof"
                self._add_proof(proof)
                self._context.add_broken(conflict.header, [BrokenRule(conflict.zone, rule, words)], conflict.source)
            unread = check.conflict_count - len(check.conflicts)
            if unread:
                finding = LogFinding(shard, None, zone, "two values", f"{unread} more like this", "")
                self._context.report.add_finding(finding)

    def _add_proof(self, proof: MisbehaviourProof | None) -> None:
        known = self._context.report.proofs
        if proof and not any({*proof.headers, *proof.lines} == {*other.headers, *other.lines} for other in known):
            known.append(proof)
