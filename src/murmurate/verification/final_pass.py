"""Check what needs the whole log: changes of plan, zones in two shards, and contradictions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from murmurate.public_log.tile import TileKind, parse_tile
from murmurate.public_log.zone_line import make_zone_line
from murmurate.verification.chain_run import Conflict
from murmurate.verification.check_context import READ_ERRORS, CheckContext
from murmurate.verification.contradiction import prove_contradiction
from murmurate.verification.line_pass import LinePass
from murmurate.verification.plan_check import ProvenPlan
from murmurate.verification.report import LogFinding, MisbehaviourProof, UncheckedBeginning
from murmurate.verification.shard_check import ShardCheck
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
        released = history.history_before(shard, number, zone)
        words = self.context.changes.find_broken_promise(released, proven)
        if words is not None and not released.complete and self._begins_after_archive(shard, released.begin):
            self.context.report.unchecked_changes.append((zone, stretch.first))
        elif words is not None:
            self.context.report.add_finding(LogFinding(shard, stretch.seq, zone, "change", words, stretch.source))

    def _begins_after_archive(self, shard: str, interval: int) -> bool:
        """Whether what was released before an interval is in an archive that was not given."""
        header = self.tiles.shards[shard].unchecked_before
        return header is not None and interval <= header.interval + 1

    def check_shards(self) -> None:
        """Check that each zone is in one shard. Two rows for one interval are a proof."""
        for zone, by_shard in self.tiles.history.entries.items():
            if len(by_shard) == 1 or not self.context.is_chosen(zone):
                continue
            first, *others = sorted(by_shard.values(), key=lambda entry: (entry.since, entry.shard))
            for entry in others:
                words = f"is in {first.shard} as well: a zone stays in the shard that it was opened in"
                self.context.report.add_finding(
                    LogFinding(entry.shard, entry.seq, zone, "two shards", words, entry.source)
                )
                self._prove_two_rows(zone, entry.since, (first.shard, entry.shard))

    def _prove_two_rows(self, zone: str, interval: int, shards: tuple[str, str]) -> None:
        """Make a proof of two rows for one interval in two shards, if both have decided it."""
        hashes = [self._release_hash(shard, interval) for shard in shards]
        if not all(hashes):
            return
        found = self.find_items(hashes)
        first, second = (self._make_line(found.get(each, b""), zone) for each in hashes)
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

    def note_beginnings(self) -> None:
        """Report where the check of each shard begins whose first releases were not given."""
        for shard, check in self.tiles.shards.items():
            if (header := check.unchecked_before) is not None:
                first = header.interval + (header.kind is not TileKind.RELEASE)
                beginning = UncheckedBeginning(header.seq, first, header.interval_s)
                self.context.report.unchecked_beginnings[shard] = beginning

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
