"""Merkle trees: the roots of RFC 9162, and proofs that fit one leaf, one place and one tree."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ChainError
from murmurate.public_log.merkle import compute_root, hash_leaf, make_proof, root_from_proof

LEAVES = st.lists(st.binary(max_size=4), min_size=1, max_size=40)


def largest_power_below(count):
    return 1 << (count - 1).bit_length() - 1


def naive_root(leaves):
    """RFC 9162, section 2.1.1: MTH(D[n]) = HASH(0x01 || MTH(D[0:k]) || MTH(D[k:n])), k a power of 2 below n."""
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = largest_power_below(len(leaves))
    return sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_proof(index, leaves):
    """RFC 9162, section 2.1.3.1: PATH(m, D[n])."""
    if len(leaves) == 1:
        return []
    k = largest_power_below(len(leaves))
    if index < k:
        return [*naive_proof(index, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_proof(index - k, leaves[k:]), naive_root(leaves[:k])]


@given(LEAVES)
def test_the_root_is_that_of_rfc_9162(leaves):
    assert compute_root([hash_leaf(leaf) for leaf in leaves]) == naive_root(leaves)


@given(LEAVES, st.data())
def test_the_proof_is_that_of_rfc_9162_and_leads_to_the_root(leaves, data):
    index = data.draw(st.integers(0, len(leaves) - 1))
    hashes = [hash_leaf(leaf) for leaf in leaves]
    proof = make_proof(hashes, index)
    assert proof == naive_proof(index, leaves)
    assert root_from_proof(hashes[index], index, len(leaves), proof) == naive_root(leaves)


def test_every_place_of_every_small_tree_has_its_proof():
    for count in range(1, 34):
        hashes = [hash_leaf(bytes([number])) for number in range(count)]
        root = compute_root(hashes)
        for index in range(count):
            assert root_from_proof(hashes[index], index, count, make_proof(hashes, index)) == root


@given(st.lists(st.binary(max_size=4), min_size=2, max_size=20, unique=True), st.data())
def test_no_other_leaf_place_or_proof_leads_to_the_root(leaves, data):
    hashes = [hash_leaf(leaf) for leaf in leaves]
    root, count = compute_root(hashes), len(leaves)
    index, other = data.draw(st.permutations(range(count)))[:2]
    proof = make_proof(hashes, index)
    assert root_from_proof(hashes[other], index, count, proof) != root
    assert root_from_proof(hashes[index], other, count, proof) != root
    changed = data.draw(st.integers(0, len(proof) - 1))
    wrong = [bytes(32) if at == changed else each for at, each in enumerate(proof)]
    assert root_from_proof(hashes[index], index, count, wrong) != root
    assert root_from_proof(hashes[index], index, count, proof[:-1]) is None
    assert root_from_proof(hashes[index], index, count, [*proof, root]) is None


@pytest.mark.parametrize(("index", "count"), [(-1, 3), (3, 3), (0, 0), (4, 3), (1, 1)])
def test_a_place_outside_the_tree_has_no_root(index, count):
    assert root_from_proof(bytes(32), index, count, []) is None


def test_a_single_leaf_is_the_root_and_needs_no_proof():
    assert root_from_proof(b"r" * 32, 0, 1, []) == b"r" * 32
    assert root_from_proof(b"r" * 32, 0, 1, [bytes(32)]) is None


def test_a_tree_needs_a_leaf():
    with pytest.raises(ChainError, match="must have a leaf"):
        compute_root([])
    assert make_proof([], 0) == []


def test_the_leaves_are_not_changed():
    hashes = [hash_leaf(bytes([number])) for number in range(5)]
    before = list(hashes)
    compute_root(hashes)
    make_proof(hashes, 3)
    assert hashes == before
