"""A zone is closed once, with what it has spent, and never again in a chain that verifies."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.support.sample_logs import OLD, ZONES, F, M, ShardLog, check, follow_line, log, resign, rules, zone_row

from murmurate.errors import ChainError
from murmurate.public_log.canonical import canonical_json
from murmurate.public_log.make_tile import change_zones
from murmurate.public_log.tile import CLOSED, RowProof
from murmurate.public_log.tile_chain import check_follows, close_zones, rebuild_head
from murmurate.public_log.zone_line import parse_zone_line
from murmurate.public_log.zone_table import ClosedZone, ZoneTable

HARBOUR, HILL, UNDER = ZONES
ENTRY = ClosedZone("hill", "a" * 64, "EUR", "1/1000", 5, 9, 7, 0)
ROW = ENTRY.row._replace(zone="mill")


def test_a_table_without_closed_zones_has_the_bytes_that_it_had_before_zones_could_be_closed():
    table = ZoneTable.from_rows([ROW])
    assert table.text == canonical_json({"murmurate_zones": 1, "zones": [ROW._asdict()]})


def test_a_table_with_closed_zones_is_read_as_it_was_written():
    for table in (ZoneTable.from_rows([ROW], [ENTRY]), ZoneTable.from_rows([], [ENTRY._replace(zone="z"), ENTRY])):
        again = ZoneTable.from_json(table.text)
        assert again == table
        assert table.text.startswith('{"closed":[{')
        assert again.zones_ever == tuple(sorted([*again.zones, *again.closed_by_zone]))
        assert not set(again.position) & set(again.closed_by_zone)


@pytest.mark.parametrize(
    "table",
    [
        ZoneTable((ROW,), (ENTRY, ENTRY)),
        ZoneTable((ROW,), (ENTRY._replace(zone="z"), ENTRY)),
        ZoneTable((ROW,), (ENTRY._replace(zone="mill"),)),
        ZoneTable((ROW,), (ENTRY._replace(last=3),)),
        ZoneTable((ROW,), (ENTRY._replace(last=2**62),)),
        ZoneTable((ROW,), (ENTRY._replace(total_epsilon_micro=-1),)),
        ZoneTable((ROW,), (ENTRY._replace(total_rho_micro=2**63),)),
        ZoneTable((ROW,), (ENTRY._replace(plan="a"),)),
        ZoneTable((ROW,), (ENTRY._replace(zone=""),)),
        ZoneTable((ROW,), tuple(ENTRY._replace(zone=f"{n:04d}") for n in range(1000))),
        ZoneTable((), ()),
    ],
)
def test_a_table_that_breaks_a_rule_is_refused(table):
    with pytest.raises(ChainError):
        ZoneTable.from_json(table.text)


@pytest.mark.parametrize("closed", ["[]", "{}", "[5]", '[{"zone":"hill"}]', "null"])
def test_a_list_of_closed_zones_in_another_form_is_refused(closed):
    text = ZoneTable.from_rows([ROW]).text
    with pytest.raises(ChainError):
        ZoneTable.from_json(f'{{"closed":{closed},{text[1:]}')


def test_a_closed_zone_states_its_totals_and_the_others_go_on():
    made = log().close(HILL).release([M, F]).rotate(OLD).release()
    at = log().table.position[HILL]
    (closed,) = made.table.closed
    assert closed == (*log().table.rows[at], log().head.interval, *log().head.totals[:, at].tolist())
    report = check(made.items())
    assert report.is_valid
    assert report.zones[HILL].closed_after == log().head.interval
    assert report.zones[HARBOUR].closed_after is None
    assert (report.zones[HILL].total_epsilon_micro, report.zones[HILL].total_rho_micro) == closed[6:]
    for zone in ZONES:
        alone = check(made.lines(zone))
        assert alone.is_valid, alone.findings
        assert alone.zones[zone] == report.zones[zone]
    assert len(made.lines(HILL)) == len(log().tiles) + 1
    assert check(made.items(), made.lines(HILL)).is_valid
    assert check(made.items(), zones={HILL}).zones.keys() == {HILL}


def test_a_head_is_rebuilt_across_a_closing():
    made = log().close(HILL)
    for start in (0, len(made.tiles) - 2):
        again = rebuild_head(list(made.tiles[start:]), made.tables)
        assert again.table is made.table
        assert again.totals.tolist() == made.head.totals.tolist()
        assert again.leaf_hashes.tolist() == made.head.leaf_hashes.tolist()


def test_a_zone_that_was_never_decided_can_be_closed():
    made = ShardLog().close(HILL).release()
    assert made.table.closed[0].last == made.table.closed[0].since - 1
    report = check(made.items())
    assert report.is_valid
    assert (report.zones[HILL].records, report.zones[HILL].closed_after) == (0, made.table.closed[0].last)


def test_nothing_follows_after_the_last_zone():
    ended = log().close(*ZONES)
    assert check(ended.items()).is_valid
    assert ended.table.zones == ()
    last = ended.head.tile.header
    again = resign(ended.tiles[-1], ended.signer, seq=last.seq + 1, prev=ended.head.tile.hash, extensions={})
    entered = [zone_row("new", since=ended.head.interval + 1)]
    for longer in (ended.rotate(OLD), ended.enter(entered), ended.add(again)):
        with pytest.raises(ChainError, match="has ended with its last zone"):
            check_follows(ended.head, longer.tiles[-1], longer.table)
        assert not check(longer.items()).is_valid
    empty = resign(again, ended.signer, kind="release", interval=last.interval + 1)
    assert not check(ended.add(empty).items()).is_valid


def test_a_shard_does_not_begin_with_a_closed_zone():
    first = ShardLog().tiles[0]
    table = ZoneTable.from_rows(ShardLog().table.rows, [ENTRY._replace(zone="gone")])
    with pytest.raises(ChainError, match="closed"):
        check_follows(None, resign(first, table=table.digest), table)


def test_only_a_tile_that_changes_zones_closes_one():
    made = log()
    rows = made.release().tiles[-1]
    tile = resign(rows, made.signer, extensions={CLOSED: {}})
    with pytest.raises(ChainError, match="changes the zones"):
        check_follows(made.head, tile, made.table)


def _without(made, zone, *rows):
    """Forget that a zone was closed, perhaps with a row for it."""
    closed = tuple(each for each in made.table.closed if each.zone != zone.zone)
    return ZoneTable(tuple(sorted([*made.table.rows, *rows])), closed)


def _with_entry(made, zone, **added):
    another = zone._replace(**{name: getattr(zone, name) + add for name, add in added.items()})
    return ZoneTable(made.table.rows, tuple(another if each is zone else each for each in made.table.closed))


def _closing(made, *, stated_rho=0, **added):
    """Close another zone, with what is added to its totals in the table, or in the header alone."""
    (leaving,) = close_zones(made.head, [made.table.zones[0]])
    leaving = leaving._replace(**{name: getattr(leaving, name) + add for name, add in added.items()})
    stated = {leaving.zone: leaving.totals | {"total_rho_micro": leaving.total_rho_micro + stated_rho}}
    return ZoneTable.from_rows(made.table.rows[1:], [*made.table.closed, leaving]), {CLOSED: stated}


FORGERIES = {  # the zone table, and what the header states about closed zones; None: what follows from the table
    "lost": lambda made, zone: (_without(made, zone), None),
    "reopened": lambda made, zone: (_without(made, zone, zone.row._replace(since=made.head.interval + 1)), None),
    "continued": lambda made, zone: (_without(made, zone, zone.row), None),
    "another total": lambda made, zone: (_with_entry(made, zone, total_epsilon_micro=1), None),
    "another rho": lambda made, zone: (_with_entry(made, zone, total_rho_micro=1), None),
    "another end": lambda made, zone: (_with_entry(made, zone, last=1), None),
    "never open": lambda made, zone: (
        ZoneTable.from_rows(made.table.rows, [*made.table.closed, zone._replace(zone="zz")]),
        None,
    ),
    "closed with another total": lambda made, _: _closing(made, total_epsilon_micro=1),
    "header with another total": lambda made, _: _closing(made, stated_rho=1),
    "header without totals": lambda made, _: (_closing(made)[0], {}),
    "left out without an end": lambda made, _: (ZoneTable(made.table.rows[1:], made.table.closed), None),
}


@st.composite
def chains(draw):
    """A chain in which a zone was closed, among releases, new zones and new keys."""
    made = ShardLog()
    for number, action in enumerate(
        draw(st.lists(st.sampled_from(["release", "enter", "close", "rotate"]), max_size=6))
    ):
        if action == "release":
            made = made.release(draw(st.sampled_from([M, F])))
        elif action == "enter":
            made = made.enter([*made.table.rows, zone_row(f"new {number}", since=made.head.interval + 1)])
        elif action == "rotate":
            made = made.rotate(OLD)
        elif len(made.table) > 2:
            made = made.close(draw(st.sampled_from(made.table.zones)))
    if not made.table.closed:
        made = made.close(made.table.zones[-1])
    return made.release(times=draw(st.integers(0, 2)))


@pytest.mark.slow
@settings(max_examples=60)
@given(made=chains(), name=st.sampled_from(sorted(FORGERIES)), data=st.data())
def test_no_chain_with_a_reopened_lost_or_changed_zone_verifies(made, name, data):
    assert check(made.items()).is_valid
    zone = data.draw(st.sampled_from(made.table.closed))
    table, extensions = FORGERIES[name](made, zone)
    assume(table.rows)
    tile = change_zones(made.head, table, made.signer)
    if extensions is not None:
        tile = resign(tile, made.signer, extensions=extensions)
    with pytest.raises(ChainError):
        check_follows(made.head, tile, table)
    assert not check([*made.items(), table.text, tile.to_bytes()]).is_valid


@given(data=st.data())
@settings(max_examples=30)
def test_no_line_follows_the_one_that_closes_a_zone(data):
    made = log().close(HILL)
    head = None
    for text in made.lines(HILL):
        head = follow_line(head, text)
    neighbour = data.draw(st.sampled_from([made.release(), made.rotate(OLD), made.change_plan()]))
    line = parse_zone_line(neighbour.lines(HARBOUR)[-1])
    forged = replace(line, rows=line.rows[:0], proof=RowProof(HILL, line.proof.plan))
    with pytest.raises(ChainError, match="is closed with tile"):
        follow_line(head, forged)


@pytest.mark.parametrize("stated", [{}, None, 5, {"total_epsilon_micro": 0, "total_rho_micro": 0}, {"a": 1, "b": 2}])
def test_the_line_that_closes_a_zone_states_its_final_totals(stated):
    made = log().close(HILL)
    closing = resign(made.tiles[-1], log().signer, extensions={CLOSED: {HILL: stated}})
    wrong = log().add(closing, made.table)
    assert rules(check(wrong.lines(HILL))) == {"closed"}
    assert not check(wrong.items()).is_valid


def test_after_a_gap_the_totals_of_a_closing_count_as_they_are_stated():
    made = log().rotate(OLD).close(HILL).release()
    first, *_, key, closing, release = made.tiles
    tables = [table.text for table in made.tables.values()]
    report = check([*tables, *(tile.to_bytes() for tile in (first, key, closing, release))])
    assert rules(report) == {"gap"}
    assert report.zones[HILL].closed_after == log().head.interval
    lines = made.lines(HILL)
    assert rules(check([lines[0], *lines[-2:]])) == {"gap"}


def test_a_reopened_zone_is_found_in_its_lines():
    made = log().close(HILL).release()
    table, _ = FORGERIES["continued"](made, made.table.closed[0])
    again = made.add(change_zones(made.head, table, made.signer), table)
    assert not check(again.lines(HILL)).is_valid


def test_a_line_that_begins_with_the_end_is_refused():
    made = log().close(HILL)
    with pytest.raises(ChainError, match="closed"):
        follow_line(None, made.lines(HILL)[-1])
