"""What is in the tables of the public log and no reader accepts: found for `murmurate log repair`, and set aside by it.

A role that may append needs no signing key to add a tile, or to claim a name for a shard that does not exist. A valid
tile is never set aside, nor one whose header the key has signed: a second value could be published in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple

import psycopg

from murmurate.commands.console import MAX_BLOCKED_SHOWN, stdout
from murmurate.errors import ChainError, MurmurateError
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile_chain import ShardHead
from murmurate.publisher.desired_state import ShardOpening
from murmurate.publisher.invalid_tail import InvalidTail, find_invalid_tail, hash_header
from murmurate.publisher.protocol import catch_up
from murmurate.publisher.protocol import last_seq as find_last_seq
from murmurate.publisher.steps import SeenState
from murmurate.service.storage.evidence import (
    count_evidence,
    find_unused_claims,
    set_claim_aside,
    set_tiles_aside,
)
from murmurate.service.storage.public_log_store import PostgresLogStore
from murmurate.service.storage.session import Session
from murmurate.service.storage.state_store import PostgresStateStore

_SELECT_TILES = "SELECT body FROM curator.tile WHERE shard = %s AND seq >= %s"
_SELECT_TILE = "SELECT body FROM curator.tile WHERE shard = %s AND seq = %s AND seen"
_SELECT_FIRST_SEEN = "SELECT shard, min(seq) FROM curator.tile WHERE seen GROUP BY shard"


class ExaminedShard(NamedTuple):
    """What the log holds of a shard, compared with what the state has seen, and checked beyond that."""

    differing_seq: int | None  # a valid tile that differs from the one seen: two values may be public
    tail: InvalidTail | None


class LogExaminer:
    """Compares the log with the state, shard by shard. Nothing is changed."""

    def __init__(self, state: psycopg.Connection, tables: PostgresStateStore, log: PostgresLogStore) -> None:
        self._state, self._tables, self._log = state, tables, log
        self._openings: Mapping[str, ShardOpening] = tables.shards()
        self._first_seen = first_seen(state)

    def examine_shard(self, shard: str, last_seq: int, seen_seq: int) -> ExaminedShard:
        """Check the tiles after the last one that is equal in both. A shard that was not seen is checked as a whole.

        What was archived is in neither. Where nothing can be compared, the check begins with what the log still has.
        """
        compared = min(last_seq, seen_seq)
        archived_seq = self._log.read({shard: last_seq})[shard].archived_seq
        first = max(self._first_seen.get(shard, 0), archived_seq + 1)
        common = self._find_common(shard, first, compared)
        head = self._tables.head_at(shard, common) if common >= first else self._begin_in_log(shard, archived_seq)
        opening = self._openings.get(shard)
        _, tail = find_invalid_tail(
            head,
            self._log.read_bodies(shard, find_last_seq(head)),
            self._log.table,
            verify_signature,
            None if opening is None else opening.key,
        )
        differs = common < compared and (tail is None or tail.first_seq > common + 1)
        return ExaminedShard(common + 1 if differs else None, tail)

    def _begin_in_log(self, shard: str, archived_seq: int) -> ShardHead | None:
        """The head that the check of a shard begins with, from the log alone: before its first tile, or after the
        first release that was not archived. Raises ChainError unless the key of the shard has signed that one.
        """
        if archived_seq < 0:
            return None
        tail = self._log.read({shard: -1}, max_tiles=1)[shard]
        return catch_up(SeenState(None, None), tail, verify_signature)[-1]

    def _find_common(self, shard: str, first: int, compared: int) -> int:
        """Return the last number from `first` on up to which state and log are equal, or the number before it.

        Each tile names the hash of the one before.
        """
        low, high = first - 1, compared + 1
        middle = compared  # usually all are
        while high - low > 1:
            same = self._seen_hash(shard, middle) == self._log_hash(shard, middle)
            low, high = (middle, high) if same else (low, middle)
            middle = (low + high) // 2
        return low

    def _seen_hash(self, shard: str, seq: int) -> str:
        row = self._state.execute(_SELECT_TILE, (shard, seq), binary=True).fetchone()
        if row is None:
            raise ChainError("state", f"without tile {seq} of {shard}", "must have every tile that it has seen")
        return _hash_body(row[0])

    def _log_hash(self, shard: str, seq: int) -> str | None:
        body = next(self._log.read_bodies(shard, seq - 1), None)
        return None if body is None else _hash_body(body)

    def held_hashes(self, shard: str, tail: InvalidTail) -> set[str]:
        """The hashes of the tiles that the state has seen or holds as pending under the numbers of a tail."""
        rows = self._state.execute(_SELECT_TILES, (shard, tail.first_seq), binary=True).fetchall()
        return {_hash_body(body) for (body,) in rows}


def first_seen(state: psycopg.Connection) -> dict[str, int]:
    """The first tile of each shard that the state has. Those before it were archived."""
    return dict(state.execute(_SELECT_FIRST_SEEN).fetchall())


def _hash_body(body: bytes) -> str:
    return hash_header(bytes(body).partition(b"\n")[0])


def set_tails_aside(examiner: LogExaminer, log_dsn: str, tails: Mapping[str, InvalidTail]) -> set[str]:
    """Set aside what may be, and print what was done. Returns the shards whose tiles are gone."""
    done: set[str] = set()
    with closing(Session(log_dsn)) as session:
        for shard, tail in sorted(tails.items()):
            try:
                tail.check_set_aside(examiner.held_hashes(shard, tail) if tail.signed else ())
                set_tiles_aside(session, shard, tail)
            except ChainError as error:
                stdout.print(f"{shard}: not set aside: {error}")
                continue
            done.add(shard)
            goes_on = f"goes on after tile {tail.first_seq - 1}" if tail.first_seq else "is not open"
            stdout.print(f"{shard}: {_tail_words(tail)} set aside as evidence. The shard {goes_on}.")
    return done


def print_tails(tails: Mapping[str, InvalidTail]) -> None:
    """Name the invalid tail of each shard."""
    for shard, tail in sorted(tails.items())[:MAX_BLOCKED_SHOWN]:
        stdout.print(f"{shard}: no reader accepts {_tail_words(tail)}: {tail.reason}")
    if tails:
        stdout.print(
            f"{len(tails):,} shards stand still. murmurate log repair --set-aside moves these tiles out of the log;"
        )
        stdout.print('see docs/how-to/restore.md, "The log holds a tile that the key has not signed".')


def _tail_words(tail: InvalidTail) -> str:
    count = tail.last_seq - tail.first_seq + 1
    return f"tile {tail.first_seq}" if count == 1 else f"{count:,} tiles from {tail.first_seq} on"


def print_other_faults(log_dsn: str, tables: PostgresStateStore) -> int:
    """Name claims of zones that are in no shard, and documents that were set aside. Returns how many such claims."""
    wanted = {zone: shard for zone, (shard, _) in tables.zones().items()}
    with closing(Session(log_dsn)) as session:
        claims = {zone: shard for zone, shard in find_unused_claims(session).items() if wanted.get(zone) != shard}
        document_count = count_evidence(session, "document")
    for zone, shard in sorted(claims.items())[:MAX_BLOCKED_SHOWN]:
        stdout.print(f"zone {zone} is claimed for shard {shard}, which has never had it.")
    if claims:
        stdout.print(
            f"{len(claims):,} names are claimed without a zone. To open one: murmurate log repair --unclaim ZONE."
        )
    if document_count:
        stdout.print(f"{document_count:,} documents were not what their digest says, and are set aside as evidence.")
    return len(claims)


def unclaim_zone(log_dsn: str, tables: PostgresStateStore, log: PostgresLogStore, zone: str) -> None:
    """Set aside the claim of a zone that was never in the shard that has claimed it."""
    shard = log.shards_of([zone]).get(zone)
    if shard is not None and shard == tables.zones().get(zone, ("",))[0]:
        raise MurmurateError("--unclaim", zone, f"will enter shard {shard}, as this state has it: its claim is right")
    with closing(Session(log_dsn)) as session:
        stdout.print(f"{zone}: its claim for shard {set_claim_aside(session, zone)} is set aside as evidence.")
