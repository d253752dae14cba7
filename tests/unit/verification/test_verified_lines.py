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
    ZONES,
    F,
    M,
    check,
    log,
    rules,
)

from murmurate.public_log.merkle import compute_root, make_proof
from murmurate.public_log.tile import RowProof, hash_leaves, sign_tile


@pytest.mark.parametrize("zone", ZONES)
def test_the_lines_of_a_zone_give_the_summary_that_its_tiles_give(zone):
    report = check(log().lines(zone))
    assert report.is_valid
    assert report.zones[zone] == check(log().items()).zones[zone]


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
