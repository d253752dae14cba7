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
from murmurate.publication.chain import Verify, refuse_misfit, refuse_unsigned
from murmurate.publication.record import NOBODY, RELEASES, Entry

MOST_RUNS = 64
PROVEN = 5  # disputes of one zone that are followed up
UNSIGNED = "another record has this number; this one is not signed by the key it names, and proves nothing"


class Place(Enum):
    """Where a line stands."""

    NEXT = auto()  # it follows
    KNOWN = auto()  # it was seen before, to the byte
    ASTRAY = auto()  # it is signed, and follows nothing
    NOWHERE = auto()  # it is not signed, or another record has its place


@dataclass(slots=True)
class Run:
    """Successive records, the last of them whole."""

    head: Entry
    first: int = field(init=False)  # number of the first record
    before: int = field(init=False)  # the last interval before it
    hashes: bytearray = field(default_factory=bytearray)
    silent: list[int] = field(default_factory=list)  # numbers of the records that release nothing

    def __post_init__(self) -> None:
        record = self.head.record
        self.first = record.seq
        self.before = record.interval - (record.kind in RELEASES)
        self.extend(self.head)

    def extend(self, entry: Entry) -> None:
        self.head = entry
        self.hashes += bytes.fromhex(entry.hash)
        if entry.record.kind not in RELEASES:
            self.silent.append(entry.record.seq)

    def hash_of(self, seq: int) -> str | None:
        """The hash of the record with this number, if it is in the run."""
        at = 32 * (seq - self.first)
        return self.hashes[at : at + 32].hex() if 0 <= at < len(self.hashes) else None

    def release_of(self, interval: int) -> int | None:
        """The number of the record that released an interval: one each, but for the silent records."""
        seq = self.first + interval - self.before - 1
        for silent in self.silent:
            if silent > seq:
                break
            seq += 1
        return seq if interval > self.before and seq <= self.head.record.seq else None


@dataclass(frozen=True, slots=True)
class Clash:
    """A signed line, and the hash of another signed one that has its number or its interval."""

    entry: Entry
    hash: str
    source: str


@dataclass(slots=True)
class ChainCheck:
    """The runs of one zone, and what did not fit."""

    verify: Verify
    expected_key: str | None = None
    runs: list[Run] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)  # some of the lines that another one disputes
    disputed: int = 0  # and how many there are

    def place(self, entry: Entry, source: str) -> tuple[Place, list[tuple[str, str]]]:
        """Where a line stands, and which rules it breaks: each with words."""
        known = self._known(entry.record.seq)
        if known == entry.hash:
            return Place.KNOWN, []
        try:
            refuse_unsigned(entry, self.verify)
        except ChainError as error:
            return Place.NOWHERE, [_words(error) if known is None else ("forgery", UNSIGNED)]
        if known is not None:
            self._clash(entry, known, source)
        followed = self._followed(entry)
        broken = [] if known and not followed else list(self._broken(followed, entry))
        if followed is not None and not broken:
            followed.extend(entry)
            return Place.NEXT, []
        if known is not None:
            return Place.NOWHERE, broken
        self._begin(entry, source)
        return (Place.ASTRAY if broken else Place.NEXT), broken

    def _followed(self, entry: Entry) -> Run | None:
        """The run whose last record this one names as the one before, with the next number."""
        record = entry.record
        heads = ((run, run.head) for run in self.runs)
        return next((run for run, head in heads if (head.hash, head.record.seq + 1) == (record.prev, record.seq)), None)

    def _known(self, seq: int) -> str | None:
        return next((known for run in self.runs if (known := run.hash_of(seq)) is not None), None)

    def _broken(self, followed: Run | None, entry: Entry) -> Iterator[tuple[str, str]]:
        record = entry.record
        before = followed or next((run for run in reversed(self.runs) if run.head.record.seq + 1 == record.seq), None)
        begins = not self.runs and record.prev == NOBODY and record.seq == 0
        if begins and self.expected_key not in {None, record.key}:
            yield "key", f"{record.key} opens the chain, not the key you expect, {self.expected_key}"
        if before or begins:
            try:
                refuse_misfit(before.head if before else None, entry)
            except ChainError as error:
                yield _words(error)
        elif not self.runs:
            yield "gap", f"the chain begins with record {record.seq}; record 0 and what follows it are missing"
        elif record.seq > (last := max(run.head.record.seq for run in self.runs)):
            yield "gap", f"no valid record {_range(last + 1, record.seq - 1)} before it"
        else:
            yield "order", f"comes after record {last}, out of its order"

    def _begin(self, entry: Entry, source: str) -> None:
        """A new run; if its first record releases an interval for the second time, that is a conflict as well."""
        if entry.record.kind in RELEASES:
            for run in self.runs:
                seq = run.release_of(entry.record.interval)
                if seq is not None:
                    self._clash(entry, str(run.hash_of(seq)), source)
        if len(self.runs) < MOST_RUNS:
            self.runs.append(Run(entry))

    def _clash(self, entry: Entry, known: str, source: str) -> None:
        self.disputed += 1
        if len(self.clashes) < PROVEN:
            self.clashes.append(Clash(entry, known, source))


def _words(error: ChainError) -> tuple[str, str]:
    return error.field, str(error)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
