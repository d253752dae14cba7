"""What a check of the public log has found: a summary of each zone, what is wrong, and what proves it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_FINDINGS = 20  # findings kept of one zone or shard; the rest is counted


class BrokenRule(NamedTuple):
    """One rule that a tile or a line breaks."""

    zone: str  # empty: the whole tile
    rule: str
    message: str


class LogFinding(NamedTuple):
    """One rule that a log breaks."""

    shard: str  # empty where an item cannot be read
    seq: int | None  # number of the tile
    zone: str  # empty where the whole tile is meant
    rule: str  # as in docs/how-to/verify.md
    message: str
    source: str


class MisbehaviourProof(NamedTuple):
    """Two headers that one key has signed and that cannot both be true. A reader checks it without trusting anyone."""

    shard: str
    zone: str  # empty where the headers alone contradict each other
    contradicts: str  # what both are about
    key: str
    headers: tuple[str, str]
    lines: tuple[str, ...] = ()  # two lines of a zone, where both were given as such or its rows contradict each other


@dataclass(slots=True)
class ZoneSummary:
    """What the log says about one zone."""

    zone: str
    first_key: str = ""  # the key of the first tile
    records: int = 0  # rows
    kinds: Counter[str] = field(default_factory=Counter)
    first_interval: int | None = None  # the first and the last interval that was decided
    last_interval: int | None = None
    closed_after: int | None = None  # the last interval of a zone that was closed; its totals are final
    interval_s: int = 0
    total_epsilon_micro: int = 0
    total_rho_micro: int = 0
    keys: list[str] = field(default_factory=list)  # in the order of their use
    plans: list[str] = field(default_factory=list)  # likewise
    finding_count: int = 0  # findings, those that are not kept included

    def add_terms(self, *, key: str, plan: str, interval_s: int) -> None:
        """Note under what the zone is from here on."""
        self.first_key = self.first_key or key
        self.interval_s = interval_s
        for seen, new in ((self.keys, key), (self.plans, plan)):
            if seen[-1:] != [new]:
                seen.append(new)

    def add_rows(self, kinds: Counter[str], first: int, last: int, totals: tuple[int, int]) -> None:
        """Count rows that have their place, from one interval to another."""
        self.records += kinds.total()
        self.kinds += kinds
        self.first_interval = first if self.first_interval is None else min(self.first_interval, first)
        if self.last_interval is None or last >= self.last_interval:
            self.last_interval = last
            self.total_epsilon_micro, self.total_rho_micro = totals


class PlanSummary(NamedTuple):
    """A plan that a chain names, and whether it was proven again."""

    digest: str
    zone: str  # that it was made for
    promises: tuple[str, ...]  # each with what it costs at most


class UncheckedBeginning(NamedTuple):
    """Where the check of a shard begins, because its first releases are in an archive that was not given."""

    seq: int  # number of the first tile after them
    interval: int  # the first one that was checked
    interval_s: int


@dataclass(slots=True)
class VerificationReport:
    """Everything that was found. It says nothing about time: whether the last tile is late, a reader must judge."""

    zones: dict[str, ZoneSummary] = field(default_factory=dict)
    findings: list[LogFinding] = field(default_factory=list)
    proofs: list[MisbehaviourProof] = field(default_factory=list)
    plans: dict[str, PlanSummary] = field(default_factory=dict)  # proven, by digest
    missing_plans: dict[str, str] = field(default_factory=dict)  # by digest, not given: a zone that names it
    unchecked_beginnings: dict[str, UncheckedBeginning] = field(default_factory=dict)  # by shard
    unchecked_changes: list[tuple[str, int]] = field(default_factory=list)  # zone, and interval of a change of plan
    records_by_source: Counter[str] = field(default_factory=Counter)  # rows in each source
    tiles_by_source: Counter[str] = field(default_factory=Counter)  # tiles, or lines of a zone
    finding_count: int = 0
    last_tiles: dict[str, tuple[int, str]] = field(default_factory=dict)  # by shard: number and hash
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)  # findings by shard and zone

    @property
    def is_valid(self) -> bool:
        """Nothing is wrong, as far as it could be checked."""
        return self.finding_count == 0

    @property
    def is_complete(self) -> bool:
        """Everything could be checked."""
        return not self.missing_plans and not self.unchecked_beginnings

    def zone_summary(self, name: str) -> ZoneSummary:
        return self.zones.setdefault(name, ZoneSummary(name))

    def add_finding(self, finding: LogFinding) -> None:
        """Keep a finding. Of one zone `MAX_FINDINGS` are kept, so that a wholly wrong log does not fill the memory."""
        self.finding_count += 1
        if finding.zone:
            self.zone_summary(finding.zone).finding_count += 1
        about = (finding.shard, finding.zone)
        self._counts[about] += 1
        if self._counts[about] <= MAX_FINDINGS:
            self.findings.append(finding)
