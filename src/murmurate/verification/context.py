"""What all parts of a check share: the documents, the zones that are checked, and the report."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from murmurate.errors import ChainError
from murmurate.public_log.canonical import compute_digest
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import TileHeader, TileKind
from murmurate.public_log.tile_chain import VerifySignature
from murmurate.public_log.zone_table import ZoneTable
from murmurate.verification.plans import PlanStore, ProvenPlan
from murmurate.verification.report import BrokenRule, LogFinding, VerificationReport
from murmurate.verification.sources import READ_ERRORS, ItemKind, LogItem, parse_archived_note, peek_place

_MAX_PARSED = 256  # zone tables


class TableStore:
    """The zone tables that were given, by digest. Each is parsed when a tile names it; the last ones are kept."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parsed: OrderedDict[str, ZoneTable | str] = OrderedDict()

    def add_document(self, text: str) -> None:
        self._texts[compute_digest(text)] = text

    def find_table(self, digest: str) -> ZoneTable | str:
        """Return the table with this digest, or why there is none."""
        if digest not in self._parsed:
            try:
                text = self._texts.get(digest)
                found = "is missing or was changed" if text is None else ZoneTable.from_json(text)
            except READ_ERRORS as error:
                found = str(error) if isinstance(error, ChainError) else "cannot be read"
            self._parsed[digest] = found
            if len(self._parsed) > _MAX_PARSED:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(digest)
        return self._parsed[digest]


class CheckContext:
    """The documents that were given, what is to be checked, and what was found."""

    def __init__(
        self,
        expected_key: str | None = None,
        verify: VerifySignature = verify_signature,
        zones: Collection[str] | None = None,
        known_tiles: Mapping[str, tuple[int, str]] | None = None,
    ) -> None:
        self.report = VerificationReport()
        self.plans, self.tables, self.verify = PlanStore(), TableStore(), verify
        self.zones = None if zones is None else frozenset(zones)
        self.expected_key, self.known_tiles = expected_key, known_tiles or {}
        self.archived_seq: dict[str, int] = {}  # by shard: a copy says that releases up to there are in an archive
        self._next_keys: dict[str, set[str]] = {}  # by key: those that it has signed as its successors
        self._reported: set[tuple[str, str]] = set()  # shard and digest of documents that are reported once

    def is_chosen(self, zone: str) -> bool:
        return self.zones is None or zone in self.zones

    def add_document(self, item: LogItem, source: str) -> None:
        """Keep a plan, a zone table or a note of an archive. Anything else is a finding."""
        text = item.data.decode(errors="replace")
        if item.kind is ItemKind.ARCHIVED:
            try:
                shard, seq = parse_archived_note(item.data)
            except READ_ERRORS as error:
                self.add_unreadable(item, error, source)
            else:
                self.archived_seq[shard] = max(seq, self.archived_seq.get(shard, -1))
        elif item.kind is ItemKind.ZONE_TABLE:
            self.tables.add_document(text)
        elif item.kind is not ItemKind.PLAN or not self.plans.add_document(text):
            self.add_unreadable(item, None, source)

    def prove_plan(self, header: TileHeader, digest: str, zone: str, source: str) -> ProvenPlan | None:
        """Return a plan that was proven again. One that is missing or no proof is noted in the report."""
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

    def add_rotation(self, header: TileHeader) -> None:
        """Note which key replaces the one that signed this header. Its signature must have been checked."""
        if header.kind is TileKind.KEY and header.next_key is not None:
            self._next_keys.setdefault(header.key, set()).add(header.next_key)

    def trusted_keys(self) -> set[str]:
        """Return the expected key, and each that a trusted one has signed as its successor."""
        trusted: set[str] = set()
        waiting = [] if self.expected_key is None else [self.expected_key]
        while waiting:
            key = waiting.pop()
            trusted.add(key)
            waiting += self._next_keys.get(key, set()) - trusted
        return trusted

    def add_once(self, header: TileHeader, digest: str, zone: str, rule: str, message: str, source: str) -> None:
        """Report a document once for each shard."""
        if (header.shard, digest) not in self._reported:
            self._reported.add((header.shard, digest))
            self.add_broken(header, [BrokenRule(zone, rule, message)], source)

    def add_broken(self, header: TileHeader, broken: Iterable[BrokenRule], source: str) -> None:
        """Report rules that a tile breaks, unless they are about a zone that is not checked."""
        for zone, rule, message in broken:
            if not zone or self.is_chosen(zone):
                self.report.add_finding(LogFinding(header.shard, header.seq, zone, rule, message, source))

    def add_unreadable(self, item: LogItem, error: Exception | None, source: str) -> None:
        """Report an item that cannot be read. Shard and number are as it states them, if it does."""
        shard, seq, _ = peek_place(item.data)
        readable = isinstance(error, ChainError)
        words = str(error) if readable else "is no tile, document or line of a zone of this version"
        self.report.add_finding(LogFinding(shard, seq, "", "unreadable", f"{item.name}: {words}", source))
