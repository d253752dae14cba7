"""Follow the chain of one zone line by line, whatever was done to it, keeping 32 bytes of each record.

A run is a stretch of records of which each follows the one before. A right log has one run for each zone. A record that
is signed but follows none begins another, so that what comes after it is checked as well. A record that is not signed
by the key it names takes no place at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from murmurate.errors import ChainError
from murmurate.public_log.chain import VerifySignature, check_follows, check_signature
from murmurate.public_log.record import GENESIS_PREV, RELEASE_KINDS, Entry

MAX_RUNS = 64
MAX_PROVEN_CONFLICTS = 5  # disputes of one zone that are followed up
UNSIGNED_DUPLICATE = "another record has this number; this one is not signed by the key it names, and proves nothing"


class Placement(Enum):
    """Where a line stands."""

    NEXT = auto()  # it follows
    DUPLICATE = auto()  # it was seen before, to the byte
    OUT_OF_ORDER = auto()  # it is signed, and follows nothing
    REJECTED = auto()  # it is not signed, or another record has its place


@dataclass(slots=True)
class ChainRun:
    """Successive records, the last of them whole."""

    head: Entry
    first_seq: int = field(init=False)  # number of the first record
    previous_interval: int = field(init=False)  # the last interval before it
    hashes: bytearray = field(default_factory=bytearray)
    non_release_seqs: list[int] = field(default_factory=list)  # numbers of the records that release nothing

    def __post_init__(self) -> None:
        record = self.head.record
        self.first_seq = record.seq
        self.previous_interval = record.interval - (record.kind in RELEASE_KINDS)
        self.extend(self.head)

    def extend(self, entry: Entry) -> None:
        self.head = entry
        self.hashes += bytes.fromhex(entry.hash)
        if entry.record.kind not in RELEASE_KINDS:
            self.non_release_seqs.append(entry.record.seq)

    def hash_of(self, seq: int) -> str | None:
        """The hash of the record with this number, if it is in the run."""
        at = 32 * (seq - self.first_seq)
        return self.hashes[at : at + 32].hex() if 0 <= at < len(self.hashes) else None

    def seq_of_release(self, interval: int) -> int | None:
        """The number of the record that released an interval: one each, but for the silent records."""
        seq = self.first_seq + interval - self.previous_interval - 1
        for silent in self.non_release_seqs:
            if silent > seq:
                break
            seq += 1
        return seq if interval > self.previous_interval and seq <= self.head.record.seq else None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A signed line, and the hash of another signed one that has its number or its interval."""

    entry: Entry
    other_hash: str
    source: str


@dataclass(slots=True)
class ChainCheck:
    """The runs of one zone, and what did not fit."""

    verify: VerifySignature
    expected_key: str | None = None
    runs: list[ChainRun] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)  # some of the lines that another one disputes
    conflict_count: int = 0  # and how many there are

    def place_entry(self, entry: Entry, source: str) -> tuple[Placement, list[tuple[str, str]]]:
        """Where a line stands, and which rules it breaks: each with words."""
        known = self._hash_at(entry.record.seq)
        if known == entry.hash:
            return Placement.DUPLICATE, []
        try:
            check_signature(entry, self.verify)
        except ChainError as error:
            return Placement.REJECTED, [_rule_and_message(error) if known is None else ("forgery", UNSIGNED_DUPLICATE)]
        if known is not None:
            self._add_conflict(entry, known, source)
        followed = self._preceding_run(entry)
        broken = [] if known and not followed else list(self._broken_rules(followed, entry))
        if followed is not None and not broken:
            followed.extend(entry)
            return Placement.NEXT, []
        if known is not None:
            return Placement.REJECTED, broken
        self._start_run(entry, source)
        return (Placement.OUT_OF_ORDER if broken else Placement.NEXT), broken

    def _preceding_run(self, entry: Entry) -> ChainRun | None:
        """The run whose last record this one names as the one before, with the next number."""
        record = entry.record
        heads = ((run, run.head) for run in self.runs)
        return next((run for run, head in heads if (head.hash, head.record.seq + 1) == (record.prev, record.seq)), None)

    def _hash_at(self, seq: int) -> str | None:
        return next((known for run in self.runs if (known := run.hash_of(seq)) is not None), None)

    def _broken_rules(self, preceding: ChainRun | None, entry: Entry) -> Iterator[tuple[str, str]]:
        record = entry.record
        before = preceding or next((run for run in reversed(self.runs) if run.head.record.seq + 1 == record.seq), None)
        begins = not self.runs and record.prev == GENESIS_PREV and record.seq == 0
        if begins and self.expected_key not in {None, record.key}:
            yield "key", f"{record.key} opens the chain, not the key you expect, {self.expected_key}"
        if before or begins:
            try:
                check_follows(before.head if before else None, entry)
            except ChainError as error:
                yield _rule_and_message(error)
        elif not self.runs:
            yield "gap", f"the chain begins with record {record.seq}; record 0 and what follows it are missing"
        elif record.seq > (last := max(run.head.record.seq for run in self.runs)):
            yield "gap", f"no valid record {_range(last + 1, record.seq - 1)} before it"
        else:
            yield "order", f"comes after record {last}, out of its order"

    def _start_run(self, entry: Entry, source: str) -> None:
        """A new run; if its first record releases an interval for the second time, that is a conflict as well."""
        if entry.record.kind in RELEASE_KINDS:
            for run in self.runs:
                seq = run.seq_of_release(entry.record.interval)
                if seq is not None:
                    self._add_conflict(entry, str(run.hash_of(seq)), source)
        if len(self.runs) < MAX_RUNS:
            self.runs.append(ChainRun(entry))

    def _add_conflict(self, entry: Entry, other_hash: str, source: str) -> None:
        self.conflict_count += 1
        if len(self.conflicts) < MAX_PROVEN_CONFLICTS:
            self.conflicts.append(Conflict(entry, other_hash, source))


def _rule_and_message(error: ChainError) -> tuple[str, str]:
    return error.field, str(error)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
