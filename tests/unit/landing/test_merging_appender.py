"""Small files that are merged: every reading counts once, whatever is merged, killed, closed or deleted meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.landing_processes import barrier, children, keep_appending_and_merging, keep_closing
from tests.support.landing_processes import killed_everywhere as killed
from tests.support.sample_landings import (
    START_S,
    STEP_S,
    Meter,
    Row,
    a_landing,
    by_hand,
    close_and_aggregate,
    demand_of,
    leave,
    lines,
    no_waiting,
    readings,
)
from tests.support.waiting import wait_until

from murmurate.service.landing import append
from murmurate.service.landing.append import MergingAppender
from murmurate.service.landing.interval_manifest import close_interval, late_files, manifest_of
from murmurate.service.landing.layout import Landing
from murmurate.service.landing.readings_file import is_replaced, list_merged, merged_name, part_name
from murmurate.types import Readings

GRACE_S = 60
DEADLINE_S = START_S + STEP_S + GRACE_S
METERS = tuple(Meter(number, "hill" if number % 2 else "mill", 3000, 120) for number in range(12))
RUN = "00112233445566778899aabb"
WRITERS, APPENDS, INTERVALS = 3, 40, 20

rows = st.lists(st.tuples(st.integers(0, 11), st.integers(-5, 4000)).map(lambda row: Row(*row)), min_size=1, max_size=6)
steps = st.lists(
    st.one_of(rows, st.just("merge"), st.sampled_from(["fail ", "fail shard=0", "fail shard=1"])), max_size=12
)


def new_appender(landing, now_s=DEADLINE_S - 1):
    return MergingAppender(landing, lambda: now_s, GRACE_S, in_background=False)


@pytest.fixture
def merge_at_once(monkeypatch):
    monkeypatch.setattr(append, "MIN_PARTS_TO_MERGE", 1)


def files_of(landing, start_s=START_S):
    return sorted(path.name for path in landing.interval_folder(start_s).rglob("*.parquet"))


@pytest.mark.slow
@settings(max_examples=150)
@given(steps, st.integers(1, 8))
def test_every_stored_reading_counts_once_whatever_was_merged_and_whatever_failed(tmp_path_factory, done, run_readings):
    """A write that fails has left its file or not: what is there counts, merged or not."""
    with no_waiting(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(append, "MIN_PARTS_TO_MERGE", 1)
        patch.setattr(append, "MAX_RUN_READINGS", run_readings)
        landing, table = a_landing(tmp_path_factory.mktemp("merging"), METERS)
        appender, stored, in_place, failing = new_appender(landing), [], 0, None
        real = append.write_readings_file

        def write(landing, start_s, folder, name, some):
            nonlocal in_place, failing
            if folder != failing or "merged" in name:
                in_place += 0 if "merged" in name else len(some)
                return real(landing, start_s, folder, name, some)
            failing = None
            real(landing, start_s, folder, name, some)  # it is there, and the disk has failed after that
            in_place += len(some)
            raise OSError("the disk has failed")

        patch.setattr(append, "write_readings_file", write)
        for step in done:
            if step == "merge":
                appender.merge_due_runs()
            elif isinstance(step, str):
                failing = step.removeprefix("fail ")
            else:
                try:
                    assert appender.append(START_S, readings(step))
                except OSError:
                    appender.append(START_S, readings(step))
                stored += step
        (found,) = close_and_aggregate(landing, table).values()
        assert lines(found) == by_hand(METERS, stored)
        assert found.readings == in_place
        assert late_files(landing, manifest_of(landing, START_S)) == []


@pytest.mark.usefixtures("quick_disk", "merge_at_once")
def test_a_merged_file_counts_instead_of_its_parts_which_go_once_the_interval_is_closed(tmp_path):
    landing, table = a_landing(tmp_path, METERS)
    appender = new_appender(landing)
    sent = [Row(number % 3, 100 + number) for number in range(9)]
    for row in sent[:4]:
        appender.append(START_S, readings([row]))
    appender.merge_due_runs()
    for row in sent[4:8]:
        appender.append(START_S, readings([row]))
    appender.merge_due_runs()
    appender.append(START_S, readings([sent[8]]))
    assert len(files_of(landing)) == 9 + 2, "no part is deleted before it is decided what counts"
    manifest = close_interval(landing, START_S, table.version)
    assert len(manifest.files) == 2
    before = demand_of(landing, table)
    assert before == by_hand(METERS, sent)
    appender.merge_due_runs()
    assert files_of(landing) == sorted(Path(file.path).name for file in manifest.files)
    assert demand_of(landing, table) == before


@pytest.mark.usefixtures("quick_disk", "merge_at_once")
def test_what_is_merged_after_the_files_were_listed_changes_nothing(tmp_path, monkeypatch):
    landing, table = a_landing(tmp_path, METERS)
    appender = new_appender(landing)
    for number in range(4):
        appender.append(START_S, readings([Row(number % 3, 100 + number)]))
    with monkeypatch.context() as patch:  # the closing begins after the merging has looked for its mark
        patch.setattr(append, "is_closing", lambda *_: False)
        manifest = close_interval(landing, START_S, table.version)
        appender.merge_due_runs()
    assert len(files_of(landing)) == 4 + 1
    assert len(manifest.files) == 4
    assert late_files(landing, manifest) == []
    before = demand_of(landing, table)
    appender.merge_due_runs()
    assert len(files_of(landing)) == 4 + 1, "the parts count, so they stay"
    assert demand_of(landing, table) == before


@pytest.mark.usefixtures("quick_disk", "merge_at_once")
def test_a_merged_file_that_is_not_whole_replaces_nothing(tmp_path):
    landing, table = a_landing(tmp_path, METERS)
    appender, sent = new_appender(landing), [Row(number % 3, 100 + number) for number in range(4)]
    for row in sent:
        appender.append(START_S, readings([row]))
    appender.merge_due_runs()
    (path,) = landing.interval_folder(START_S).rglob("*-merged-*")
    path.write_bytes(path.read_bytes()[:-1])
    manifest = close_interval(landing, START_S, table.version)
    assert manifest.unfinished == (path.relative_to(landing.root).as_posix(),)
    assert len(manifest.files) == 4
    assert demand_of(landing, table) == by_hand(METERS, sent)


@pytest.mark.usefixtures("quick_disk")
def test_files_are_merged_at_rest_when_many_have_come_and_before_the_deadline(tmp_path, monkeypatch):
    landing, _ = a_landing(tmp_path, METERS)
    clock, now_s = [100.0], [DEADLINE_S - 30.0]
    monkeypatch.setattr(append.time, "monotonic", lambda: clock[0])
    appender = MergingAppender(landing, lambda: now_s[0], GRACE_S, in_background=False)

    def merged_after(parts):
        for _ in range(parts):
            appender.append(START_S, readings([Row(0, 5)]))
        appender.merge_due_runs()
        return sum("merged" in name for name in files_of(landing))

    assert merged_after(append.MIN_PARTS_TO_MERGE) == 0, "more may come"
    clock[0] += append.QUIET_S
    assert merged_after(0) == 1
    assert merged_after(append.MIN_PARTS_TO_MERGE) == 1
    now_s[0] = DEADLINE_S - append.DEADLINE_MARGIN_S
    assert merged_after(0) == 2
    now_s[0] = DEADLINE_S - 30.0
    monkeypatch.setattr(append, "MAX_SMALL_FILE_READINGS", 1)
    assert merged_after(20) == 3


@pytest.mark.usefixtures("quick_disk", "merge_at_once")
def test_large_files_are_not_merged_and_memory_is_bounded(tmp_path, monkeypatch):
    landing, table = a_landing(tmp_path, METERS)
    monkeypatch.setattr(append, "MAX_SMALL_FILE_READINGS", 2)
    monkeypatch.setattr(append, "MAX_HELD_READINGS", 4)
    appender = new_appender(landing)
    sent = [Row(0, 10 * number) for number in range(10)]
    appender.append(START_S, readings(sent[:3]))
    for row in sent[3:]:
        appender.append(START_S, readings([row]))
    appender.merge_due_runs()
    assert len(close_interval(landing, START_S, table.version).files) == 1 + 1 + 3
    assert close_and_aggregate(landing, table)[START_S].readings == 10


@pytest.mark.usefixtures("merge_at_once")
def test_the_background_thread_merges_cleans_and_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(append, "_MERGE_CHECK_S", 0.02)
    landing, table = a_landing(tmp_path, METERS)
    appender = MergingAppender(landing, lambda: DEADLINE_S - 1, GRACE_S)
    for number in range(8):
        appender.append(START_S, readings([Row(0, number)]))
    assert wait_until(lambda: any("merged" in name for name in files_of(landing)))
    assert wait_until(
        lambda: appender._runs and all(len(run.parts) == run.merged_parts for run in appender._runs.values())
    )
    close_interval(landing, START_S, table.version)
    assert wait_until(lambda: appender._thread is None)
    assert len(files_of(landing)) == 1
    assert close_and_aggregate(landing, table)[START_S].readings == 8


def _append_and_merge(number, root):
    """Five appends to two shards, merged on the way; each is noted once it is acknowledged."""
    append.MIN_PARTS_TO_MERGE = 1
    landing, start_s = Landing.open(root), START_S + number * STEP_S
    appender = MergingAppender(landing, lambda: start_s + STEP_S, 0, in_background=False)
    for meter in range(5):
        some = Readings.from_columns(meter=[meter, meter + 6], energy_wh=[7, 8])
        if appender.append(start_s, some):
            with Path(f"{root}.{number}").open("a", encoding="ascii") as acknowledged:
                acknowledged.write(f"{meter}\n")
        if meter % 2:
            appender.merge_due_runs()
    close_interval(landing, start_s, Path(f"{root}.version").read_text(encoding="ascii"))
    appender.merge_due_runs()


@pytest.mark.slow
@pytest.mark.usefixtures("quick_disk")
def test_a_process_that_dies_at_any_touch_of_the_disk_loses_nothing_acknowledged_and_doubles_nothing(tmp_path):
    landing, table = a_landing(tmp_path, METERS, shard_meters=6)
    Path(f"{landing.root}.version").write_text(table.version, encoding="ascii")
    died = killed(_append_and_merge, landing.root)
    assert died > 100
    for number in range(1, died + 1):
        start_s = START_S + number * STEP_S
        noted = Path(f"{landing.root}.{number}")
        acknowledged = [int(meter) for meter in noted.read_text().split()] if noted.exists() else []
        found = close_and_aggregate(landing, table, [start_s])[start_s]
        counted = counted_meters(landing, start_s)
        assert len(counted) == len(set(counted)) == found.readings
        assert set(counted) >= {meter + first for meter in acknowledged for first in (0, 6)}


def counted_meters(landing, start_s):
    files = manifest_of(landing, start_s).files
    return [meter for file in files for meter in pq.read_table(landing.root / file.path)["meter"].to_pylist()]


@pytest.mark.slow
def test_what_an_append_is_sure_of_counts_once_while_files_are_merged_and_intervals_closed(tmp_path):
    """Three writers that merge all the time, and two closers, twenty intervals."""
    meters = [Meter(number, "hill", 9) for number in range(WRITERS * APPENDS)]
    landing, table = a_landing(tmp_path, meters, shard_meters=1000)
    rng, sure_of, merged, left_over = np.random.default_rng(), 0, 0, 0
    together = barrier(2)
    works = [(keep_appending_and_merging, landing.root)] * WRITERS + [(keep_closing, landing.root, together)] * 2
    with children(*works) as everybody:
        writers, closers = everybody[:WRITERS], everybody[WRITERS:]
        for number in range(INTERVALS):
            start_s = START_S + number * STEP_S
            for at, writer in enumerate(writers):
                writer.send(start_s, range(at * APPENDS, (at + 1) * APPENDS))
            time.sleep(rng.uniform(0.005, 0.2))
            for closer in closers:
                closer.send(start_s, table.version)
            first, second = (closer.receive() for closer in closers)
            assert first == second
            sure = {meter for writer in writers for meter in writer.receive()}
            counted = counted_meters(landing, start_s)
            assert len(counted) == len(set(counted))
            assert sure <= set(counted)
            assert demand_of(landing, table, start_s)["hill"].reported == len(counted)
            sure_of, left_over = sure_of + len(sure), left_over + len(meters) - len(sure)
            merged += sum("merged" in file.path for file in manifest_of(landing, start_s).files)
    assert min(sure_of, merged, left_over) > INTERVALS, "too quick or too slow for this to show anything"


def test_names_of_other_writers_are_no_runs():
    for ending in (f"-17-{64 * 'a'}.parquet", ".parquet"):  # of this version, and of earlier ones
        first, second, merged = (
            f"{name}{ending}" for name in (part_name(RUN, 0), part_name(RUN, 1), merged_name(RUN, 1))
        )
        found = [first, second, merged, "a.parquet", f"{RUN}-merged-1.parquet"]
        assert list_merged(found) == [(RUN, 1, merged)]
        assert [name for name in found if is_replaced(name, {RUN: 1})] == [first]
        assert is_replaced(merged, {RUN: 2})
    assert not is_replaced(f"{RUN}.parquet", {RUN: 2})


@pytest.mark.usefixtures("quick_disk")
def test_a_file_of_another_writer_is_never_replaced(tmp_path):
    landing, table = a_landing(tmp_path, METERS)
    leave(landing, START_S, [Row(0, 50)], name=f"{RUN}-x")
    leave(landing, START_S, [Row(1, 60)], name=f"{RUN}-merged-00000009")
    assert len(close_interval(landing, START_S, table.version).files) == 2
