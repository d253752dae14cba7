"""Check a public log from public data alone: signatures, chains, plans, costs. Nothing of the operator is believed.

Lines are read one after the other; zones may be mixed. Of each record 32 bytes are kept, to notice a second one in its
place. Where two signed lines contradict each other, the sources are read once more for the earlier of the two: both
together are a proof that anybody can check (`verification_report.contradiction`).

What no reader can see from a log alone: records missing at its end, and whether the demand was right.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from murmurate.errors import ChainError
from murmurate.public_log.chain import VerifySignature
from murmurate.public_log.record import RELEASE_KINDS, Entry, parse_entry
from murmurate.public_log.signing import check_public_key, verify_signature
from murmurate.verification.chain_check import ChainCheck, Placement
from murmurate.verification.plan_check import Account, PlanStore, ProvenPlan
from murmurate.verification.report import LogFinding, LogSource, VerificationReport, prove_contradiction

LineProgress = Callable[[int], None]  # is told how many lines are done

PROGRESS_EVERY = 500  # lines between two calls of progress


def check_log(
    sources: Mapping[str, LogSource],
    *,
    plans: Iterable[str] = (),
    expected_key: str | None = None,
    zones: Collection[str] | None = None,
    progress: LineProgress = lambda _: None,
    verify: VerifySignature = verify_signature,
) -> VerificationReport:
    """Check a public log, or several copies of one, and return a report of everything that is wrong.

    Signatures, chains, plans and costs are checked from public data alone. A line is a record or a plan document.
    What a log cannot show: records missing at its end, and whether the demand was right.

    Args:
        sources: For each copy a name and a function that returns its lines from the beginning, without line ends. Put
            the fullest copy first.
        plans: Further plan documents, as texts.
        expected_key: Public key that must have opened each chain, 64 hexadecimal digits; None: the first key seen is
            trusted and reported.
        zones: Names of the zones to check; None: all.
        progress: Is called with the number of lines that are done.
        verify: Returns whether a public key signed a message: (key, message, signature). The default is Ed25519.

    Returns:
        The report: `is_valid` (nothing is wrong), `is_complete` (no plan was missing), `findings`, `proofs` of
        misbehaviour, and a summary of each zone with its total cost [millionths of epsilon or rho].

    Raises:
        ChainError: `expected_key` is not a public key.

    Example:
        >>> import murmurate as mm
        >>> report = mm.check_log({"copy": lambda: ["not a record"]})
        >>> report.is_valid, [(finding.source, finding.rule) for finding in report.findings]
        (False, [('copy', 'line')])
    """
    if expected_key is not None:
        check_public_key(expected_key)
    check = _LogCheck(expected_key, verify)
    for text in plans:
        check.plan_store.add_document(text)
    for source in sources.values():
        for line in source():
            if '"murmurate_plan"' in line:
                check.plan_store.add_document(line)
    done = 0
    for name, source in sources.items():
        for entry in check.parse_entries(name, source()):
            done += 1
            if done % PROGRESS_EVERY == 0:
                progress(done)
            if zones is None or entry.record.zone in zones:
                check.check_entry(entry, name)
    check.prove_conflicts(sources)
    return check.report


@dataclass(slots=True)
class _LogCheck:
    expected_key: str | None
    verify: VerifySignature
    report: VerificationReport = field(default_factory=VerificationReport)
    plan_store: PlanStore = field(default_factory=PlanStore)
    chains: dict[str, ChainCheck] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    last_source: dict[str, str] = field(default_factory=dict)  # by zone: the source that its last new record came from

    def parse_entries(self, source: str, lines: Iterable[str]) -> Iterator[Entry]:
        """Every entry of a source; a line that is neither entry nor plan is a finding."""
        for number, line in enumerate(lines, 1):
            if not line or self.plan_store.add_document(line):
                continue
            try:
                yield parse_entry(line)
            except (ChainError, RecursionError, ValueError) as error:
                words = str(error) if isinstance(error, ChainError) else "cannot be read"
                self.report.add_finding(LogFinding("", None, "line", f"line {number}: {words}", source))

    def check_entry(self, entry: Entry, source: str) -> None:
        """Find the place of an entry in its chain, and hold it against its plan."""
        record = entry.record
        self.report.records_by_source[source] += 1
        chain = self.chains.setdefault(record.zone, ChainCheck(self.verify, self.expected_key))
        place, broken = chain.place_entry(entry, source)
        if place is Placement.DUPLICATE and self.last_source.get(record.zone) == source:
            broken = [("repeated", "stands twice in this source")]
        for rule, words in broken:
            self._add_finding(entry, rule, words, source)
        if place not in {Placement.NEXT, Placement.OUT_OF_ORDER}:
            return
        self.last_source[record.zone] = source
        self.report.zone_summary(record.zone).add_entry(entry)
        proven = self._proven_plan(entry, source)
        if proven is None:
            self.accounts.pop(record.zone, None)  # what was released here is not known: a later change finds a gap
            return
        for rule, words in self.accounts.setdefault(record.zone, Account()).book_record(record, proven):
            self._add_finding(entry, rule, words, source)

    def _proven_plan(self, entry: Entry, source: str) -> ProvenPlan | None:
        digest, zone = entry.record.plan, entry.record.zone
        proven = self.plan_store.proven_plan(digest)
        if isinstance(proven, ProvenPlan):
            self.report.plans.setdefault(digest, proven.summarize())
            return proven
        if proven is None:
            self.report.missing_plans.setdefault(digest, zone)
        elif entry.record.kind not in RELEASE_KINDS:
            self._add_finding(entry, "plan", f"{digest} is no proof of its promise: {proven}", source)
        return None

    def _add_finding(self, entry: Entry, rule: str, message: str, source: str) -> None:
        self.report.add_finding(LogFinding(entry.record.zone, entry.record.seq, rule, message, source))

    def prove_conflicts(self, sources: Mapping[str, LogSource]) -> None:
        """Make a proof of each contradiction: read the sources again for the line that stood there first."""
        wanted = {clash.other_hash for chain in self.chains.values() for clash in chain.conflicts}
        lines: dict[str, str] = {}
        if wanted:
            for line in (line for source in sources.values() for line in source()):
                found = sha256(line.encode(errors="replace")).hexdigest()
                if found in wanted:
                    lines[found] = line
        for chain in self.chains.values():
            for clash in chain.conflicts:
                proof = prove_contradiction(lines.get(clash.other_hash, ""), clash.entry.line, self.verify)
                if proof is None:
                    words = f"another signed record has its place; this one is signed by {clash.entry.record.key}, "
                    self._add_finding(
                        clash.entry, "forgery", f"{words}which proves nothing about the other", clash.source
                    )
                else:
                    self.report.proofs.append(proof)
                    words = f"{proof.key} has signed two different lines for {proof.contradicts}: see the proof"
                    self._add_finding(clash.entry, "two values", words, clash.source)
            unread = chain.conflict_count - len(chain.conflicts)
            if unread:
                zone = chain.runs[0].head.record.zone
                self.report.add_finding(LogFinding(zone, None, "two values", f"{unread} more like this", ""))
