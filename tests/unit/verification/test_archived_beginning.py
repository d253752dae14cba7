"""A copy whose first releases are in an archive: what it holds is checked, what it lacks is said, a gap stays a gap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sample_logs import FIRST, OTHER, PLAN, check, log, rules

from murmurate.public_log.tile import TileKind
from murmurate.verification.sources import archived_note
from murmurate.verification.verifier import check_log

pytestmark = pytest.mark.slow

WHOLE = log()
SHARD = WHOLE.shard
DOCUMENTS = [PLAN, OTHER, *(table.text for table in WHOLE.tables.values())]
BEFORE_RELEASES = [  # numbers up to which releases may be archived: a release follows
    tile.header.seq - 1 for tile in WHOLE.tiles[2:] if tile.header.kind is TileKind.RELEASE
]


def kept_tiles(archived_seq):
    return [tile for tile in WHOLE.tiles if tile.header.seq > archived_seq or tile.header.kind is not TileKind.RELEASE]


def copy_of(tiles, archived_seq):
    return [*DOCUMENTS, archived_note(SHARD, archived_seq), *(tile.to_bytes() for tile in tiles)]


@pytest.mark.parametrize("archived_seq", BEFORE_RELEASES)
def test_it_is_right_and_not_complete_and_says_where_the_check_begins(archived_seq):
    report = check(copy_of(kept_tiles(archived_seq), archived_seq), plans=())
    assert (report.findings, report.is_valid, report.is_complete) == ([], True, False)
    beginning = report.unchecked_beginnings[SHARD]
    assert beginning.seq <= archived_seq + 1
    first = next(tile for tile in WHOLE.tiles[archived_seq + 1 :] if tile.header.kind is TileKind.RELEASE)
    assert beginning.interval == first.header.interval
    assert report.zones["harbour"].first_interval == first.header.interval
    (change,) = (tile for tile in WHOLE.tiles if tile.header.kind is TileKind.ZONES and tile.header.interval >= FIRST)
    has_history = archived_seq < change.header.seq - 1  # releases before it, and not all that its window needs
    assert ("harbour" in dict(report.unchecked_changes)) == has_history


@pytest.mark.parametrize("archived_seq", BEFORE_RELEASES)
@pytest.mark.parametrize("archive_is_first", [True, False])
def test_with_the_archive_it_is_one_chain_in_any_order(archived_seq, archive_is_first):
    archive = [*DOCUMENTS, *(tile.to_bytes() for tile in WHOLE.tiles[: archived_seq + 1])]
    sources = {"archive": lambda: archive, "copy": lambda: copy_of(kept_tiles(archived_seq), archived_seq)}
    report = check_log(dict(list(sources.items())[:: 1 if archive_is_first else -1]))
    assert (report.findings, report.is_complete) == ([], True)
    assert report.zones["harbour"].first_interval == FIRST
    assert report.zones["harbour"].records == 9


@given(archived_seq=st.sampled_from(BEFORE_RELEASES), data=st.data())
def test_a_tile_that_is_omitted_after_the_archive_is_found(archived_seq, data):
    tiles = kept_tiles(archived_seq)
    after = [tile for tile in tiles if tile.header.seq > archived_seq][:-1]
    omitted = data.draw(st.sampled_from(after)) if after else None
    report = check(copy_of([tile for tile in tiles if tile is not omitted], archived_seq))
    assert report.is_valid == (omitted is None)


def test_without_a_note_a_gap_is_wrong():
    tiles = kept_tiles(BEFORE_RELEASES[1])
    assert "gap" in rules(check([*DOCUMENTS, *(tile.to_bytes() for tile in tiles)], plans=()))


def test_a_first_release_by_a_key_that_was_not_handed_on_is_wrong():
    (rotation,) = (tile for tile in WHOLE.tiles if tile.header.kind is TileKind.KEY)
    archived_seq = max(BEFORE_RELEASES)
    assert rotation.header.seq <= archived_seq
    tiles = [tile for tile in kept_tiles(archived_seq) if tile is not rotation]
    assert "key" in rules(check(copy_of(tiles, archived_seq), plans=()))


def test_the_first_tile_must_be_there_also_with_a_note():
    archived_seq = BEFORE_RELEASES[0]
    assert not check(copy_of(kept_tiles(archived_seq)[1:], archived_seq), plans=()).is_valid


def test_a_note_changes_nothing_about_a_whole_log():
    report = check(copy_of(WHOLE.tiles, BEFORE_RELEASES[-1]), plans=())
    assert (report.findings, report.is_complete, report.unchecked_beginnings) == ([], True, {})


@pytest.mark.parametrize(
    "note", ['{"archived_seq":1}', '{"archived_seq":"1","murmurate_archived":1,"shard":"east"}', '{"archived_seq":']
)
def test_a_note_that_cannot_be_read_is_a_finding(note):
    assert "unreadable" in rules(check([*DOCUMENTS, note, *(tile.to_bytes() for tile in WHOLE.tiles)], plans=()))
