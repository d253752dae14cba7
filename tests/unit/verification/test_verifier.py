"""A right log passes; whatever is changed in its tiles is found."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sample_logs import (
    DIGEST,
    DOCS,
    FIRST,
    NEW,
    OLD,
    OTHER,
    OTHER_DIGEST,
    PLAN,
    UNKNOWN_SIGNER,
    ZONES,
    ShardLog,
    check,
    edit_rows,
    log,
    resign,
    rules,
)

from murmurate.public_log.tile import Tile, TileKind, parse_tile, row_dtype

TABLES = [table.text for table in log().tables.values()]
TILES = [tile.to_bytes() for tile in log().tiles]
COUNT = len(TILES)
FORMS = {  # documents, and items: of a shard, and of one of its zones
    "tiles": ([text.encode() for text in TABLES], TILES),
    "lines": ([], [line.encode() for line in log().lines("hill")]),
}
places = st.integers(0, COUNT - 1)


def test_a_right_log_holds_and_is_summed_up():
    report = check([PLAN, OTHER, *log().items()], plans=())
    assert (report.is_valid, report.is_complete, report.findings, report.proofs) == (True, True, [], [])
    zone = report.zones["harbour"]
    assert zone.kinds == {"measured": 7, "fallback": 1, "withheld": 1}
    assert (zone.first_interval, zone.last_interval, zone.interval_s, zone.records) == (FIRST, FIRST + 8, 3600, 9)
    assert zone.keys == [OLD.public_key, NEW.public_key]
    assert (zone.plans, zone.first_key) == ([DIGEST, OTHER_DIGEST], OLD.public_key)
    spent = sum(int(tile.rows["epsilon_micro"][0]) for tile in log().tiles if len(tile.rows))
    assert zone.total_epsilon_micro == spent
    assert set(report.plans) == {DIGEST, OTHER_DIGEST}
    assert (report.records_by_source, report.tiles_by_source) == ({"source 0": 27}, {"source 0": 12})


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=5 * settings.default.max_examples)
@given(data=st.data())
def test_any_flipped_byte_is_found(form, data):
    documents, items = FORMS[form]
    kept = [*documents, *items]
    which = data.draw(st.integers(0, len(kept) - 1))
    raw = bytearray(kept[which])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    kept[which] = bytes(raw)
    report = check(kept)
    assert not report.is_valid or (form == "lines" and not report.is_complete), "a line may name a plan that is missing"
    assert report.proofs == [], "damage convicts nobody"
    if form == "tiles" and len(documents) <= which < len(kept) - 1:
        last = max(report.zones[zone].last_interval for zone in report.zones)
        assert last == FIRST + 8, "the rest is checked all the same"


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@given(which=places)
def test_an_omitted_item_is_found_unless_it_is_the_last(form, which):
    documents, kept = FORMS[form]
    report = check([*documents, *kept[:which], *kept[which + 1 :]])
    assert ("gap" in rules(report), report.is_valid) == (which < COUNT - 1, which == COUNT - 1)


@pytest.mark.slow
def test_what_is_missing_at_the_end_cannot_be_found_and_the_docs_say_so():
    for length in range(1, COUNT):
        assert check([*TABLES, *TILES[:length]]).is_valid
    page = (DOCS / "how-to" / "verify.md").read_text(encoding="utf-8")
    assert "missing at the end" in page


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=60)
@given(one=places, other=places)
def test_items_in_another_order_or_twice_in_one_source_are_found(form, one, other):
    documents, kept = FORMS[form]
    swapped = list(kept)
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert check([*documents, *swapped]).is_valid == (one == other)
    for again in ([*kept[: one + 1], *kept[one:]], [*kept, kept[one]]):
        assert rules(check([*documents, *again])) == {"repeated"}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@given(which=places)
def test_an_item_that_a_stranger_signed_is_found(form, which):
    tile, (documents, kept) = log().tiles[which], FORMS[form]
    forged = kept[which].replace(tile.signature.encode(), UNKNOWN_SIGNER.sign(tile.header.signed_bytes()).encode())
    assert rules(check([*documents, *kept[:which], forged, *kept[which + 1 :]])) >= {"signature"}
    if form == "lines":  # a source of one tile that releases nothing is read first
        assert rules(check(kept, [forged])) == {"forgery"}


@pytest.mark.slow
@given(which=places, zone=st.integers(0, 2), other=st.integers(0, 2))
def test_exchanged_rows_are_found(which, zone, other):
    tile = parse_tile(TILES[which])
    if not len(tile.rows):
        return
    rows = tile.rows.copy()
    rows[[zone, other]] = rows[[other, zone]]
    kept = [*TILES[:which], Tile(tile.header, tile.signature, rows).to_bytes(), *TILES[which + 1 :]]
    assert check([*TABLES, *kept]).is_valid == (zone == other)


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ("total_epsilon_micro", "total_epsilon_micro"),
        ("total_rho_micro", "total_rho_micro"),
        ("prev", "prev"),
        ("kind", "kind"),
        ("noise", "terms"),
        ("scale_wh", "terms"),
        ("core_wh", "core_wh"),
        ("epsilon_micro", "total_epsilon_micro"),
        ("rho_micro", "rho_micro"),
    ],
)
def test_a_changed_column_is_found_and_its_zone_named_even_if_the_operator_signs_it(column, rule):
    """All but the price follow from the chain and the plan; the price of a measured row nobody can check."""

    def edit(rows):
        rows[column][1] = 7 if column == "kind" else rows[column][1] + 1

    log_ = log().cut(3)
    wrong = log_.release(edit=edit).release()
    report = check(wrong.items())
    found = [finding for finding in report.findings if finding.rule == rule]
    assert {(finding.shard, finding.seq, finding.zone) for finding in found} == {("east", 3, "hill")}
    assert {finding.zone for finding in report.findings} == {"hill"}


@pytest.mark.parametrize("member", ["seq", "interval", "interval_s", "lead", "prev", "key", "table", "count", "root"])
def test_a_changed_header_is_found_even_if_the_operator_signs_it(member):
    tile = log().tiles[3]
    value = getattr(tile.header, member)
    wrong = NEW.public_key if member == "key" else "1" * 64 if isinstance(value, str) else value + 1
    changed = resign(tile, NEW if member == "key" else OLD, **{member: wrong})
    assert not check([*TABLES, *TILES[:3], changed.to_bytes()]).is_valid


@pytest.mark.slow
def test_a_change_that_was_signed_is_found_in_every_kind_of_tile():
    for tile in log().tiles[1:]:
        for kind in set(TileKind) - {tile.header.kind}:
            at = tile.header.seq
            changed = resign(tile, OLD if at < 11 else NEW, kind=kind)
            assert not check([*TABLES, *TILES[:at], changed.to_bytes()]).is_valid


def test_a_missing_zone_table_is_found_once_and_the_signatures_are_still_checked():
    report = check([TABLES[1], *TILES])
    assert [finding.rule for finding in report.findings] == ["table", "gap"]
    assert [finding.rule for finding in check(TILES).findings] == ["table", "table"]
    tile = log().tiles[2]
    second = resign(tile, lead=9)
    assert rules(check(TILES, [second.to_bytes()])) == {"table", "two values"}


def test_shards_may_be_mixed_and_one_zone_chosen():
    west = ShardLog("west", ("mill", "moor")).release(times=3)
    mixed = [item for pair in zip(log().items(), west.items() * 3, strict=False) for item in pair]
    report = check([*log().items(), *west.items()])
    assert report.is_valid
    assert set(report.zones) == {*ZONES, "mill", "moor"}
    assert rules(check(mixed)) == {"repeated"}
    one = check([*log().items(), *west.items()], zones={"moor"})
    assert (list(one.zones), one.is_valid, one.tiles_by_source) == (["moor"], True, {"source 0": 4})

    def edit(rows):
        rows["price_ticks"][1] = 200_001

    wrong = ShardLog("west", ("mill", "moor")).release(edit=edit)
    assert check(wrong.items(), zones={"mill"}).is_valid
    assert not check(wrong.items(), zones={"moor"}).is_valid


def test_the_same_log_twice_is_as_good_as_once():
    report = check(log().items(), log().items(), TILES[3:6])
    assert report.is_valid
    assert report.zones["harbour"].records == 9
    assert report.tiles_by_source == {"source 0": 12, "source 1": 12, "source 2": 3}


def test_a_longer_copy_goes_on_where_the_shorter_ends():
    report = check([*TABLES, *TILES[:6]], log().items())
    assert report.is_valid
    assert report.zones["harbour"].records == 9


def test_a_damaged_copy_is_mended_by_a_second_one():
    """The damage is reported, and what the other copy has in its place is checked."""
    damaged = bytearray(TILES[4])
    damaged[-5] ^= 1
    report = check([*TABLES, *TILES[:4], bytes(damaged), *TILES[5:]], log().items())
    assert {(finding.rule, finding.seq, finding.source) for finding in report.findings} == {
        ("root", 4, "source 0"),
        ("gap", 5, "source 0"),
    }
    assert report.zones["harbour"].records == 9


def test_damage_in_a_second_copy_is_found():
    damaged = bytearray(TILES[4])
    damaged[-5] ^= 1
    report = check(log().items(), [bytes(damaged)])
    assert [(finding.rule, finding.seq, finding.source) for finding in report.findings] == [("root", 4, "source 1")]


def test_the_key_that_opens_a_shard_is_the_one_expected():
    assert check(log().items(), expected_key=OLD.public_key).is_valid
    assert rules(check(log().items(), expected_key=NEW.public_key)) == {"key"}
    assert rules(check(log().lines("hill"), expected_key=UNKNOWN_SIGNER.public_key)) == {"key"}


def test_a_rotation_is_followed_and_only_a_signed_one():
    kept = log().cut(10)
    rotated = kept.rotate()
    not_rotated = kept.release()  # the old key goes on after it was left
    late = resign(not_rotated.tiles[-1], prev=rotated.head.tile.hash, seq=11)
    assert rules(check([*rotated.items(), late.to_bytes()])) == {"key"}
    seized = resign(
        rotated.tiles[-1], UNKNOWN_SIGNER, key=UNKNOWN_SIGNER.public_key, next_key=UNKNOWN_SIGNER.public_key
    )
    assert rules(check([*kept.items(), seized.to_bytes()])) == {"key"}


@pytest.mark.parametrize(
    "junk", ["{", "[" * 100_000, '{"murmurate_plan":1}', "null", '"\\ud800"', "\x00", "\ufffd", b"\xff"]
)
@pytest.mark.parametrize("before", ["", '{"count":', '{"index":', '{"murmurate_zones":'])
def test_whatever_is_no_item_is_a_finding_and_never_a_crash(junk, before):
    item = before.encode() + (junk if isinstance(junk, bytes) else junk.encode())
    report = check([*log().items(), item])
    assert rules(report) == ({"unreadable"} if before != '{"murmurate_zones":' else set()), (
        "a table that no tile names is ignored"
    )


def test_a_later_version_is_not_understood():
    later = TILES[3].replace(b'"murmurate":1', b'"murmurate":2')
    report = check([*TABLES, *TILES[:3], later])
    (finding,) = report.findings
    assert (finding.rule, finding.shard, finding.seq) == ("unreadable", "east", 3)


def test_further_columns_of_a_row_are_hashed_and_skipped():
    kept = log().cut(4)
    tile = kept.release().tiles[-1]
    layout = f"{tile.header.row} second_price:i8"
    rows = np.zeros(3, row_dtype(layout))
    for name in tile.rows.dtype.names:
        rows[name] = tile.rows[name]
    longer = edit_rows(replace_rows(tile, layout, rows), kept.table, lambda _: None, OLD)
    assert check(kept.add(longer).release().items()).is_valid
    damaged = bytearray(longer.to_bytes())
    damaged[-1] ^= 1
    assert rules(check([*kept.items(), bytes(damaged)])) == {"root"}


def replace_rows(tile, layout, rows):
    return Tile(replace(tile.header, row=layout), tile.signature, rows)
