"""Merkle trees: one hash stands for many leaves, and a few hashes prove that a leaf is one of them.

The tree is that of RFC 9162: SHA-256, a leaf is hashed with the byte 0 before it and a node with the byte 1. A level
with an odd number of nodes hands its last one up unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from murmurate.errors import ChainError

LEAF_PREFIX, NODE_PREFIX = b"\x00", b"\x01"


def hash_leaf(leaf: bytes) -> bytes:
    """Return the hash of a leaf, 32 bytes."""
    return sha256(LEAF_PREFIX + leaf).digest()


def compute_root(leaf_hashes: Sequence[bytes]) -> bytes:
    """Return the root of a tree with these leaves. Raises ChainError without a leaf.

    >>> compute_root([hash_leaf(b"a"), hash_leaf(b"b")]).hex()[:8]
    'b137985f'
    """
    if not leaf_hashes:
        raise ChainError("tile", "empty", "must have a leaf")
    level = list(leaf_hashes)
    while len(level) > 1:
        level = _next_level(level)
    return level[0]


def make_proof(leaf_hashes: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from leaf `index` to the root, the lowest first."""
    proof: list[bytes] = []
    level = list(leaf_hashes)
    while len(level) > 1:
        if index ^ 1 < len(level):
            proof.append(level[index ^ 1])
        level, index = _next_level(level), index // 2
    return proof


def root_from_proof(leaf_hash: bytes, index: int, count: int, proof: Sequence[bytes]) -> bytes | None:
    """Return the root of a tree of `count` leaves whose leaf `index` has this hash; None if the proof does not fit.

    >>> leaves = [hash_leaf(bytes([n])) for n in range(5)]
    >>> root_from_proof(leaves[4], 4, 5, make_proof(leaves, 4)) == compute_root(leaves)
    True
    """
    if not 0 <= index < count:
        return None
    found, rest = leaf_hash, list(proof)
    while count > 1:
        if index ^ 1 < count:
            if not rest:
                return None
            sibling = rest.pop(0)
            found = sha256(NODE_PREFIX + (sibling + found if index & 1 else found + sibling)).digest()
        index, count = index // 2, (count + 1) // 2
    return None if rest else found


def _next_level(level: list[bytes]) -> list[bytes]:
    above = [sha256(NODE_PREFIX + left + right).digest() for left, right in zip(level[::2], level[1::2], strict=False)]
    return above + level[-1:] if len(level) % 2 else above
