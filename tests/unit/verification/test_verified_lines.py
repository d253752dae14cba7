"""The lines of one zone are as good as all tiles."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.contradictions import convicts, two_values
from tests.support.sample_logs import (
    DIGEST,
    FIRST,
    OLD,
    OTHER_DIGEST,
    UNKNOWN_SIGNER,
    ZONES,
    F,
    M,
    check,
    log,
    rules,
)

from murmurate.public_log.merkle import compute_root, make_proof
from murmurate.public_log.tile import RowProof, hash_leaves, sign_tile

TILES = [tile.to_bytes() for tile in log().tiles]
COUNT = len(TILES)
places = st.integers(0, COUNT - 1)


@pytest.mark.slow
@given(which=places, zone=st.sampled_from(ZONES))
def test_the_lines_of_a_zone_hold_and_an_omitted_one_is_found(which, zone):
    kept = log().lines(zone)
    report = check(kept)
    assert report.is_valid
    assert report.zones[zone] == replace(check(log().items()).zones[zone])
    report = check([*kept[:which], *kept[which + 1 :]])
    assert report.is_valid == (which == COUNT - 1)


@pytest.mark.slow
@given(which=places)
def test_a_line_that_a_stranger_signed_is_found(which):
    kept = log().lines("hill")
    tile = log().tiles[which]
    kept[which] = kept[which].replace(tile.signature, UNKNOWN_SIGNER.sign(tile.header.signed_bytes()))
    assert rules(check(kept)) >= {"signature"}
    forged = [kept[which]]
    assert rules(check(log().lines("hill"), forged)) == {"forgery"}


@pytest.mark.slow
@settings(max_examples=200)
@given(data=st.data())
def test_any_flipped_byte_of_a_line_is_found(data):
    kept = [line.encode() for line in log().lines("hill")]
    which = data.draw(places)
    raw = bytearray(kept[which])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    kept[which] = bytes(raw)
    report = check(kept)
    assert not (report.is_valid and report.is_complete)
    assert report.proofs == []


@pytest.mark.slow
@settings(max_examples=40)
@given(one=places, other=places)
def test_lines_in_another_order_or_twice_are_found(one, other):
    kept = log().lines("hill")
    kept[one], kept[other] = kept[other], kept[one]
    assert check(kept).is_valid == (one == other)
    assert rules(check([*log().lines("hill"), kept[one]])) == {"repeated"}


COLUMNS = ["kind", "noise", "price_ticks", "scale_wh", "core_wh", "epsilon_micro", "total_epsilon_micro", "prev"]


@pytest.mark.slow
@settings(max_examples=80)
@given(zone=st.integers(0, 2), column=st.sampled_from(COLUMNS), by=st.integers(-3, 3), kinds=st.sampled_from([M, F]))
def test_the_view_of_a_zone_is_accepted_if_and_only_if_its_tiles_are(zone, column, by, kinds):
    """Whatever the operator signs: a resident with the lines of the zone sees what a reader of all tiles sees."""

    def edit(rows):
        rows[column][zone] = np.clip(rows[column][zone].astype(float) + by, 0, 255 if column != "price_ticks" else 1e6)

    changed = log().cut(4).release(kinds, edit=edit)
    report = check(changed.items())
    wrong = {finding.zone for finding in report.findings}
    assert wrong <= {ZONES[zone]}
    for at, name in enumerate(ZONES):
        try:
            lines = changed.lines(name)
        except ValueError:  # a kind or noise that has no name cannot be written as a line
            assert at == zone
            assert not report.is_valid
            continue
        assert check(lines).is_valid == (name not in wrong)


@pytest.mark.slow
def test_lines_are_compared_with_tiles():
    assert check(log().items(), log().lines("hill"), log().lines("harbour")[3:5]).is_valid
    report = check(log().cut(6).items(), log().lines("hill"))
    assert report.findings == []
    assert report.zones["hill"].records == 9
    one, other = two_values()
    report = check(one.items(), [other.lines("hill")[4]])
    assert rules(report) == {"two values"}
    assert [convicts(proof) for proof in report.proofs] == [True]
    report = check([other.lines("hill")[4]], one.items())
    assert [convicts(proof) for proof in report.proofs] == [True]


def test_a_kept_line_against_the_lines_of_another_zone_convicts():
    """Two neighbours in one shard compare what they were shown."""
    one, other = two_values()
    report = check(one.lines("hill"), other.lines("harbour"))
    assert rules(report) == {"two values"}
    assert [convicts(proof) for proof in report.proofs] == [True]


def test_a_line_under_another_plan_than_the_zone_table_is_found():
    line = json.loads(log().lines("hill")[0]) | {"plan": OTHER_DIGEST}
    text = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert rules(check(log().items(), [text])) == {"plan"}


def test_two_rows_for_one_zone_in_one_tile_convict():
    """One header, two proofs: what a table would not allow, two residents who compare their lines can see."""
    kept = log().cut(4)
    tile, table = kept.release().tiles[-1], kept.table
    rows = tile.rows.copy()
    rows["price_ticks"][1] = 7
    leaves = [*hash_leaves(table, tile.header.interval, tile.rows), hash_leaves(table, tile.header.interval, rows)[1]]
    header = replace(tile.header, root=compute_root(leaves).hex(), count=4)
    texts = []
    for at, row in ((1, tile.rows[1:2]), (3, rows[1:2])):
        proof = RowProof("hill", DIGEST, at, tuple(each.hex() for each in make_proof(leaves, at)))
        texts.append(replace(sign_tile(header, OLD, row), proof=proof).to_json())
    report = check([*kept.lines("hill"), texts[0]], [*kept.lines("hill"), texts[1]])
    assert rules(report) == {"two values"}
    (proof,) = report.proofs
    assert (proof.zone, proof.lines, proof.contradicts) == ("hill", tuple(texts), f"interval {FIRST + 3}")
