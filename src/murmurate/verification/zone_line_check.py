"""Follow the lines of one zone (`log.jsonl`), whatever was done to them, keeping 32 bytes of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

from murmurate.errors import ChainError
from murmurate.public_log.tile import CLOSED, TileKind
from murmurate.public_log.tile_chain import COST_COLUMNS, VerifySignature, check_rows, check_signature
from murmurate.public_log.zone_line import ZoneHead, ZoneLine, check_zone_follows, is_closed_by
from murmurate.public_log.zone_table import NO_LEAF
from murmurate.verification.chain_run import (
    MAX_PROVEN_CONFLICTS,
    MAX_RUNS,
    BrokenRule,
    ChainRun,
    Conflict,
    Opening,
    Placement,
    describe_range,
    rule_and_message,
)

UNSIGNED_LINE = "invalid signature: another line has this number, and this one is no evidence"
_ENTERS = frozenset({TileKind.OPEN, TileKind.ZONES})


@dataclass(slots=True)
class LineRun:
    """Successive lines of one zone in one shard."""

    head: ZoneHead
    chain: ChainRun
    row_known: bool  # whether leaf and totals of the head are those of the zone

    def extend(self, head: ZoneHead, line_hash: str) -> None:
        self.head = head
        self.chain.extend(head.line.header, line_hash)

    def head_before(self, line: ZoneLine) -> ZoneHead:
        """The head that a line must follow. Where the row before is not known, the line says what it was."""
        if not self.row_known and is_closed_by(line.header, line.zone):
            stated = line.header.extensions[CLOSED][line.zone]
            whole = isinstance(stated, dict) and len(stated) == len(COST_COLUMNS)
            return replace(self.head, totals=tuple(stated.values()) if whole else self.head.totals)
        if self.row_known or line.row is None:
            return self.head
        totals = tuple(int(line.row[f"total_{cost}"][0]) - int(line.row[cost][0]) for cost in COST_COLUMNS)
        return replace(self.head, leaf=line.row["prev"][0].tobytes().hex(), totals=totals)


@dataclass(slots=True)
class ZoneLineCheck:
    """The runs of one zone, and what did not fit."""

    verify: VerifySignature
    runs: list[LineRun] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)
    conflict_count: int = 0
    opening: Opening | None = None  # its first line, if the zone enters a shard with it

    def place_line(
        self, line: ZoneLine, text: bytes, source: str, *, in_tiles: bool
    ) -> tuple[Placement, list[BrokenRule]]:
        """Where a line stands, and which rules it breaks. `in_tiles`: it, or the one before, is known from tiles."""
        line_hash = sha256(text).hexdigest()
        known = self._hash_at(line)
        if known == line_hash:
            return Placement.DUPLICATE, []
        try:
            check_signature(line.tile, self.verify)
        except ChainError as error:
            forged = BrokenRule(line.zone, "forgery", UNSIGNED_LINE)
            return Placement.REJECTED, [rule_and_message(error, line.zone) if known is None else forged]
        if known is not None:
            self.add_conflict(Conflict(text, line.header, line.zone, known, source))
        followed = self._preceding_run(line)
        if followed and not known:
            try:
                head = check_zone_follows(followed.head_before(line), line)
            except ChainError:
                pass  # told apart below
            else:
                followed.row_known |= head.line.row is not None
                followed.extend(head, line_hash)
                self._find_second_row(line, text, source)
                return Placement.NEXT, []
        broken = [] if in_tiles or (known and not followed) else list(self._broken_rules(followed, line))
        if known is not None:
            return Placement.REJECTED, broken
        self._start_run(line, text, line_hash, source, in_tiles=in_tiles)
        return (Placement.OUT_OF_ORDER if broken else Placement.NEXT), broken

    def _hash_at(self, line: ZoneLine) -> str | None:
        chains = (run.chain for run in self.runs if run.chain.header.shard == line.header.shard)
        return next((known for chain in chains if (known := chain.hash_of(line.header.seq)) is not None), None)

    def _preceding_run(self, line: ZoneLine) -> LineRun | None:
        """The run whose last line this one names as the one before, with the next number."""
        place = (line.header.shard, line.header.prev, line.header.seq)
        heads = ((run, run.head.line) for run in self.runs)
        return next(
            (run for run, last in heads if (last.header.shard, last.tile.hash, last.header.seq + 1) == place), None
        )

    def _begins_with(self, line: ZoneLine) -> bool:
        return not self.runs and line.header.kind in _ENTERS

    def _broken_rules(self, preceding: LineRun | None, line: ZoneLine) -> Iterator[BrokenRule]:
        header = line.header
        here = [run for run in self.runs if run.chain.header.shard == header.shard]
        before = preceding or next((run for run in reversed(here) if run.chain.header.seq + 1 == header.seq), None)
        if before or self._begins_with(line):
            try:
                check_zone_follows(before.head_before(line) if before else None, line)
            except ChainError as error:
                yield rule_and_message(error, line.zone)
            return
        if self.runs and not here:
            words = f"is in {self.runs[0].chain.header.shard} as well: a zone stays in the shard that it was opened in"
            yield BrokenRule(line.zone, "two shards", words)
        elif not here:
            words = f"begins with tile {header.seq} of {header.shard}; where the zone enters the shard is missing"
            yield BrokenRule(line.zone, "gap", words)
        elif header.seq > (last := max(run.chain.header.seq for run in here)):
            words = f"no valid line of tile {describe_range(last + 1, header.seq - 1)} before it"
            yield BrokenRule(line.zone, "gap", words)
        else:
            yield BrokenRule(line.zone, "order", f"comes after tile {last}, out of its order")
        if line.row is not None:
            try:
                check_rows(line.row, (line.zone,))
            except ChainError as error:
                yield rule_and_message(error, line.zone)

    def _start_run(self, line: ZoneLine, text: bytes, line_hash: str, source: str, *, in_tiles: bool) -> None:
        if len(self.runs) < MAX_RUNS:
            begins = not in_tiles and self._begins_with(line)
            if begins:
                self.opening = Opening(line.header, source)
            run = LineRun(_head_alone(line), ChainRun(line.header), begins or line.row is not None)
            run.extend(run.head, line_hash)
            self.runs.append(run)
        self._find_second_row(line, text, source)

    def _find_second_row(self, line: ZoneLine, text: bytes, source: str) -> None:
        """A line that decides an interval which another run has decided is a conflict, whatever its shard."""
        if line.row is None:
            return
        for run in self.runs:
            seq = None if run.head.line is line else run.chain.seq_of_release(line.header.interval)
            if seq is not None:
                self.add_conflict(Conflict(text, line.header, line.zone, str(run.chain.hash_of(seq)), source))

    def add_conflict(self, conflict: Conflict) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < MAX_PROVEN_CONFLICTS:
            self.conflicts.append(conflict)


def _head_alone(line: ZoneLine) -> ZoneHead:
    """The head after a line whose predecessor is not known."""
    if line.row is None:
        return ZoneHead(line, NO_LEAF, (0,) * len(COST_COLUMNS))
    totals = tuple(int(line.row[f"total_{cost}"][0]) for cost in COST_COLUMNS)
    return ZoneHead(line, line.leaf_hash, totals)
