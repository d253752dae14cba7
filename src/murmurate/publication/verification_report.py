"""What a check of the public log has found: for each zone what stands there, what is wrong, and what proves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.publication.chain import Verify
from murmurate.publication.record import RELEASES, Entry, read

Source = Callable[[], Iterable[str]]  # the lines of a log, from the beginning each time it is called

SHOWN = 20  # findings kept of one zone; the rest is counted


class Finding(NamedTuple):
    """One rule that a log breaks."""

    zone: str  # empty where a line cannot be read
    seq: int | None
    rule: str  # as in docs/how-to/verify.md
    words: str
    source: str


class Proof(NamedTuple):
    """Two lines that one key has signed and that cannot both be true. Nobody has to be trusted to check it."""

    zone: str
    contradicts: str  # what both lines are about
    key: str
    lines: tuple[str, str]


@dataclass(slots=True)
class ZoneSummary:
    """What the log says about one zone."""

    zone: str
    trusted: str = ""  # the key of the first record
    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    first: int | None = None  # the first and the last interval that was decided
    last: int | None = None
    interval_s: int = 0
    total_epsilon_micro: int = 0
    total_rho_micro: int = 0
    keys: list[str] = field(default_factory=list)  # in the order of their use
    plans: list[str] = field(default_factory=list)  # likewise
    wrong: int = 0  # findings, those that are not kept included

    def add(self, entry: Entry) -> None:
        """Count a record that has its place."""
        record = entry.record
        self.trusted = self.trusted or record.key
        self.records += 1
        self.kinds[record.kind.value] += 1
        self.interval_s = record.interval_s
        self.total_epsilon_micro, self.total_rho_micro = record.total_epsilon_micro, record.total_rho_micro
        if record.kind in RELEASES:
            self.first = record.interval if self.first is None else min(self.first, record.interval)
            self.last = record.interval if self.last is None else max(self.last, record.interval)
        for seen, new in ((self.keys, record.key), (self.keys, entry.key), (self.plans, record.plan)):
            if seen[-1:] != [new]:
                seen.append(new)


class PlanSummary(NamedTuple):
    """A plan that a chain names, and whether it was proven anew."""

    digest: str
    zone: str  # that it was made for
    promises: tuple[str, ...]  # each with what it costs at most


@dataclass(slots=True)
class Report:
    """Everything that was found. It says nothing about time: whether the last record is late, a reader must judge."""

    zones: dict[str, ZoneSummary] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    plans: dict[str, PlanSummary] = field(default_factory=dict)  # proven, by digest
    missing: dict[str, str] = field(
        default_factory=dict
    )  # digest of each plan that was not given: a zone that names it
    shown: Counter[str] = field(default_factory=Counter)  # records in each source
    wrong: int = 0

    @property
    def holds(self) -> bool:
        """Nothing is wrong, as far as it could be checked."""
        return self.wrong == 0

    @property
    def complete(self) -> bool:
        """Everything could be checked."""
        return not self.missing

    def zone(self, name: str) -> ZoneSummary:
        return self.zones.setdefault(name, ZoneSummary(name))

    def find(self, finding: Finding) -> None:
        """Keep a finding; of one zone only so many, so that a wholly wrong log does not fill the memory."""
        self.wrong += 1
        about = self.zone(finding.zone) if finding.zone else None
        kept = about.wrong if about else self.wrong - 1
        if about:
            about.wrong += 1
        if kept < SHOWN:
            self.findings.append(finding)


def contradiction(one: str, other: str, verify: Verify) -> Proof | None:
    """The proof that whoever holds a key has signed two lines that cannot both stand; None if they are none.

    Each zone has one record of each number, and one release of each interval. Both signatures are checked here again.
    """
    try:
        first, second = read(one), read(other)
    except (ChainError, RecursionError):
        return None
    about, again = first.record, second.record
    if about.zone != again.zone or about.key != again.key or about == again:
        return None
    same_interval = about.interval == again.interval and {about.kind, again.kind} <= RELEASES
    if about.seq != again.seq and not same_interval:
        return None
    if not all(verify(each.record.key, each.signed_bytes(), each.signature) for each in (first, second)):
        return None
    number = f"record {about.seq}" if about.seq == again.seq else ""
    interval = f"interval {about.interval}" if same_interval else ""
    return Proof(about.zone, " and ".join(filter(None, (number, interval))), about.key, (one, other))
