"""Tiles: the bytes mean one thing, and no byte of them can be changed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_shards import OLD_KEY, sample_heads

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import (
    ROW_LAYOUT,
    NoiseCode,
    RowKind,
    TileHeader,
    TileKind,
    hash_leaves,
    parse_header,
    parse_tile,
    row_dtype,
    sign_tile,
)
from murmurate.public_log.tile_chain import check_next
from murmurate.public_log.zone_table import ZoneRow, ZoneTable

HEADS = sample_heads()
TILES = [head.tile for head in HEADS]


def test_the_sample_holds_every_kind_of_tile_and_row():
    """Public rows, of plans that read no meter, are in test_public_rows."""
    assert {tile.header.kind for tile in TILES} == set(TileKind)
    assert {int(kind) for tile in TILES for kind in tile.rows["kind"]} == set(RowKind) - {RowKind.PUBLIC}
    assert {int(noise) for tile in TILES for noise in tile.rows["noise"]} == set(NoiseCode)


def test_a_tile_is_read_as_it_was_written():
    for tile in TILES:
        again = parse_tile(tile.to_bytes())
        assert (again.header, again.signature, again.hash) == (tile.header, tile.signature, tile.hash)
        assert again.to_bytes() == tile.to_bytes()
        assert again.rows.tobytes() == tile.rows.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("at", range(len(TILES)))
def test_no_byte_of_a_tile_can_be_changed(at):
    body = TILES[at].to_bytes()
    before = HEADS[at - 1] if at else None
    for place in range(len(body)):
        changed = bytearray(body)
        changed[place] ^= 1 << place % 8
        with pytest.raises(ChainError):
            check_next(before, parse_tile(bytes(changed)), HEADS[at].table, verify_signature)


@given(st.data())
def test_no_byte_of_a_tile_can_be_added_or_left_out(data):
    body = data.draw(st.sampled_from(TILES)).to_bytes()
    place = data.draw(st.integers(0, len(body) - 1))
    for changed in (body[:place] + body[place + 1 :], body[:place], body + b"\x00", body[:place] + b"7" + body[place:]):
        with pytest.raises(ChainError):
            _parse_signed(changed)


def _parse_signed(body):
    tile = parse_tile(body)
    if not verify_signature(tile.header.key, tile.header.signed_bytes(), tile.signature):
        raise ChainError("signature", "another", "must be valid")


class FixedSigner:
    public_key = "k"

    def sign(self, message):
        assert message.startswith(b'{"count":1,')
        return "00ff"


def test_the_bytes_of_a_tile_never_change():
    """Golden bytes: whoever has to change them has changed the meaning of every log in the world."""
    rows = np.zeros(1, row_dtype())
    rows[0] = (RowKind.MEASURED, NoiseCode.HUBER, -12, 2000.5, 700, 24_618, 0, 73_854, 5, 9)
    header = TileHeader(
        shard="Zürich 1",
        seq=3,
        kind=TileKind.RELEASE,
        interval=5,
        interval_s=900,
        lead=2,
        table="t",
        count=1,
        root="r",
        prev="v",
        key="k",
    )
    tile = sign_tile(header, FixedSigner(), rows)
    assert tile.header_line.decode() == (
        '{"count":1,"extensions":{},"interval":5,"interval_s":900,"key":"k","kind":"release","lead":2,"murmurate":1,'
        '"next_key":null,"prev":"v","root":"r","row":"kind:u1 noise:u1 price_ticks:i8 scale_wh:f8 core_wh:i8 '
        'epsilon_micro:i8 rho_micro:i8 total_epsilon_micro:i8 total_rho_micro:i8 prev:h32","seq":3,'
        '"shard":"Zürich 1","signature":"00ff","table":"t"}'
    )
    columns = (
        "01",
        "02",
        "f4ffffffffffffff",
        "0000000000429f40",
        "bc02000000000000",
        "2a60000000000000",
        "0000000000000000",
        "7e20010000000000",
        "0500000000000000",
        "09" * 32,
    )
    assert tile.rows.tobytes().hex() == "".join(columns)
    table = ZoneTable.from_rows([ZoneRow("Zürich 1", "ab" * 32, "CHF", "1/1000", 5)])
    assert hash_leaves(table, 5, rows)[0].hex() == GOLDEN_LEAF
    assert tile.hash == GOLDEN_HASH


GOLDEN_LEAF = "6f69d3867b70904cc93450023bb3263577b3d3e626f3b5112d06a24bda1d52d7"
GOLDEN_HASH = "01ff1d247d3a4a3c8466f60010fa8fb7bfdad6efedad87a8f88d21cb10881cda"


def _line(**members):
    return canonical_json(json.loads(TILES[1].header_line) | members)


@pytest.mark.parametrize(
    "line",
    [
        _line(murmurate=2),
        _line(more=1),
        _line(kind="price"),
        _line(interval_s=0),
        _line(lead=-1),
        _line(lead=10**6 + 1),
        _line(interval=2**62),
        _line(interval=-(2**62)),
        _line(seq="1"),
        _line(seq=True),
        _line(seq=1.0),
        _line(next_key=1),
        _line(extensions=[]),
        _line(signature=None),
        "{}",
        "",
    ],
    ids=range(16),
)
def test_a_line_that_is_not_a_header_is_refused(line):
    with pytest.raises(ChainError):
        parse_header(line)


def test_limits_of_a_header_are_inside():
    for members in ({"lead": 0}, {"lead": 10**6}, {"interval_s": 1}, {"interval": 2**62 - 1}, {"interval": 1 - 2**62}):
        header, _ = parse_header(_line(**members))
        assert {name: getattr(header, name) for name in members} == members


@pytest.mark.parametrize(
    "layout",
    [
        "",
        ROW_LAYOUT[:-1],
        ROW_LAYOUT + " ",
        ROW_LAYOUT + " more",
        ROW_LAYOUT + " more:u2",
        ROW_LAYOUT + " :u1",
        ROW_LAYOUT + " a b:u1",
        ROW_LAYOUT + " kind:u1",
        ROW_LAYOUT + " more:u1 more:u1",
        "more:u1 " + ROW_LAYOUT,
    ],
    ids=range(10),
)
def test_a_row_with_other_columns_is_refused(layout):
    with pytest.raises(ChainError):
        row_dtype(layout)


def test_further_columns_are_hashed_and_skipped():
    dtype = row_dtype(ROW_LAYOUT + " second_price:i8 proof:h32")
    assert dtype.itemsize == 90 + 8 + 32
    rows = np.zeros(1, dtype)
    rows["second_price"] = 5
    header = replace(TILES[1].header, count=1, row=ROW_LAYOUT + " second_price:i8 proof:h32")
    tile = parse_tile(sign_tile(header, OLD_KEY, rows).to_bytes())
    assert tile.rows["second_price"][0] == 5
    table = ZoneTable.from_rows([ZoneRow("a", "a" * 64, "EUR", "1/1000", 5)])
    leaf = hash_leaves(table, 5, rows)
    rows["second_price"] = 6
    assert hash_leaves(table, 5, rows) != leaf


def test_the_key_in_force_is_the_next_key_where_there_is_one():
    for tile in TILES:
        assert tile.key_in_force == (tile.header.next_key or tile.header.key)
