"""How long one call may publish: as long as the same prices are to be made, while shards move, and until a stop."""

import time
from contextlib import ExitStack
from types import SimpleNamespace

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.interval_workers import GRACE_S
from tests.support.many_plans import open_many_zones
from tests.support.operator_cli import STEP_S
from tests.support.postgres_stores import SHARDS, desired
from tests.support.sample_shards import FIRST

from murmurate.service.clock import ReleaseSchedule
from murmurate.service.storage.state_store import PostgresStateStore
from murmurate.service.worker import interval_worker, publisher_context

STALL_S = 1.5
COMMIT_S = 10.0


@given(st.integers(1, 3600), st.integers(0, 5), st.integers(0, 9000), st.integers(0, 4_000_000), st.floats(0, 0.999))
def test_the_same_intervals_are_due_and_in_time_until_the_next_change(interval_s, lead, grace_s, quarters, share):
    now = quarters / 4  # without an error of rounding
    schedule = ReleaseSchedule(interval_s=interval_s, lead_intervals=lead, grace_s=grace_s)

    def what(at_s):
        return schedule.due_interval(at_s), schedule.first_in_time(at_s)

    change = schedule.next_change(now)
    assert now < change <= now + interval_s
    assert what(now + share * (change - now)) == what(now)
    assert what(change) != what(now)


@pytest.mark.parametrize(
    ("after_s", "least_s", "most_s"),
    [(GRACE_S, 200, STEP_S - GRACE_S), (STEP_S - 1, 0, 5), (STEP_S + 1, 30, GRACE_S)],
)
def test_a_call_publishes_until_another_state_is_desired(worker_setup, monkeypatch, after_s, least_s, most_s):
    allowed, publish = [], interval_worker.PublisherContext.publish

    def note_time(context, desired_states, timeout_s, **options):
        allowed.append(timeout_s)
        return publish(context, desired_states, timeout_s, **options)

    monkeypatch.setattr(interval_worker.PublisherContext, "publish", note_time)
    worker_setup.at(0, after_s)
    assert len(allowed) == 1
    assert least_s < allowed[0] <= most_s
    assert len(worker_setup.kinds()) == 1


def test_a_price_that_is_too_late_once_its_readings_are_summed_is_withheld(worker_setup, monkeypatch):
    worker_setup.report(0)
    aggregate = interval_worker.aggregate_landing

    def take_an_interval(*arguments):
        worker_setup.clock.now_s += STEP_S
        return aggregate(*arguments)

    monkeypatch.setattr(interval_worker, "aggregate_landing", take_an_interval)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["withheld"]


def test_a_release_of_many_shards_is_one_call_however_long_it_takes_and_the_worker_lives_meanwhile(
    worker_setup, monkeypatch
):
    """Shards move one batch after the other; only what does not move for `stall_s` is left to the next call.

    Its clock advances with each commit alone, so a busy machine changes nothing.
    """
    open_many_zones(worker_setup, 60, zones_per_shard=1)
    worker = worker_setup.worker
    worker.stall_s, worker.beat_every_s = 3 * COMMIT_S, 0.0
    read, beats, commits, zones = [], [], [], PostgresStateStore.zones
    monkeypatch.setattr(PostgresStateStore, "zones", lambda it: (read.append(0), zones(it))[1])
    beat, save = interval_worker.IntervalWorker._beat, PostgresStateStore.save
    monkeypatch.setattr(interval_worker.IntervalWorker, "_beat", lambda it: (beats.append(0), beat(it))[1])
    monkeypatch.setattr(PostgresStateStore, "save", lambda *what: (commits.append(0), save(*what))[1])
    clock = SimpleNamespace(monotonic=lambda: COMMIT_S * len(commits), sleep=time.sleep)
    monkeypatch.setattr(publisher_context, "time", clock)
    worker_setup.at(0, GRACE_S)
    assert clock.monotonic() > 2 * worker.stall_s  # or it was not a long release
    assert worker_setup.release_report()["unfinished"] == 0
    assert worker_setup.release_report()["up_to_date"] == 61
    assert len(read) == 1  # of every zone, to aggregate and to release
    assert len(beats) > 61 // 20  # before each batch


def test_a_shard_that_does_not_move_ends_a_call_after_a_while(stores):
    held, *others = SHARDS
    with ExitStack() as stack:
        connection = stack.enter_context(psycopg.connect(stores.state_dsn))
        stores.publish(FIRST)
        connection.execute("SELECT FROM curator.shard WHERE shard = %s FOR UPDATE", (held,))
        begun_s = time.monotonic()
        outcome = stores.publisher().publish(desired(FIRST + 1), timeout_s=3600, stall_s=STALL_S)
    assert outcome.unfinished == {held}
    assert outcome.up_to_date == set(others)
    assert time.monotonic() - begun_s > STALL_S


def test_a_release_ends_between_two_rounds_once_a_stop_is_asked_for(stores):
    asked, batches = [], []
    publisher = stores.publisher(load_plans=lambda shards: batches.append(list(shards)))
    outcome = publisher.publish(
        desired(FIRST), timeout_s=3600, is_stopped=lambda: len(batches) > 1 and not asked.append(0)
    )
    assert len(batches) == 2
    assert outcome.up_to_date == set(batches[0])
    assert stores.publish(FIRST).up_to_date == set(SHARDS)  # what was begun is finished by the next one


def test_a_worker_that_is_stopped_while_it_publishes_ends_the_call(worker_setup):
    open_many_zones(worker_setup, 60, zones_per_shard=1)
    worker = worker_setup.worker
    worker.is_stopped = lambda: "many-0000000" in worker.context.state.tables()
    worker_setup.at(0, GRACE_S)
    assert 0 < len(worker.context.state.tables()) <= 20
    assert "released" not in worker_setup.events()
    worker.is_stopped = lambda: False
    worker_setup.at(0, GRACE_S)
    assert worker_setup.release_report()["up_to_date"] == 61
