"""Lines of a zone: one zone is followed without any other, through plans and keys."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_logs import follow_line
from tests.support.sample_shards import (
    FIRST,
    NEW_KEY,
    OLD_KEY,
    SIGNERS,
    THREE_ZONES,
    change_plan,
    digest_of,
    open_shard,
    release,
    sample_heads,
    write_tile,
)

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.tile import RowKind, TileKind, row_members, sign_tile
from murmurate.public_log.zone_line import line_table, make_zone_line, parse_zone_line
from murmurate.publisher.desired_state import Change, DesiredState

HEADS = sample_heads()


def lines_of(zone, heads=HEADS):
    return [make_zone_line(head.tile, head.table, zone) for head in heads if zone in head.table.position]


def follow(lines, head=None):
    for line in lines:
        head = follow_line(head, line)
    return head


@pytest.mark.parametrize("zone", ["harbour", "hill", "mill", "zoo"])
def test_a_zone_is_followed_by_its_lines_alone(zone):
    lines = lines_of(zone)
    head = follow(line.to_json() for line in lines)
    last = [each for each in HEADS if zone in each.table.position][-1]
    at = last.table.position[zone]
    assert head.leaf_hashes.tolist() == last.leaf_hashes[at : at + 1].tolist()
    assert head.totals.tolist() == last.totals[:, at : at + 1].tolist()
    assert head.tile.key_in_force == last.tile.key_in_force


def test_a_line_is_read_as_it_was_written():
    for zone in ("harbour", "hill", "mill", "zoo", "quay"):
        for line in lines_of(zone):
            again = parse_zone_line(line.to_json())
            assert (again.to_json(), again.hash) == (line.to_json(), line.hash)
            assert again.rows.tobytes() == line.rows.tobytes()


def test_only_the_part_of_one_zone_is_a_line():
    for part in (lambda tile: tile.to_json(), line_table):
        with pytest.raises(ChainError, match="part of one zone"):
            part(HEADS[1].tile)


def test_a_row_is_shown_in_words():
    members = row_members(lines_of("mill")[1].rows)
    assert (members["kind"], members["noise"]) == ("measured", "huber")
    assert members["scale_wh"] == "1000.0"
    assert members["prev"] == "0" * 64


RELEASE = lines_of("harbour")[1]
MEMBERS = json.loads(RELEASE.to_json())


def _changed(**members):
    return canonical_json(MEMBERS | members)


def _changed_row(**members):
    return _changed(row=MEMBERS["row"] | members)


@pytest.mark.parametrize(
    "text",
    [
        _changed(murmurate_zone=2),
        _changed(more=1),
        _changed(zone="hill"),
        _changed(plan="b" * 64),
        _changed(plan="x"),
        _changed(index=1),
        _changed(index=-1),
        _changed(index=3),
        _changed(index=None),
        _changed(row=None),
        _changed(row=None, index=None),
        _changed(proof=[]),
        _changed(proof=MEMBERS["proof"][::-1]),
        _changed(proof=[*MEMBERS["proof"], "0" * 64]),
        _changed(proof=["x" * 64]),
        _changed(proof=[5]),
        _changed(tile=MEMBERS["tile"] | {"root": "a" * 64}),
        _changed(tile=MEMBERS["tile"] | {"interval": FIRST + 1}),
        _changed(tile=MEMBERS["tile"] | {"kind": "key"}),
        _changed(tile={}),
        _changed_row(price_ticks=MEMBERS["row"]["price_ticks"] + 1),
        _changed_row(price_ticks=float(MEMBERS["row"]["price_ticks"])),
        _changed_row(price_ticks=str(MEMBERS["row"]["price_ticks"])),
        _changed_row(price_ticks=2**63),
        _changed_row(rho_micro=False),
        _changed_row(scale_wh="1e3"),
        _changed_row(scale_wh=1000.0),
        _changed_row(kind="MEASURED"),
        _changed_row(kind=1),
        _changed_row(noise="quiet"),
        _changed_row(prev="0"),
        _changed_row(prev=None),
        _changed_row(more=1),
        canonical_json(MEMBERS | {"row": {name: each for name, each in MEMBERS["row"].items() if name != "core_wh"}}),
        "{}",
        RELEASE.to_json() + " ",
    ],
    ids=range(36),
)
def test_a_line_with_anything_changed_is_refused(text):
    with pytest.raises(ChainError):
        parse_zone_line(text)


RELEASES = [line for line in lines_of("harbour") if len(line.rows)]


@given(st.data())
def test_no_character_of_a_release_can_be_changed(data):
    """The signature is the only thing that `parse_zone_line` does not check. A verifier does."""
    text = data.draw(st.sampled_from(RELEASES)).to_json()
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from('0a{":, x'))
    if other == text[place]:
        return
    try:
        line = parse_zone_line(text[:place] + other + text[place + 1 :])
    except ChainError:
        return
    assert line.hash != parse_zone_line(text).hash


def with_plan(line, plan):
    return replace(line, proof=line.proof._replace(plan=plan))


def test_a_wrong_plan_in_a_line_without_a_row_is_found_with_the_next_row():
    lines = lines_of("harbour")
    head = follow_line(None, with_plan(lines[0], "b" * 64))
    with pytest.raises(ChainError, match="plan"):
        follow_line(head, lines[1])


def test_a_line_without_a_row_has_no_proof():
    members = json.loads(lines_of("harbour")[0].to_json())
    for wrong in ({"proof": ["0" * 64]}, {"index": 0}, {"row": MEMBERS["row"]}):
        with pytest.raises(ChainError):
            parse_zone_line(canonical_json(members | wrong))


def resigned(line, **members):
    header = replace(line.header, **members)
    return replace(sign_tile(header, SIGNERS.get(header.key, OLD_KEY), line.rows), proof=line.proof)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 99),
        ("interval", FIRST + 99),
        ("interval_s", 900),
        ("lead", 9),
        ("prev", "a" * 64),
        ("key", "a" * 64),
        ("table", "a" * 64),
    ],
)
@pytest.mark.parametrize("at", range(1, len(HEADS)))
def test_no_member_of_a_header_can_be_changed(at, field, value):
    lines = lines_of("harbour")
    line = resigned(lines[at], **{field: value})
    if field == "table" and line.header.kind is TileKind.ZONES:
        follow_line(follow(lines[:at]), line)
        return
    with pytest.raises(ChainError):
        follow_line(follow(lines[:at]), line)


def test_a_line_of_another_zone_or_plan_does_not_follow():
    lines = lines_of("harbour")
    with pytest.raises(ChainError, match="zone"):
        follow_line(follow(lines[:1]), lines_of("hill")[1])
    with pytest.raises(ChainError, match="plan"):
        follow_line(follow(lines[:1]), with_plan(lines[1], "b" * 64))


def test_no_line_can_be_left_out_or_repeated():
    lines = lines_of("harbour")
    for at in range(1, len(lines)):
        with pytest.raises(ChainError):
            follow_line(follow(lines[:at]), lines[at - 1])
    for at in range(1, len(lines) - 1):
        with pytest.raises(ChainError):
            follow_line(follow(lines[:at]), lines[at + 1])


@pytest.mark.parametrize(
    ("column", "value"), [("total_epsilon_micro", 5), ("total_rho_micro", 5), ("prev", 5), ("epsilon_micro", -1)]
)
def test_totals_and_hashes_of_a_zone_are_checked(column, value):
    lines = lines_of("harbour")
    rows = lines[2].rows.copy()
    rows[column] = value
    with pytest.raises(ChainError):
        follow_line(follow(lines[:2]), replace(lines[2], rows=rows))


def test_a_zone_begins_where_its_shard_begins_or_changes_its_zones():
    for line in lines_of("harbour"):
        if line.header.kind in {TileKind.OPEN, TileKind.ZONES}:
            assert not follow_line(None, line).leaf_hashes.any()
            continue
        with pytest.raises(ChainError, match="kind"):
            follow_line(None, line)
    first = lines_of("harbour")[0]
    for members in ({"seq": 1}, {"prev": "a" * 64}):
        with pytest.raises(ChainError):
            follow_line(None, resigned(first, **members))


def test_a_zone_does_not_go_on_in_another_shard():
    lines = lines_of("hill", [open_shard(), release(open_shard(), FIRST, hill=500_000)])
    head = follow(lines)
    elsewhere = open_shard({"hill": THREE_ZONES["hill"], "quay": THREE_ZONES["harbour"]}, "south")
    (enters,) = lines_of("hill", [elsewhere])
    (released,) = lines_of("hill", [release(elsewhere, FIRST, shard="south", hill=520_000)])
    for line in (enters, released, resigned(enters, interval=FIRST)):
        with pytest.raises(ChainError, match="shard"):
            follow_line(head, line)


def test_a_plan_and_a_key_change_are_followed():
    heads = [open_shard()]
    heads.append(write_tile(heads[-1], DesiredState(until=0, plan_changes={"hill": change_plan("b", "c")})))
    change = Change(OLD_KEY.public_key, NEW_KEY.public_key)
    heads.append(write_tile(heads[-1], DesiredState(until=0, key_change=change)))
    heads.append(release(heads[-1], FIRST, hill=5))
    lines = lines_of("hill", heads)
    head = follow(lines)
    assert (head.tile.proof.plan, head.tile.key_in_force) == (digest_of("c"), NEW_KEY.public_key)
    assert int(head.last_rows["kind"][0]) == RowKind.MEASURED
    with pytest.raises(ChainError, match="key"):
        follow_line(follow(lines[:3]), resigned(lines[3], key=OLD_KEY.public_key))
