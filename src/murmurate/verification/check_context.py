"""What all parts of a check share: the documents, the zones that are checked, and the report."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping

from murmurate.errors import ChainError
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import TileHeader
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.verification.chain_run import BrokenRule
from murmurate.verification.key_succession import KeySuccession
from murmurate.verification.log_item import ItemKind, LogItem, parse_archived_note
from murmurate.verification.plan_check import ChangeCheck, PlanStore, ProvenPlan
from murmurate.verification.report import LogFinding, VerificationReport
from murmurate.verification.table_store import TableStore

READ_ERRORS = (ChainError, RecursionError, ValueError, OverflowError)


class CheckContext:
    """The documents at hand, what is to be checked, and what was found."""

    def __init__(
        self,
        expected_key: str | None = None,
        verify: VerifySignature = verify_signature,
        zones: Collection[str] | None = None,
        known_tiles: Mapping[str, tuple[int, str]] | None = None,
    ) -> None:
        self.report = VerificationReport()
        self.plans, self.tables, self.changes = PlanStore(), TableStore(), ChangeCheck()
        self.keys, self.verify = KeySuccession(expected_key), verify
        self.zones = None if zones is None else frozenset(zones)
        self.known_tiles = known_tiles or {}
        self.archived_seq: dict[
            str, int
        ] = {}  # by shard, as copies say; a gap up to there is not wrong, but not checked
        self._reported: set[tuple[str, str]] = set()  # shard and digest of documents that are reported once

    def is_chosen(self, zone: str) -> bool:
        return self.zones is None or zone in self.zones

    def only_chosen(self, zones: Iterable[str]) -> Iterator[str]:
        return filter(self.is_chosen, zones)

    def add_document(self, kind: ItemKind, item: LogItem, source: str) -> None:
        """Keep a plan, a zone table or a note of an archive. Anything else is a finding."""
        text = item.data.decode(errors="replace")
        if kind is ItemKind.ARCHIVED:
            try:
                shard, seq = parse_archived_note(item.data)
            except READ_ERRORS as error:
                self.add_unreadable(item, error, source)
            else:
                self.archived_seq[shard] = max(seq, self.archived_seq.get(shard, -1))
        elif kind is ItemKind.ZONE_TABLE:
            self.tables.add_document(text)
        elif kind is not ItemKind.PLAN or not self.plans.add_document(text):
            self.add_unreadable(item, None, source)

    def prove_plan(self, header: TileHeader, digest: str, zone: str, source: str) -> ProvenPlan | None:
        """Return a plan that was proven anew. One that is missing or no proof is noted in the report."""
        proven = self.plans.proven_plan(digest)
        if isinstance(proven, ProvenPlan):
            if digest not in self.report.plans:
                self.report.plans[digest] = proven.summarize()
            return proven
        if proven is None:
            self.report.missing_plans.setdefault(digest, zone)
        else:
            self.add_once(header, digest, zone, "plan", f"{digest} is no proof of its promise: {proven}", source)
        return None

    def add_once(self, header: TileHeader, digest: str, zone: str, rule: str, message: str, source: str) -> None:
        """Report a document once for each shard."""
        if (header.shard, digest) not in self._reported:
            self._reported.add((header.shard, digest))
            self.add_finding(header, zone, rule, message, source)

    def add_broken(self, header: TileHeader, broken: Iterable[BrokenRule], source: str) -> None:
        for zone, rule, message in broken:
            self.add_finding(header, zone, rule, message, source)

    def add_finding(self, header: TileHeader, zone: str, rule: str, message: str, source: str) -> None:
        if not zone or self.is_chosen(zone):
            self.report.add_finding(LogFinding(header.shard, header.seq, zone, rule, message, source))

    def add_unreadable(self, item: LogItem, error: Exception | None, source: str) -> None:
        """Report an item that cannot be read. Shard and number are as it states them, if it does."""
        place = peek_place(item.data)
        words = (
            str(error) if isinstance(error, ChainError) else "is no tile, document or line of a zone of this version"
        )
        finding = LogFinding(place[0], place[1], "", "unreadable", f"{item.name}: {words}", source)
        self.report.add_finding(finding)


def peek_place(data: bytes) -> tuple[str, int | None, str]:
    """Return what a tile or a line states about its place, even if it is damaged: shard, number and zone table."""
    try:
        members = json.loads(data.partition(b"\n")[0])
        members = members.get("tile", members)
        shard, seq, table = members.get("shard", ""), members.get("seq"), members.get("table", "")
    except (AttributeError, RecursionError, ValueError):
        return "", None, ""
    well_typed = isinstance(shard, str) and isinstance(table, str) and (seq is None or isinstance(seq, int))
    return (shard, seq, table) if well_typed else ("", None, "")
