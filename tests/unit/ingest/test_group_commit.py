"""Group commit: many requests, few commits, and each request learns the fate of its own readings."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.ingestors import NOW_S, OPEN_S, STEP_S, demand_of, new_ingestor

from murmurate.readings.batch import ReadingBatch
from murmurate.service.ingest import ingestor
from murmurate.service.ingest.ingestor import GroupCommit, IngestBusyError
from murmurate.types import Readings

TIMEOUT_S = 60


class Disk:
    """Stores when it may, and remembers what it was given: (interval, meters)."""

    def __init__(self, fails=lambda _start_s, _meters: False):
        self.commits, self.fails, self.may_go, self.begun = [], fails, threading.Event(), threading.Event()

    def append(self, start_s, readings):
        self.begun.set()
        assert self.may_go.wait(TIMEOUT_S)
        meters = readings.meter.tolist()
        if self.fails(start_s, meters):
            raise OSError("the disk has failed")
        self.commits.append((start_s, meters))
        return start_s >= 0

    @property
    def stored(self):
        return {meter for _, meters in self.commits for meter in meters}


def one(*meters):
    return Readings.from_columns(meter=list(meters), energy_wh=[5] * len(meters))


def test_a_commit_begins_at_once_and_what_comes_meanwhile_is_one_more():
    disk = Disk()
    commits = GroupCommit(disk.append)
    first = commits.submit(0, one(0))
    assert disk.begun.wait(TIMEOUT_S), "nothing is waited for when nothing is running"
    others = [commits.submit(0, one(meter)) for meter in range(1, 100)]
    time.sleep(0.05)
    assert not any(stored.done() for stored in (first, *others)), "nothing is acknowledged before it is stored"
    disk.may_go.set()
    assert all(stored.result(TIMEOUT_S) for stored in (first, *others))
    assert disk.commits == [(0, [0]), (0, list(range(1, 100)))]


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from([-900, 0, 900]), st.integers(0, 3)), max_size=30),
    st.sets(st.integers(0, 29)),
    st.integers(1, 10),
)
def test_each_submission_learns_its_own_fate(sent, failing, group):
    """Whatever else is in its group: another interval, one that is closed, one that cannot be stored."""
    disk = Disk(lambda _, meters: bool({meter % 100 for meter in meters} & failing))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingestor, "MAX_GROUP_READINGS", group)
        commits = GroupCommit(disk.append)
        fates = [
            commits.submit(start_s, one(*(number + 100 * copy for copy in range(count))))
            for number, (start_s, count) in enumerate(sent)
        ]
        disk.may_go.set()
        for number, ((start_s, count), stored) in enumerate(zip(sent, fates, strict=True)):
            if number in failing and count:
                assert isinstance(stored.exception(TIMEOUT_S), OSError)
            else:
                assert stored.result(TIMEOUT_S) == (start_s >= 0)
                assert {number + 100 * copy for copy in range(count)} <= disk.stored
    assert not {meter % 100 for meter in disk.stored} & failing


def test_a_submission_that_was_cancelled_harms_no_other():
    disk = Disk()
    commits = GroupCommit(disk.append)
    first = commits.submit(0, one(0))
    assert disk.begun.wait(TIMEOUT_S)
    gone, other = commits.submit(0, one(1)), commits.submit(0, one(2))
    assert gone.cancel()
    assert not first.cancel(), "it is being stored"
    disk.may_go.set()
    assert other.result(TIMEOUT_S)
    assert commits.submit(0, one(3)).result(TIMEOUT_S)
    assert disk.stored == {0, 2, 3}


def test_when_too_much_waits_more_is_refused_until_there_is_room():
    disk = Disk()
    commits = GroupCommit(disk.append, max_waiting_readings=3)
    running = commits.submit(0, one(*range(10)))
    assert disk.begun.wait(TIMEOUT_S)
    waiting = [commits.submit(0, one(10, 11)), commits.submit(0, one(12))]
    with pytest.raises(IngestBusyError):
        commits.submit(0, one(13))
    disk.may_go.set()
    assert all(stored.result(TIMEOUT_S) for stored in (running, *waiting))
    assert commits.submit(0, one(*range(20, 30))).result(TIMEOUT_S), "a large one is taken when none waits"


def test_concurrent_batches_keep_their_receipts_and_make_few_files(tmp_path):
    """A hundred clients at once: each has its own lines refused, and all that is accepted counts."""
    intake = new_ingestor(tmp_path, NOW_S, dict.fromkeys(range(100), "harbour"))
    real = intake._commits._append
    intake._commits._append = lambda *what: (time.sleep(0.02), real(*what))[1]

    def send(meter):
        rows = [(meter, OPEN_S, meter), (1000 + meter, OPEN_S, 5), (meter, OPEN_S - STEP_S, 5), (meter, OPEN_S + 1, 5)]
        return intake.ingest_batch(ReadingBatch.from_numbered_rows(rows), None)

    with ThreadPoolExecutor(50) as clients:
        receipts = list(clients.map(send, range(100)))
    assert {(receipt.accepted, receipt.late, tuple(receipt.refused)) for receipt in receipts} == {(1, 1, (2, 4))}
    assert intake.counts == {"accepted": 100, "late": 100, "refused": 200}
    assert len(list(intake.landing.root.glob("interval=*/shard=*/*.parquet"))) < 50
    assert demand_of(intake, tmp_path) == {"harbour": (sum(range(100)), 100)}
