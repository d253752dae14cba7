"""Zone tables: sorted, each zone once, digests and numbers that fit, one text for one table."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json, compute_digest
from murmurate.public_log.zone_table import MAX_ZONES, ZoneRow, ZoneTable, zone_prefix

DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
NAMES = st.text("abé ß/", min_size=1, max_size=8)
NUMBERS = st.integers(-(2**62) + 2, 2**62 - 1)
ROWS = st.builds(ZoneRow, NAMES, DIGESTS, st.just("EUR"), st.just("1/1000"), NUMBERS)


@st.composite
def tables(draw):
    rows = draw(st.lists(ROWS, min_size=1, max_size=6, unique_by=lambda row: row.zone))
    return ZoneTable.from_rows(rows)


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
TABLE = ZoneTable.from_rows([ROW, ROW._replace(zone="c")])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [ROW] * 2,
        [ROW._replace(zone="")],
        [ROW._replace(zone="é" * 101)],
        [ROW._replace(plan="a" * 63)],
        [ROW._replace(plan="A" * 64)],
        [ROW._replace(since=2**62)],
        [ROW._replace(since=-(2**62))],
        [ROW._replace(zone=f"{number:04}") for number in range(MAX_ZONES + 1)],
    ],
    ids=range(9),
)
def test_a_table_that_breaks_a_rule_is_refused(rows):
    with pytest.raises(ChainError):
        ZoneTable.from_rows(rows)
    text = ZoneTable(tuple(rows)).text
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
        _changed(zones={}),
        _changed(zones=["a"]),
        _changed(zones=json.loads(TABLE.text)["zones"][::-1]),
        _changed(more=1),
        _changed_row(since="5"),
        _changed_row(since=True),
        _changed_row(plan=5),
        _changed_row(more=5),
        _changed_row(since=5.0),
        TABLE.text + "\n",
        TABLE.text.replace(":", ": "),
    ],
    ids=range(13),
)
def test_a_text_that_is_not_a_table_is_refused(text):
    with pytest.raises(ChainError):
        ZoneTable.from_json(text)


def test_zone_and_plan_cannot_be_told_apart_wrongly():
    """The length of the name comes first: no other zone and plan have the same bytes."""
    assert zone_prefix("é", "ab" * 32) == b"\x02\x00" + "é".encode() + b"\xab" * 32
