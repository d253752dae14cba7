"""What a check of the public log has found: for each zone what stands there, what is wrong, and what proves it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.chain import VerifySignature
from murmurate.public_log.record import RELEASE_KINDS, Entry, parse_entry

LogSource = Callable[[], Iterable[str]]  # the lines of a log, from the beginning each time it is called

MAX_FINDINGS = 20  # findings kept of one zone; the rest is counted


class LogFinding(NamedTuple):
    """One rule that a log breaks."""

    zone: str  # empty where a line cannot be read
    seq: int | None
    rule: str  # as in docs/how-to/verify.md
    message: str
    source: str


class MisbehaviourProof(NamedTuple):
    """Two lines that one key has signed and that cannot both be true. A reader checks it without trusting anyone."""

    zone: str
    contradicts: str  # what both lines are about
    key: str
    lines: tuple[str, str]


@dataclass(slots=True)
class ZoneSummary:
    """What the log says about one zone."""

    zone: str
    first_key: str = ""  # the key of the first record
    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    first_interval: int | None = None  # the first and the last interval that was decided
    last_interval: int | None = None
    interval_s: int = 0
    total_epsilon_micro: int = 0
    total_rho_micro: int = 0
    keys: list[str] = field(default_factory=list)  # in the order of their use
    plans: list[str] = field(default_factory=list)  # likewise
    finding_count: int = 0  # findings, those that are not kept included

    def add_entry(self, entry: Entry) -> None:
        """Count a record that has its place."""
        record = entry.record
        self.first_key = self.first_key or record.key
        self.records += 1
        self.kinds[record.kind.value] += 1
        self.interval_s = record.interval_s
        self.total_epsilon_micro, self.total_rho_micro = record.total_epsilon_micro, record.total_rho_micro
        if record.kind in RELEASE_KINDS:
            self.first_interval = (
                record.interval if self.first_interval is None else min(self.first_interval, record.interval)
            )
            self.last_interval = (
                record.interval if self.last_interval is None else max(self.last_interval, record.interval)
            )
        for seen, new in ((self.keys, record.key), (self.keys, entry.key_in_force), (self.plans, record.plan)):
            if seen[-1:] != [new]:
                seen.append(new)


class PlanSummary(NamedTuple):
    """A plan that a chain names, and whether it was proven anew."""

    digest: str
    zone: str  # that it was made for
    promises: tuple[str, ...]  # each with what it costs at most


@dataclass(slots=True)
class VerificationReport:
    """Everything that was found. It says nothing about time: whether the last record is late, a reader must judge."""

    zones: dict[str, ZoneSummary] = field(default_factory=dict)
    findings: list[LogFinding] = field(default_factory=list)
    proofs: list[MisbehaviourProof] = field(default_factory=list)
    plans: dict[str, PlanSummary] = field(default_factory=dict)  # proven, by digest
    missing_plans: dict[str, str] = field(
        default_factory=dict
    )  # digest of each plan that was not given: a zone that names it
    records_by_source: Counter[str] = field(default_factory=Counter)  # records in each source
    finding_count: int = 0

    @property
    def is_valid(self) -> bool:
        """Nothing is wrong, as far as it could be checked."""
        return self.finding_count == 0

    @property
    def is_complete(self) -> bool:
        """Everything could be checked."""
        return not self.missing_plans

    def zone_summary(self, name: str) -> ZoneSummary:
        return self.zones.setdefault(name, ZoneSummary(name))

    def add_finding(self, finding: LogFinding) -> None:
        """Keep a finding; of one zone only so many, so that a wholly wrong log does not fill the memory."""
        self.finding_count += 1
        about = self.zone_summary(finding.zone) if finding.zone else None
        kept = about.finding_count if about else self.finding_count - 1
        if about:
            about.finding_count += 1
        if kept < MAX_FINDINGS:
            self.findings.append(finding)


def prove_contradiction(first_line: str, second_line: str, verify: VerifySignature) -> MisbehaviourProof | None:
    """The proof that the holder of a key has signed two lines that cannot both stand; None if they can.

    Each zone has one record of each number, and one release of each interval. Both signatures are checked here again.
    """
    try:
        first, second = parse_entry(first_line), parse_entry(second_line)
    except (ChainError, RecursionError):
        return None
    about, again = first.record, second.record
    if about.zone != again.zone or about.key != again.key or about == again:
        return None
    same_interval = about.interval == again.interval and {about.kind, again.kind} <= RELEASE_KINDS
    if about.seq != again.seq and not same_interval:
        return None
    if not all(verify(each.record.key, each.signed_bytes(), each.signature) for each in (first, second)):
        return None
    number = f"record {about.seq}" if about.seq == again.seq else ""
    interval = f"interval {about.interval}" if same_interval else ""
    return MisbehaviourProof(
        about.zone, " and ".join(filter(None, (number, interval))), about.key, (first_line, second_line)
    )
