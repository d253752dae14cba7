"""Forgetting: the readings are gone, and nobody makes another demand of what lands there later."""

import os
from datetime import UTC, datetime

import pytest

from murmurate.errors import ReadingError
from murmurate.service.gathering.append import append
from murmurate.service.gathering.closing import closed, forget
from murmurate.service.gathering.layout import Landing
from murmurate.service.gathering.metertable import pin
from tests.gathering.processes import killed_everywhere as killed
from tests.gathering.worlds import (
    HONEST,
    METERS,
    ROWS,
    START_S,
    STEP_S,
    a_landing,
    by_hand,
    demand_of,
    files_in,
    gathered,
    leave,
    meter_csv,
    readings,
)

pytestmark = pytest.mark.usefixtures("quick_disk")

STARTS_S = [START_S + number * STEP_S for number in range(6)]


@pytest.fixture
def world(tmp_path):
    """Six intervals; the first three are closed."""
    landing, table = a_landing(tmp_path)
    for start_s in STARTS_S:
        assert append(landing, start_s, readings(HONEST))
    for start_s in STARTS_S[:3]:
        demand_of(landing, table, start_s)
    return landing, table


def refuses(landing, table, start_s):
    with pytest.raises(ReadingError, match="is forgotten: its readings were deleted; no demand can be made of it"):
        gathered(landing, table, [start_s])


@pytest.mark.parametrize("which", [1, 4])
def test_what_is_forgotten_is_gone_and_stays_forgotten_whether_it_was_closed_or_not(world, which):
    landing, table = world
    start_s = STARTS_S[which]
    assert forget(landing, start_s + STEP_S) == which + 1
    folder = landing.interval(start_s)
    for again in range(3):
        assert not folder.exists()
        refuses(landing, table, start_s)
        assert not append(landing, start_s, readings(HONEST))
        assert not folder.exists()
        leave(landing, start_s, ROWS, f"late-{again}")  # by somebody who does not ask
        refuses(landing, table, start_s)
        assert forget(landing, start_s + STEP_S) == 1


def test_intervals_from_the_limit_on_stay_as_they_are(world):
    landing, table = world
    kept = {start_s: files_in(landing.interval(start_s)) for start_s in STARTS_S[2:]}
    decided = closed(landing, STARTS_S[2])
    assert forget(landing, STARTS_S[2]) == 2
    assert {start_s: files_in(landing.interval(start_s)) for start_s in landing.intervals()[0]} == kept
    assert closed(landing, STARTS_S[2]) == decided
    for start_s in STARTS_S[2:]:
        assert demand_of(landing, table, start_s) == by_hand(METERS, HONEST)


def test_an_interval_is_kept_until_its_begin_is_before_the_limit(world):
    landing, _ = world
    assert forget(landing, STARTS_S[0]) == 0
    assert forget(landing, STARTS_S[0] + 1) == 1
    assert landing.intervals()[0] == STARTS_S[1:]


def test_nothing_of_a_reading_stays(world):
    """Neither a file nor the digest of one, from which a guessed reading could be confirmed."""
    landing, _ = world
    digests = [file.sha256 for start_s in STARTS_S[:3] for file in closed(landing, start_s).files]
    assert len(digests) == 3 * 4
    forget(landing, STARTS_S[-1] + STEP_S)
    left = files_in(landing.root)
    assert {name for name in left if not name.startswith(("_closed/", "_meters/"))} == {"_layout.json"}
    everything = b"".join(left.values()).decode(errors="replace")
    assert not [digest for digest in digests if digest in everything]
    assert "shard=" not in "".join(data.decode() for name, data in left.items() if name.startswith("_closed/"))


def test_old_meter_tables_go_when_no_interval_needs_them(tmp_path, world):
    landing, table = world
    other = [meter._replace(bound_wh=meter.bound_wh + 1) for meter in METERS]
    newer = pin(landing, meter_csv(tmp_path / "newer.csv", other))
    unused = pin(landing, meter_csv(tmp_path / "unused.csv", other[:3]))
    fresh = pin(landing, meter_csv(tmp_path / "fresh.csv", other[:2]))  # somebody is about to close under it
    demand_of(landing, newer, STARTS_S[4])
    for each in (table, newer, unused):
        os.utime(each.folder, (0, 0))

    def tables():
        return {folder.name for folder in (landing.root / "_meters").iterdir()}

    forget(landing, STARTS_S[2])
    assert tables() == {table.version, newer.version, fresh.version}
    assert demand_of(landing, table, STARTS_S[2]) == by_hand(METERS, HONEST)
    forget(landing, STARTS_S[4])
    assert tables() == {newer.version, fresh.version}
    assert demand_of(landing, newer, STARTS_S[4]) == by_hand(other, HONEST)
    forget(landing, STARTS_S[4] + 1)
    assert tables() == {fresh.version}
    forget(landing, int(datetime.now(UTC).timestamp()) + 2)
    assert tables() == set()


def test_forgetting_an_empty_landing_forgets_nothing(tmp_path):
    landing = Landing.create(tmp_path / "landing")
    assert forget(landing, START_S) == 0
    assert set(files_in(landing.root)) == {"_layout.json"}


def _forget(number, folder):
    forget(Landing.open(folder / str(number)), START_S + STEP_S)


def test_one_that_dies_at_any_touch_of_the_disk_while_it_forgets_is_finished_by_the_next(tmp_path):
    many = range(1, 100)
    for number in many:
        landing = Landing.create(tmp_path / str(number), shard_meters=3)
        for start_s in STARTS_S[:2]:
            leave(landing, start_s, [row._replace(start_s=start_s) for row in HONEST])
    died = killed(_forget, tmp_path)
    assert 20 < died < len(many)
    source = meter_csv(tmp_path / "meters.csv")
    for number in range(1, died + 2):
        landing = Landing.open(tmp_path / str(number))
        forget(landing, STARTS_S[1])
        assert landing.intervals()[0] == [STARTS_S[1]]
        assert not append(landing, START_S, readings(HONEST))
        refuses(landing, pin(landing, source), START_S)
        assert demand_of(landing, pin(landing, source), STARTS_S[1]) == by_hand(METERS, HONEST)
