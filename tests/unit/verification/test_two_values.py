"""A second value for one interval convicts its signer, and nothing else does."""

from tests.support.contradictions import convicts, two_values
from tests.support.sample_logs import (
    FIRST,
    OLD,
    UNKNOWN_SIGNER,
    check,
    log,
    resign,
    rules,
)

from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import Tile
from murmurate.verification.shard import prove_contradiction

TABLES = [table.text for table in log().tables.values()]
TILES = [tile.to_bytes() for tile in log().tiles]


def test_two_values_in_two_sources_are_a_proof_that_anyone_can_check():
    one, other = two_values()
    report = check(one.items(), other.items())
    (proof,) = report.proofs
    assert proof.headers == tuple(each.tiles[4].header_line.decode() for each in (one, other))
    assert (proof.key, proof.shard, proof.zone) == (OLD.public_key, "east", "")
    assert proof.contradicts == f"tile 4 and interval {FIRST + 3}"
    assert convicts(proof)
    assert rules(report) == {"two values"}


def test_one_kept_tile_is_enough_to_convict():
    one, other = two_values()
    kept = [*log().items()]
    kept[-8] = one.tiles[4].to_bytes()
    assert [convicts(proof) for proof in check(one.items(), [other.tiles[4].to_bytes()]).proofs] == [True]


def test_two_values_in_one_source_are_a_proof_too():
    one, other = two_values()
    assert convicts(check([*one.items(), other.tiles[4].to_bytes()]).proofs[0])


def test_a_second_release_of_an_interval_under_another_number_is_a_proof():
    one, other = two_values()
    again = resign(other.tiles[4], seq=5, prev=one.tiles[4].hash)
    report = check([*one.items(), again.to_bytes()])
    (proof,) = report.proofs
    assert proof.contradicts == f"interval {FIRST + 3}"
    assert convicts(proof)


def test_a_tile_signed_by_a_stranger_convicts_nobody():
    one, other = two_values()
    forged = resign(other.tiles[4], UNKNOWN_SIGNER, key=UNKNOWN_SIGNER.public_key)
    unsigned = Tile(other.tiles[4].header, "00" * 64, other.tiles[4].rows)
    for tile in (forged, unsigned):
        report = check(one.items(), [tile.to_bytes()])
        assert (report.proofs, rules(report)) == ([], {"forgery"})


def test_two_items_contradict_each_other_only_if_both_are_signed_and_about_one_thing():
    one, other = (each.tiles[4] for each in two_values())
    assert prove_contradiction(one.to_bytes(), other.to_bytes(), verify_signature)
    assert prove_contradiction(one.header_line, other.header_line, verify_signature)
    unsigned = Tile(other.header, "00" * 64, other.rows)
    for tile in (one, unsigned, log().tiles[3], resign(other, shard="west")):
        assert prove_contradiction(one.to_bytes(), tile.to_bytes(), verify_signature) is None
        assert prove_contradiction(tile.to_bytes(), one.to_bytes(), verify_signature) is None
    assert prove_contradiction(one.to_bytes(), b"", verify_signature) is None


def test_a_fork_is_followed_and_each_side_convicts_the_other():
    one, other = (each.release() for each in two_values())
    report = check(one.items(), other.items())
    assert len(report.proofs) == 2
    assert all(convicts(proof) for proof in report.proofs)


def test_a_wholly_wrong_log_is_counted_and_not_kept():
    one, _ = two_values()
    many = [resign(one.tiles[4], lead=n).to_bytes() for n in range(3, 63)]
    report = check(one.items(), many)
    assert len(report.proofs) == 5
    assert len(report.findings) <= 21
