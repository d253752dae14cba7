"""The rules of a shard: every tile of the writer follows, and each rule refuses what breaks it, even signed."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support.sample_shards import (
    FIRST,
    NEW_KEY,
    OLD_KEY,
    SIGNERS,
    make_demand,
    open_shard,
    open_zone,
    release,
    sample_heads,
    write_tile,
)

from murmurate.errors import ChainError
from murmurate.public_log.make_tile import change_zones, release_interval
from murmurate.public_log.make_tile import open_shard as make_first_tile
from murmurate.public_log.merkle import compute_root
from murmurate.public_log.signing import verify_signature
from murmurate.public_log.tile import NO_ROOT, NoiseCode, RowKind, TileKind, hash_leaves, row_dtype, sign_tile
from murmurate.public_log.tile_chain import (
    begin_after_archive,
    begin_with_release,
    check_follows,
    check_next,
    rebuild_head,
    tile_label,
)
from murmurate.public_log.zone_table import ZoneTable
from murmurate.publisher.desired_state import DesiredState

HEADS = sample_heads()
KINDS = [head.tile.header.kind for head in HEADS]


def before(at):
    return HEADS[at - 1] if at else None


def resign(header, rows=None):
    """Return the tile as its own signer would publish it: only the rules of the chain can refuse it."""
    return sign_tile(header, SIGNERS.get(header.key, OLD_KEY), rows)


def test_every_tile_of_the_writer_follows_the_one_before():
    for at, head in enumerate(HEADS):
        again = check_next(before(at), head.tile, head.table, verify_signature)
        assert again.tile is head.tile
        assert again.leaf_hashes.tolist() == head.leaf_hashes.tolist()
        assert again.totals.tolist() == head.totals.tolist()


def test_a_head_is_rebuilt_from_the_last_release_or_the_first_tile():
    tables = {head.table.digest: head.table for head in HEADS}
    for end in range(1, len(HEADS) + 1):
        for start in range(end):
            if start and KINDS[start] is not TileKind.RELEASE:
                continue
            again = rebuild_head([head.tile for head in HEADS[start:end]], tables)
            assert again.tile is HEADS[end - 1].tile
            assert again.leaf_hashes.tolist() == HEADS[end - 1].leaf_hashes.tolist()
            assert again.totals.tolist() == HEADS[end - 1].totals.tolist()
            assert again.interval == HEADS[end - 1].interval


RELEASES = [at for at, kind in enumerate(KINDS) if kind is TileKind.RELEASE]


def kept_before(at):
    """The tiles that stay in a log whose releases before number `at` are archived."""
    return [head.tile for head in HEADS[:at] if head.tile.header.kind is not TileKind.RELEASE]


@pytest.mark.parametrize("at", RELEASES)
def test_a_chain_goes_on_after_an_archive_as_if_nothing_had_left(at):
    head = HEADS[at]
    for again in (
        begin_after_archive(kept_before(at), head.tile, head.table, verify_signature),
        begin_with_release(head.tile, head.table, verify_signature),
    ):
        assert again.tile is head.tile
        assert again.leaf_hashes.tolist() == head.leaf_hashes.tolist()
        assert again.totals.tolist() == head.totals.tolist()
        assert again.last_rows.tobytes() == head.last_rows.tobytes()


LAST = RELEASES[-1]
FIRST_TILE, *_, KEY_TILE = KEPT = kept_before(LAST)


@pytest.mark.parametrize(
    ("kept", "word"),
    [
        ([], "first tile"),
        (KEPT[1:], "first tile"),
        ([resign(replace(FIRST_TILE.header, seq=1)), *KEPT[1:]], "first tile"),
        (KEPT[:-1], "key"),
        ([*KEPT, resign(replace(KEY_TILE.header, key=NEW_KEY.public_key, next_key=OLD_KEY.public_key))], "key"),
        ([*KEPT[:-1], sign_tile(KEY_TILE.header, NEW_KEY)], "signature"),
        ([sign_tile(FIRST_TILE.header, NEW_KEY), *KEPT[1:]], "signature"),
        *(
            ([resign(replace(FIRST_TILE.header, **{name: value})), *KEPT[1:]], name)
            for name, value in (("shard", "south"), ("interval_s", 1), ("lead", 9))
        ),
    ],
)
def test_a_key_that_was_not_handed_on_from_the_first_tile_is_refused(kept, word):
    assert KEY_TILE.header.kind is TileKind.KEY
    with pytest.raises(ChainError, match=word):
        begin_after_archive(kept, HEADS[LAST].tile, HEADS[LAST].table, verify_signature)


def test_a_release_without_its_predecessors_must_be_one_with_the_rows_that_were_signed():
    tile, table = HEADS[LAST].tile, HEADS[LAST].table
    broken = tile.rows.copy()
    broken["price_ticks"][0] += 1
    unknown = tile.rows.copy()
    unknown["kind"][0] = 9
    root = compute_root(hash_leaves(table, tile.header.interval, unknown)).hex()
    cases = {
        "signature": (sign_tile(tile.header, OLD_KEY, tile.rows), table),
        "kind": (HEADS[LAST - 2].tile, HEADS[LAST - 2].table),
        "table": (tile, HEADS[0].table),
        "count": (resign(replace(tile.header, count=len(table) - 1), tile.rows[:-1]), table),
        "root": (resign(tile.header, broken), table),
        "must be measured": (resign(replace(tile.header, root=root), unknown), table),
    }
    for word, (each, its_table) in cases.items():
        with pytest.raises(ChainError, match=word):
            begin_with_release(each, its_table, verify_signature)


def test_a_tile_that_its_key_has_not_signed_is_refused():
    for at, head in enumerate(HEADS):
        forged = sign_tile(head.tile.header, NEW_KEY if head.tile.header.key == OLD_KEY.public_key else OLD_KEY)
        with pytest.raises(ChainError, match="signature"):
            check_next(before(at), replace(forged, rows=head.tile.rows), head.table, verify_signature)


OTHERS = {
    "shard": ["", "south"],
    "seq": [-1, 0, 1, 50],
    "kind": list(TileKind),
    "interval": [-1, 0, FIRST - 2, FIRST - 1, FIRST, FIRST + 1, FIRST + 9],
    "interval_s": [1, 900],
    "lead": [0, 3],
    "table": ["", "0" * 64, *(head.table.digest for head in HEADS)],
    "count": [0, 1, 4],
    "root": [NO_ROOT, "a" * 64],
    "prev": ["", "0" * 64, HEADS[0].tile.hash],
    "key": ["", NEW_KEY.public_key, OLD_KEY.public_key],
    "next_key": [None, "", NEW_KEY.public_key, OLD_KEY.public_key],
}


@pytest.mark.parametrize("at", range(len(HEADS)), ids=[f"{n}-{kind}" for n, kind in enumerate(KINDS)])
@pytest.mark.parametrize("field", OTHERS)
def test_no_member_of_a_header_can_be_changed_even_by_its_signer(at, field):
    """Only what a signer may choose freely passes: how a shard begins, and the next key."""
    head = HEADS[at]
    header = head.tile.header
    for other in OTHERS[field]:
        if other == getattr(header, field) or _is_free(header.kind, field, other):
            continue
        with pytest.raises(ChainError):
            check_follows(before(at), resign(replace(header, **{field: other}), head.tile.rows), head.table)


def _is_free(kind, field, other):
    if kind is TileKind.OPEN:
        return field in {"shard", "interval_s", "lead", "key"}
    return kind is TileKind.KEY and field == "next_key" and other is not None


def test_a_table_that_is_not_the_one_of_the_header_is_refused():
    for at, head in enumerate(HEADS):
        other = next(each.table for each in HEADS if each.table.digest != head.table.digest)
        with pytest.raises(ChainError):
            check_follows(before(at), head.tile, other)


def test_only_a_tile_that_changes_zones_has_another_table():
    for at, head in enumerate(HEADS[1:], 1):
        table = ZoneTable.from_rows([head.table.rows[0]._replace(plan="9" * 64), *head.table.rows[1:]])
        tile = resign(replace(head.tile.header, table=table.digest), head.tile.rows)
        if head.tile.header.kind is TileKind.ZONES:
            check_follows(before(at), tile, table)
            continue
        with pytest.raises(ChainError, match="table"):
            check_follows(before(at), tile, table)


def test_a_shard_begins_with_its_first_tile_and_has_no_second_one():
    first = HEADS[0]
    with pytest.raises(ChainError, match="opens a shard that is open already"):
        check_follows(first, resign(replace(first.tile.header, seq=1, prev=first.tile.hash)), first.table)
    for head in HEADS[1:]:
        with pytest.raises(ChainError):
            check_follows(None, head.tile, head.table)


# Rows

RELEASED = KINDS.index(TileKind.RELEASE)
HEAD, TILE, TABLE = HEADS[RELEASED - 1], HEADS[RELEASED].tile, HEADS[RELEASED].table
HARBOUR, HILL, MILL = range(3)  # laplace, gaussian and huber noise


def with_cell(column, at, value):
    """Return the release with another value in one row, and totals and a root that fit it."""
    rows = TILE.rows.copy()
    rows[column][at] = value
    return release_interval(HEAD, rows, OLD_KEY)


def test_the_sample_release_follows():
    assert np.unique(TILE.rows["kind"]).tolist() == [RowKind.MEASURED]
    assert TILE.rows["noise"].tolist() == [NoiseCode.LAPLACE, NoiseCode.GAUSSIAN, NoiseCode.HUBER]
    check_follows(HEAD, release_interval(HEAD, TILE.rows, OLD_KEY), TABLE)


REFUSED = {
    ("kind", HARBOUR): (0, 4, 255, RowKind.FALLBACK, RowKind.WITHHELD),
    ("noise", HARBOUR): (NoiseCode.NONE, 4, 255, NoiseCode.GAUSSIAN),
    ("noise", HILL): (NoiseCode.LAPLACE, NoiseCode.HUBER),
    ("noise", MILL): (NoiseCode.LAPLACE, NoiseCode.GAUSSIAN),
    ("scale_wh", HILL): (0.0, -1.0, np.nan, np.inf),
    ("core_wh", HARBOUR): (1,),
    ("core_wh", HILL): (1,),
    ("core_wh", MILL): (-1,),
    ("epsilon_micro", HARBOUR): (-1,),
    ("epsilon_micro", HILL): (1,),
    ("rho_micro", HILL): (-1,),
    ("rho_micro", HARBOUR): (1,),
    ("rho_micro", MILL): (1,),
}


@pytest.mark.parametrize(
    ("column", "at", "value"), [(*place, value) for place, values in REFUSED.items() for value in values]
)
def test_a_row_that_its_kind_does_not_allow_is_refused(column, at, value):
    with pytest.raises(ChainError):
        check_follows(HEAD, with_cell(column, at, value), TABLE)


@pytest.mark.parametrize(
    ("column", "at", "value"),
    [
        ("price_ticks", HARBOUR, -(2**63)),
        ("noise", HARBOUR, NoiseCode.HUBER),
        ("scale_wh", HILL, 0.5),
        ("core_wh", MILL, 0),
        ("epsilon_micro", MILL, 0),
        ("epsilon_micro", HARBOUR, 2**63 - 1),
        ("rho_micro", HILL, 0),
    ],
)
def test_a_row_may_hold_what_its_kind_allows(column, at, value):
    check_follows(HEAD, with_cell(column, at, value), TABLE)


@pytest.mark.parametrize("kind", [RowKind.FALLBACK, RowKind.WITHHELD])
@pytest.mark.parametrize(
    ("column", "value"),
    [("noise", 1), ("scale_wh", 0.5), ("core_wh", 1), ("epsilon_micro", 1), ("rho_micro", 1), ("price_ticks", 5)],
)
def test_a_row_that_measures_nothing_has_no_noise_and_no_cost(kind, column, value):
    rows = np.zeros(3, row_dtype())
    rows["kind"] = kind
    check_follows(HEAD, release_interval(HEAD, rows, OLD_KEY), TABLE)
    rows[column][1] = value
    if (kind, column) == (RowKind.FALLBACK, "price_ticks"):
        check_follows(HEAD, release_interval(HEAD, rows, OLD_KEY), TABLE)
        return
    with pytest.raises(ChainError):
        check_follows(HEAD, release_interval(HEAD, rows, OLD_KEY), TABLE)


@pytest.mark.parametrize(
    ("right", "column", "words"),
    [
        (
            {"kind": RowKind.MEASURED, "noise": NoiseCode.LAPLACE, "scale_wh": 2.0},
            "noise",
            "laplace, huber or gaussian",
        ),
        ({"kind": RowKind.WITHHELD}, "kind", "kind"),
    ],
)
@pytest.mark.parametrize("code", [0, 5, 255])
def test_a_kind_or_noise_that_is_not_known_is_refused_even_where_it_costs_nothing(right, column, words, code):
    rows = np.zeros(3, row_dtype())
    for name, value in right.items():
        rows[name] = value
    check_follows(HEAD, release_interval(HEAD, rows, OLD_KEY), TABLE)
    rows[column][1] = code
    with pytest.raises(ChainError, match=words):
        check_follows(HEAD, release_interval(HEAD, rows, OLD_KEY), TABLE)


@pytest.mark.parametrize(
    ("column", "at", "value"),
    [
        ("total_epsilon_micro", HARBOUR, 999),
        ("total_epsilon_micro", HILL, 1),
        ("total_rho_micro", HILL, 999),
        ("total_rho_micro", HARBOUR, 1),
        ("prev", MILL, 1),
    ],
)
def test_totals_and_hashes_follow_the_row_before(column, at, value):
    following = release_interval(HEADS[RELEASED], TILE.rows, OLD_KEY)
    check_follows(HEADS[RELEASED], following, TABLE)
    rows = following.rows.copy()
    rows[column][at] = value
    root = compute_root(hash_leaves(TABLE, following.header.interval, rows)).hex()
    with pytest.raises(ChainError, match=column):
        check_follows(HEADS[RELEASED], resign(replace(following.header, root=root), rows), TABLE)


@pytest.mark.parametrize(("column", "at"), [("epsilon_micro", HARBOUR), ("epsilon_micro", MILL), ("rho_micro", HILL)])
def test_nothing_is_paid_back(column, at):
    last = HEADS[RELEASED]
    rows = TILE.rows.copy()
    rows[column][at] = -1
    tile = release_interval(last, rows, OLD_KEY)
    assert tile.rows[f"total_{column}"][at] > 0
    with pytest.raises(ChainError, match="never negative"):
        check_follows(last, tile, TABLE)


def test_a_root_over_other_leaves_is_refused():
    leaves = hash_leaves(TABLE, TILE.header.interval, TILE.rows)
    roots = [
        compute_root(leaves[:-1]),
        compute_root(leaves[::-1]),
        compute_root([*leaves, leaves[-1]]),
        compute_root(hash_leaves(TABLE, TILE.header.interval + 1, TILE.rows)),
        compute_root(hash_leaves(HEADS[3].table, TILE.header.interval, TILE.rows)),
    ]
    for root in roots:
        with pytest.raises(ChainError, match="root"):
            check_follows(HEAD, resign(replace(TILE.header, root=root.hex()), TILE.rows), TABLE)


def test_a_total_that_overflows_is_refused():
    large = with_cell("epsilon_micro", HARBOUR, 2**63 - 1)
    head = check_follows(HEAD, large, TABLE)
    again = release_interval(head, TILE.rows, OLD_KEY)
    assert again.rows["total_epsilon_micro"][HARBOUR] < 0
    with pytest.raises(ChainError, match="total_epsilon_micro"):
        check_follows(head, again, TABLE)


def test_an_error_names_the_zone_and_the_tile():
    with pytest.raises(ChainError, match="hill"):
        check_follows(HEAD, with_cell("rho_micro", HILL, -1), TABLE)
    assert tile_label(TILE) == "tile 1 of north"


# Zone tables


def replaced(zone, **members):
    return [row._replace(**members) if row.zone == zone else row for row in TABLE.rows]


def check_table(table):
    return check_follows(HEADS[RELEASED], change_zones(HEADS[RELEASED], table, OLD_KEY), table)


NEW = TABLE.rows[0]._replace(zone="quay", since=FIRST + 1)


@pytest.mark.parametrize(
    "table",
    [
        ZoneTable.from_rows(TABLE.rows[1:]),
        ZoneTable.from_rows(replaced("hill", since=FIRST + 1)),
        ZoneTable.from_rows(replaced("hill", tick="1/7")),
        ZoneTable.from_rows(replaced("hill", currency="XXX")),
        ZoneTable.from_rows([*TABLE.rows, NEW._replace(since=FIRST)]),
        ZoneTable.from_rows([*TABLE.rows, NEW._replace(since=FIRST + 2)]),
    ],
    ids=range(6),
)
def test_a_table_that_changes_what_must_stay_is_refused(table):
    with pytest.raises(ChainError):
        check_table(table)


def test_a_table_may_open_zones_and_change_plans():
    rows = replaced("hill", plan="a" * 64, tick="1/7", currency="XXX")
    head = check_table(ZoneTable.from_rows([*rows, NEW._replace(zone="hut")]))
    last = HEADS[RELEASED]
    assert head.table.zones == ("harbour", "hill", "hut", "mill")
    stays = [0, 1, 3]
    assert head.leaf_hashes[stays].tolist() == last.leaf_hashes.tolist()
    assert head.totals[:, stays].tolist() == last.totals.tolist()
    assert not head.leaf_hashes[2].any()
    assert not head.totals[:, 2].any()


def test_the_zones_of_a_first_tile_begin_in_the_next_interval():
    row = TABLE.rows[0]
    for since in (FIRST - 1, FIRST + 1, FIRST):
        table = ZoneTable.from_rows([row._replace(since=since)])
        tile = make_first_tile("s", table, interval=FIRST - 1, interval_s=900, lead=0, signer=OLD_KEY)
        if since != FIRST:
            with pytest.raises(ChainError):
                check_follows(None, tile, table)
    head = check_follows(None, tile, table)
    assert head.totals[:, 0].tolist() == [0, 0]
    assert (tile.header.lead, tile.header.interval_s, tile.header.shard) == (0, 900, "s")


def test_costs_add_up_along_the_chain_of_each_zone():
    spent = {}
    for head in HEADS:
        for at, row in enumerate(head.table.rows):
            total = spent.setdefault(row.zone, [0, 0])
            if len(head.tile.rows):
                total[0] += int(head.tile.rows["epsilon_micro"][at])
                total[1] += int(head.tile.rows["rho_micro"][at])
            assert head.totals[:, at].tolist() == total


def test_a_full_shard_is_checked():
    zones = {f"zone {number:03}": open_zone("ab"[number % 2]) for number in range(200)}
    head = open_shard(zones)
    head = release(head, FIRST, **{zone: 1000 * number for number, zone in enumerate(zones)})
    assert head.tile.header.count == 200
    again = write_tile(head, DesiredState(until=FIRST + 1), make_demand())
    assert set(again.tile.rows["kind"].tolist()) == {RowKind.FALLBACK}
