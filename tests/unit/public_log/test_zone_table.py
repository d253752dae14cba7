"""Zone tables: sorted, each zone once and in one place, digests and numbers that fit, one text for one table."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json, compute_digest
from murmurate.public_log.zone_table import MAX_ZONES, NO_LEAF, MovedFrom, ZoneRow, ZoneTable, zone_prefix

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NAMES = st.text("abé ß/", min_size=1, max_size=8)
NUMBERS = st.integers(-(2**62) + 2, 2**62 - 1)
STARTS = st.builds(MovedFrom, NAMES, NUMBERS, DIGESTS, st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1))
ROWS = st.builds(ZoneRow, NAMES, DIGESTS, st.just("EUR"), st.just("1/1000"), NUMBERS, st.none() | STARTS)


@st.composite
def tables(draw):
    rows = draw(st.lists(ROWS, min_size=1, max_size=6, unique_by=lambda row: row.zone))
    names = {row.zone for row in rows}
    moved = draw(st.dictionaries(NAMES.filter(lambda name: name not in names), NAMES, max_size=3))
    return ZoneTable.from_rows(rows, moved)


@given(tables())
def test_a_table_is_read_as_it_was_written(table):
    again = ZoneTable.from_json(table.text)
    assert again == table
    assert again.text == table.text
    assert table.digest == compute_digest(table.text)
    assert table.text == canonical_json(json.loads(table.text))


@given(tables())
def test_a_zone_is_found_by_its_name(table):
    assert list(table.zones) == sorted(table.zones)
    assert len(table) == len(table.rows)
    for at, row in enumerate(table.rows):
        assert table.position[row.zone] == at
        assert table.find_row(row.zone) is row
        assert table.leaf_prefixes[at] == b"\x00" + zone_prefix(row.zone, row.plan)
    for name in ("", "missing", "~"):
        assert table.find_row(name) is None


ROW = ZoneRow("b", "a" * 64, "EUR", "1/1000", 5)
START = MovedFrom("south", 4, "b" * 64, 7, 8)
TABLE = ZoneTable.from_rows([ROW, ROW._replace(zone="c", moved_from=START)], {"a": "south"})


def test_where_a_chain_stands_before_its_first_row():
    assert ROW.start == MovedFrom("", 4, NO_LEAF, 0, 0)
    assert ROW._replace(moved_from=START).start == START


@pytest.mark.parametrize(
    ("rows", "moved"),
    [
        ([], {}),
        ([ROW] * 2, {}),
        ([ROW], {"b": "south"}),
        ([ROW._replace(zone="")], {}),
        ([ROW._replace(zone="é" * 101)], {}),
        ([ROW], {"": "south"}),
        ([ROW], {"z" * 201: "south"}),
        ([ROW._replace(plan="a" * 63)], {}),
        ([ROW._replace(plan="A" * 64)], {}),
        ([ROW._replace(moved_from=START._replace(leaf="x" * 64))], {}),
        ([ROW._replace(since=2**62)], {}),
        ([ROW._replace(since=-(2**62))], {}),
        ([ROW._replace(moved_from=START._replace(interval=-(2**62)))], {}),
        ([ROW._replace(moved_from=START._replace(total_epsilon_micro=2**62))], {}),
        ([ROW._replace(moved_from=START._replace(total_rho_micro=2**63))], {}),
        ([ROW._replace(zone=f"{number:04}") for number in range(MAX_ZONES + 1)], {}),
    ],
    ids=range(16),
)
def test_a_table_that_breaks_a_rule_is_refused(rows, moved):
    with pytest.raises(ChainError):
        ZoneTable.from_rows(rows, moved)
    text = ZoneTable(tuple(rows), tuple(moved.items())).text
    with pytest.raises(ChainError):
        ZoneTable.from_json(text)


def test_a_full_table_is_accepted():
    assert len(ZoneTable.from_rows([ROW._replace(zone=f"{number:04}") for number in range(MAX_ZONES)])) == MAX_ZONES
    longest = "é" * 100
    assert ZoneTable.from_rows([ROW._replace(zone=longest)]).zones == (longest,)


def _changed(**members):
    return canonical_json(json.loads(TABLE.text) | members)


def _changed_row(**members):
    first, second = json.loads(TABLE.text)["zones"]
    return _changed(zones=[first, second | members])


@pytest.mark.parametrize(
    "text",
    [
        _changed(murmurate_zones=2),
        _changed(murmurate_zones=True),
        _changed(moved=[]),
        _changed(moved={"a": 5}),
        _changed(zones={}),
        _changed(zones=["a"]),
        _changed(zones=json.loads(TABLE.text)["zones"][::-1]),
        _changed(more=1),
        _changed_row(since="5"),
        _changed_row(since=True),
        _changed_row(plan=5),
        _changed_row(more=5),
        _changed_row(moved_from={}),
        _changed_row(moved_from={**START._asdict(), "leaf": None}),
        _changed_row(moved_from={**START._asdict(), "interval": 4.0}),
        TABLE.text + "\n",
        TABLE.text.replace(":", ": "),
    ],
    ids=range(17),
)
def test_a_text_that_is_not_a_table_is_refused(text):
    with pytest.raises(ChainError):
        ZoneTable.from_json(text)


def test_zone_and_plan_cannot_be_told_apart_wrongly():
    """The length of the name comes first: no other zone and plan have the same bytes."""
    assert zone_prefix("é", "ab" * 32) == b"\x02\x00" + "é".encode() + b"\xab" * 32
