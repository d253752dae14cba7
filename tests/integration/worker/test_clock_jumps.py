"""A clock that jumps, ahead or back, for a while: no interval is closed too early, and none is forgotten."""

import time

from tests.support.database_clock import set_database_clock
from tests.support.interval_workers import FIRST_S, GRACE_S
from tests.support.operator_cli import STEP_S

from murmurate.service.landing.interval_manifest import is_closing
from murmurate.service.worker.publisher_context import LOG_CLOCK

TEN_MINUTES_S = 600


def closed(setup):
    return [number for number in range(10) if is_closing(setup.landing, FIRST_S + number * STEP_S)]


def test_a_machine_whose_clock_is_ahead_closes_nothing_too_early_and_loses_no_interval(worker_setup):
    worker_setup.release(0)
    worker_setup.clock.ahead_s = TEN_MINUTES_S
    worker_setup.at(0, GRACE_S + 20)
    assert closed(worker_setup) == [0]
    worker_setup.report(1)
    worker_setup.at(1, GRACE_S + 20)  # the clock of the state database is right, and known to a moment
    worker_setup.clock.ahead_s = 0
    worker_setup.release(2, 3)
    assert worker_setup.kinds() == ["measured"] * 4
    events = worker_setup.events()
    assert events.count("clock ahead of the state database") == 1
    assert "clock agrees with the state database" in events


def test_how_far_the_clock_is_ahead_is_among_the_figures(worker_setup):
    worker_setup.clock.ahead_s = TEN_MINUTES_S
    worker_setup.at(0, 0)
    assert abs(worker_setup.worker.figures.clock_difference_s["state"] - TEN_MINUTES_S) < 30


def test_a_clock_that_is_back_for_a_while_loses_no_interval_that_is_still_in_time(worker_setup):
    worker_setup.release(0)
    worker_setup.report(1)
    worker_setup.clock.ahead_s = -TEN_MINUTES_S
    worker_setup.at(1, GRACE_S)
    assert worker_setup.kinds() == ["measured"]
    worker_setup.clock.ahead_s = 0
    worker_setup.at(1, GRACE_S + 75)
    worker_setup.release(2)
    assert worker_setup.kinds() == ["measured"] * 3


def test_where_both_clocks_were_ahead_the_worker_goes_on_when_they_are_set_back(worker_setup):
    worker_setup.release(0)
    worker_setup.at(2, GRACE_S)  # both clocks agree, ten minutes ahead: two intervals are decided without a reading
    assert closed(worker_setup) == [0, 2]  # the one between came too late for a price, and was left open
    worker_setup.at(0, GRACE_S + 75)
    for number in range(1, 5):
        if number > 2:
            worker_setup.report(number)
        worker_setup.at(number, GRACE_S)
    assert worker_setup.kinds()[3:] == ["measured", "measured"]
    assert len(worker_setup.kinds()) == 5
    assert "clock set back" in worker_setup.events()


def test_a_log_whose_clock_is_behind_is_named_as_the_cause(worker_setup):
    worker_setup.report(0)
    worker_setup.worker.stall_s = 2.0
    behind_s = time.time() - FIRST_S - STEP_S + 100  # the first interval is over in 100 s by the log's clock
    set_database_clock(worker_setup.log_dsn, -behind_s)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == []
    report = worker_setup.release_report()
    assert report["unfinished"] == 1
    assert "is behind: by it the interval is over in" in report["reasons"][LOG_CLOCK]
    assert "the log's clock is behind" in worker_setup.events()
    assert "clock ahead of the log" in worker_setup.events()
    assert abs(worker_setup.worker.figures.clock_difference_s["log"] - behind_s) < 60
    set_database_clock(worker_setup.log_dsn, 0)
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["measured"]
    assert worker_setup.release_report()["reasons"] == {}
    assert "clock agrees with the log" in worker_setup.events()
