"""Check what needs the whole log: changes of plan, moves of zones, and contradictions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from murmurate.public_log.tile import parse_tile
from murmurate.public_log.zone_line import make_zone_line
from murmurate.verification.chain_run import Conflict
from murmurate.verification.check_context import READ_ERRORS, CheckContext
from murmurate.verification.contradiction import prove_contradiction
from murmurate.verification.line_pass import LinePass
from murmurate.verification.move_check import MoveCheck, TwoRows
from murmurate.verification.plan_check import ProvenPlan
from murmurate.verification.report import LogFinding, MisbehaviourProof
from murmurate.verification.shard_check import ShardCheck
from murmurate.verification.shard_history import Presence
from murmurate.verification.tile_pass import TilePass
from murmurate.verification.zone_line_check import ZoneLineCheck

FindItems = Callable[[Collection[str]], Mapping[str, bytes]]  # tiles and lines of zones by their hashes


@dataclass(frozen=True, slots=True)
class FinalPass:
    """All tiles and lines have been read. `find_items` reads the sources once more."""

    context: CheckContext
    tiles: TilePass
    lines: LinePass
    find_items: FindItems

    def check_keys(self) -> None:
        """Check that each chain begins with the key that is expected, or with one that replaced it."""
        keys = self.context.keys
        if keys.expected_key is None:
            return
        trusted = keys.trusted_keys()
        openings = [("", check.opening) for check in self.tiles.shards.values()]
        openings += [(zone, check.opening) for zone, check in self.lines.chains.items()]
        for zone, opening in openings:
            if opening is not None and opening.header.key not in trusted:
                header, source = opening
                words = f"{header.key} opens it, not the key you expect, {keys.expected_key}, nor one that replaced it"
                self.context.add_finding(header, zone, "key", words, source)

    def check_changes(self) -> None:
        """Hold each change of plan against what was released before it."""
        history = self.tiles.history
        for shard, stretches in history.stretches.items():
            for number in range(len(stretches)):
                for zone in self.context.only_chosen(history.changed_zones(shard, number)):
                    self._check_change(shard, number, zone)

    def _check_change(self, shard: str, number: int, zone: str) -> None:
        history = self.tiles.history
        stretch, here = history.stretches[shard][number], history.row_at(shard, number, zone)
        proven = None if here is None else self.context.plans.proven_plan(here[1].plan)
        if not isinstance(proven, ProvenPlan):
            return
        words = self.context.changes.find_broken_promise(history.history_before(shard, number, zone), proven)
        if words is not None:
            self.context.report.add_finding(LogFinding(shard, stretch.seq, zone, "change", words, stretch.source))

    def check_moves(self) -> None:
        """Check that a zone is in one shard at a time, and goes on in the next one where it ended before."""
        moves = MoveCheck(self.tiles.history)
        for zone, presences in self.tiles.history.presences.items():
            if not self.context.is_chosen(zone):
                continue
            for presence in presences.values():
                self._check_change_by_move(zone, presence)
            for presence, rule, words, two_rows in moves.broken_moves(zone):
                finding = LogFinding(presence.shard, presence.seq, zone, rule, words, presence.source)
                self.context.report.add_finding(finding)
                if two_rows is not None:
                    self._prove_two_rows(two_rows)

    def _check_change_by_move(self, zone: str, presence: Presence) -> None:
        """A zone that enters another shard under another plan changes its plan."""
        history, moved_from = self.tiles.history, presence.row.moved_from
        if moved_from is None:
            return
        old_number = history.stretch_before_move(zone, moved_from)
        old = None if old_number is None else history.row_at(moved_from.shard, old_number, zone)
        if old is not None and old[1].plan != presence.row.plan:
            stretches = enumerate(history.stretches[presence.shard])
            self._check_change(presence.shard, next(n for n, each in stretches if each.seq == presence.seq), zone)

    def _prove_two_rows(self, both: TwoRows) -> None:
        """Make a proof of two rows for one interval in two shards."""
        hashes = [self._release_hash(shard, both.interval) for shard in both.shards]
        found = self.find_items([each for each in hashes if each])
        first, second = (self._make_line(found.get(each, b""), both.zone) for each in hashes)
        proof = prove_contradiction(first, second, self.context.verify)
        if proof is not None:
            self._add_proof(proof)

    def _release_hash(self, shard: str, interval: int) -> str:
        chains = (run.chain for run in self.tiles.shards[shard].runs)
        places = ((chain, chain.seq_of_release(interval)) for chain in chains)
        return next((str(chain.hash_of(seq)) for chain, seq in places if seq is not None), "")

    def _make_line(self, data: bytes, zone: str) -> bytes:
        try:
            tile = parse_tile(data)
            table = self.context.tables.find_table(tile.header.table)
            return b"" if isinstance(table, str) else make_zone_line(tile, table, zone).to_json().encode()
        except (*READ_ERRORS, KeyError):
            return b""

    def prove_conflicts(self) -> None:
        """Make a proof of each contradiction: read the sources again for the item that stood there first."""
        checks: list[tuple[str, str, ShardCheck | ZoneLineCheck]] = [
            *((shard, "", check) for shard, check in self.tiles.shards.items()),
            *(("", zone, chain) for zone, chain in self.lines.chains.items()),
        ]
        wanted = {conflict.other_hash for _, _, check in checks for conflict in check.conflicts}
        found = self.find_items(wanted) if wanted else {}
        for shard, zone, check in checks:
            for conflict in check.conflicts:
                self._prove_conflict(conflict, found.get(conflict.other_hash, b""))
            unread = check.conflict_count - len(check.conflicts)
            if unread:
                finding = LogFinding(shard, None, zone, "two values", f"{unread} more like this", "")
                self.context.report.add_finding(finding)

    def _prove_conflict(self, conflict: Conflict, other: bytes) -> None:
        proof = prove_contradiction(other, conflict.item, self.context.verify)
        if proof is None:
            words = f"another signed tile has its place; this one is signed by {conflict.header.key}, "
            rule, words = "forgery", f"{words}which proves nothing about the other"
        else:
            rule, words = "two values", f"{proof.key} has signed two values for {proof.contradicts}: see the proof"
            self._add_proof(proof)
        self.context.add_finding(conflict.header, conflict.zone, rule, words, conflict.source)

    def _add_proof(self, proof: MisbehaviourProof) -> None:
        known = self.context.report.proofs
        if not any({*proof.headers, *proof.lines} == {*other.headers, *other.lines} for other in known):
            known.append(proof)
