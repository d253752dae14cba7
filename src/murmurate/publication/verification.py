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
from murmurate.publication.chain import Verify
from murmurate.publication.record import RELEASES, Entry, read
from murmurate.publication.signing import refuse_bad_key, verify
from murmurate.publication.verification_chain import ChainCheck, Place
from murmurate.publication.verification_plans import Account, Proven, Shelf
from murmurate.publication.verification_report import Finding, Report, Source, contradiction

Progress = Callable[[int], None]  # is told how many lines are done

OFTEN = 500  # lines between two calls of progress


def check_log(
    sources: Mapping[str, Source],
    *,
    plans: Iterable[str] = (),
    expected_key: str | None = None,
    zones: Collection[str] | None = None,
    progress: Progress = lambda _: None,
    signed: Verify = verify,
) -> Report:
    """Everything that is wrong with a log, or with several copies of one, the fullest of them first.

    A line is an entry or a plan document. `plans` are further plan documents; `expected_key` is the key that must have
    opened each chain (otherwise the first one seen is trusted, and reported); `zones` are the only ones to check.
    """
    if expected_key is not None:
        refuse_bad_key(expected_key)
    check = _Check(expected_key, signed)
    for text in plans:
        check.shelf.add(text)
    for source in sources.values():
        for line in source():
            if '"murmurate_plan"' in line:
                check.shelf.add(line)
    done = 0
    for name, source in sources.items():
        for entry in check.entries(name, source()):
            done += 1
            if done % OFTEN == 0:
                progress(done)
            if zones is None or entry.record.zone in zones:
                check.take(entry, name)
    check.settle(sources)
    return check.report


@dataclass(slots=True)
class _Check:
    expected_key: str | None
    signed: Verify
    report: Report = field(default_factory=Report)
    shelf: Shelf = field(default_factory=Shelf)
    chains: dict[str, ChainCheck] = field(default_factory=dict)
    accounts: dict[str, Account] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)  # by zone: the source that its last new record came from

    def entries(self, source: str, lines: Iterable[str]) -> Iterator[Entry]:
        """Every entry of a source; a line that is neither entry nor plan is a finding."""
        for number, line in enumerate(lines, 1):
            if not line or self.shelf.add(line):
                continue
            try:
                yield read(line)
            except (ChainError, RecursionError, ValueError) as error:
                words = str(error) if isinstance(error, ChainError) else "cannot be read"
                self.report.find(Finding("", None, "line", f"line {number}: {words}", source))

    def take(self, entry: Entry, source: str) -> None:
        """Find the place of an entry in its chain, and hold it against its plan."""
        record = entry.record
        self.report.shown[source] += 1
        chain = self.chains.setdefault(record.zone, ChainCheck(self.signed, self.expected_key))
        place, broken = chain.place(entry, source)
        if place is Place.KNOWN and self.added.get(record.zone) == source:
            broken = [("repeated", "stands twice in this source")]
        for rule, words in broken:
            self._find(entry, rule, words, source)
        if place not in {Place.NEXT, Place.ASTRAY}:
            return
        self.added[record.zone] = source
        self.report.zone(record.zone).add(entry)
        proven = self._plan(entry, source)
        if proven is None:
            self.accounts.pop(record.zone, None)  # what was released here is not known: a later change finds a gap
            return
        for rule, words in self.accounts.setdefault(record.zone, Account()).book(record, proven):
            self._find(entry, rule, words, source)

    def _plan(self, entry: Entry, source: str) -> Proven | None:
        digest, zone = entry.record.plan, entry.record.zone
        proven = self.shelf.proven(digest)
        if isinstance(proven, Proven):
            self.report.plans.setdefault(digest, proven.summary())
            return proven
        if proven is None:
            self.report.missing.setdefault(digest, zone)
        elif entry.record.kind not in RELEASES:
            self._find(entry, "plan", f"{digest} is no proof of its promise: {proven}", source)
        return None

    def _find(self, entry: Entry, rule: str, words: str, source: str) -> None:
        self.report.find(Finding(entry.record.zone, entry.record.seq, rule, words, source))

    def settle(self, sources: Mapping[str, Source]) -> None:
        """Make a proof of each contradiction: read the sources again for the line that stood there first."""
        wanted = {clash.hash for chain in self.chains.values() for clash in chain.clashes}
        lines: dict[str, str] = {}
        if wanted:
            for line in (line for source in sources.values() for line in source()):
                found = sha256(line.encode(errors="replace")).hexdigest()
                if found in wanted:
                    lines[found] = line
        for chain in self.chains.values():
            for clash in chain.clashes:
                proof = contradiction(lines.get(clash.hash, ""), clash.entry.line, self.signed)
                if proof is None:
                    words = f"another signed record has its place; this one is signed by {clash.entry.record.key}, "
                    self._find(clash.entry, "forgery", f"{words}which proves nothing about the other", clash.source)
                else:
                    self.report.proofs.append(proof)
                    words = f"{proof.key} has signed two different lines for {proof.contradicts}: see the proof"
                    self._find(clash.entry, "two values", words, clash.source)
            unread = chain.disputed - len(chain.clashes)
            if unread:
                zone = chain.runs[0].head.record.zone
                self.report.find(Finding(zone, None, "two values", f"{unread} more like this", ""))
