"""The end of a shard's chain that no reader accepts, and when the log's owner may set it aside.

A log checks the header of a tile and not its signature. So a role that may append can add tiles without the key. No
reader accepts them, and no valid tile can follow them. They may be set aside, and their numbers taken again, if no
value was signed under those numbers: a header that the key in force has signed may be that of a price that is public.
It stays, unless the state holds the tile and so draws no other in its place. Proof: `protocol.md`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from hashlib import sha256
from typing import NamedTuple

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import parse_tile
from murmurate.public_log.tile_chain import ShardHead, VerifySignature, check_next
from murmurate.public_log.zone_table import ZoneTable


class InvalidTail(NamedTuple):
    """Tiles at the end of a shard that readers refuse: the first for a reason, the others because they follow it."""

    head: ShardHead | None  # after the last tile that readers accept
    first_seq: int
    last_seq: int
    last_hash: str
    reason: str
    signed: dict[str, int]  # numbers by hash: their headers are signed by the key in force

    def check_set_aside(self, held: Collection[str]) -> None:
        """Raise ChainError unless these tiles may be set aside. `held`: hashes of tiles that the state has stored."""
        for tile_hash, seq in self.signed.items():
            if tile_hash not in held:
                allowed = (
                    "has a header that the key has signed, so its price may be public: restore a state that holds it"
                )
                raise ChainError("tile", seq, allowed)


def find_invalid_tail(
    head: ShardHead | None,
    bodies: Iterable[bytes],
    load_table: Callable[[str], ZoneTable],
    verify: VerifySignature,
    opening_key: str | None = None,
) -> tuple[ShardHead | None, InvalidTail | None]:
    """Check the tiles after `head`, up to the last. Returns the last head that is valid, and what comes after it.

    `opening_key` is the key that the shard should begin with, where that is known.
    """
    rest = iter(bodies)
    for body in rest:
        try:
            tile = parse_tile(body)
            head = check_next(head, tile, load_table(tile.header.table), verify)
        except ChainError as error:
            key, first_seq = (opening_key, 0) if head is None else (head.tile.key_in_force, head.tile.header.seq + 1)
            lines = dict(enumerate((each.partition(b"\n")[0] for each in (body, *rest)), first_seq))
            signed = {hash_header(line): seq for seq, line in lines.items() if _is_signed(line, key, verify)}
            last_seq = max(lines)
            return head, InvalidTail(head, first_seq, last_seq, hash_header(lines[last_seq]), str(error), signed)
    return head, None


def hash_header(line: bytes) -> str:
    """Return the hash of a tile from its first line, readable or not."""
    return sha256(line).hexdigest()


def _is_signed(line: bytes, key: str | None, verify: VerifySignature) -> bool:
    """Whether a key has signed a header, also one of a later version. Without a key: the one that the header names."""
    try:
        members = json.loads(line)
        signature, named = members.pop("signature"), members["key"]
        signed = canonical_json(members).encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False
    return isinstance(signature, str) and isinstance(named, str) and verify(key or named, signed, signature)
