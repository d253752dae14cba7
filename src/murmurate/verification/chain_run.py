"""The hashes of successive tiles, so that a second tile in the place of one is noticed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.tile import TileHeader, TileKind

MAX_RUNS = 64
MAX_PROVEN_CONFLICTS = 5  # disputes of one shard or zone that are followed up
_BLOCK = 64  # numbers
_NO_HASH = bytes(32)


class Placement(Enum):
    """Where a tile, or a line of a zone, stands."""

    NEXT = auto()  # it follows
    DUPLICATE = auto()  # it was seen before, to the byte
    OUT_OF_ORDER = auto()  # it is signed, and follows nothing
    REJECTED = auto()  # it is not signed, it is damaged, or another one has its place


class BrokenRule(NamedTuple):
    """One rule that a tile or a line breaks."""

    zone: str  # empty: the whole tile
    rule: str
    message: str


class Opening(NamedTuple):
    """The header that a chain begins with, and where it was read."""

    header: TileHeader
    source: str


class Conflict(NamedTuple):
    """A signed item, and another one that has its place."""

    item: bytes  # a header, or a line of a zone
    header: TileHeader
    zone: str  # empty where the shard is meant
    other_hash: str  # of the other tile, or of the other line
    source: str


@dataclass(slots=True)
class ChainRun:
    """Successive tiles of one shard: 32 bytes of each, and what it takes to find the tile of an interval."""

    header: TileHeader  # of the last tile
    first_seq: int = field(init=False)
    previous_interval: int = field(init=False)  # the last interval before the first tile
    hashes: bytearray = field(default_factory=bytearray)
    non_release_seqs: list[int] = field(default_factory=list)  # numbers of the tiles that release nothing

    def __post_init__(self) -> None:
        self.first_seq = self.header.seq
        self.previous_interval = self.header.interval - (self.header.kind is TileKind.RELEASE)

    def extend(self, header: TileHeader, item_hash: str) -> None:
        self.header = header
        self.hashes += bytes.fromhex(item_hash)
        if header.kind is not TileKind.RELEASE:
            self.non_release_seqs.append(header.seq)

    def hash_of(self, seq: int) -> str | None:
        """The hash of the item with this number, if it is in the run."""
        at = 32 * (seq - self.first_seq)
        return self.hashes[at : at + 32].hex() if 0 <= at < len(self.hashes) else None

    def seq_of_release(self, interval: int) -> int | None:
        """The number of the tile that released an interval: one each, but for the tiles that release nothing."""
        seq = self.first_seq + interval - self.previous_interval - 1
        for silent in self.non_release_seqs:
            if silent > seq:
                break
            seq += 1
        return seq if interval > self.previous_interval and seq <= self.header.seq else None


@dataclass(slots=True)
class HashByNumber:
    """A hash for each of some numbers, most of them neighbours: 32 bytes each."""

    _blocks: dict[int, bytearray] = field(default_factory=dict)

    def get(self, number: int) -> str | None:
        block, at = self._blocks.get(number // _BLOCK), 32 * (number % _BLOCK)
        found = block[at : at + 32] if block else _NO_HASH
        return None if found == _NO_HASH else found.hex()

    def set(self, number: int, item_hash: str) -> None:
        at = 32 * (number % _BLOCK)
        self._blocks.setdefault(number // _BLOCK, bytearray(32 * _BLOCK))[at : at + 32] = bytes.fromhex(item_hash)


@dataclass(slots=True)
class NumberSet:
    """Some numbers, most of them neighbours: a bit each."""

    _blocks: dict[int, int] = field(default_factory=dict)

    def add(self, number: int) -> bool:
        """Add a number. Returns whether it is new."""
        block, bit = number // _BLOCK, 1 << number % _BLOCK
        before = self._blocks.get(block, 0)
        self._blocks[block] = before | bit
        return not before & bit


def rule_and_message(error: ChainError, zone: str = "") -> BrokenRule:
    return BrokenRule(zone, error.field, str(error))


def describe_range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
