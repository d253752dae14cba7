"""Two clocks are compared by what is known of them: a slow answer is no wrong clock, and a jump is seen at once."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.recorded_log import recorded_log

from murmurate.service.clock import ServiceClock
from murmurate.service.clock_comparison import MAX_CLOCK_DIFFERENCE_S, ClockComparison, ClockDifferenceError
from murmurate.service.storage.session import ClockReading

SECONDS = st.floats(-10_000, 10_000)
LATENCIES = st.floats(0, 100)


class ShiftedClock(ServiceClock):
    """A clock of a machine that is ahead of the true time."""

    ahead_s = 0.0

    def wall_now(self):
        return time.time() + self.ahead_s


def comparison_with(ahead_s, *, before_s=0.0, after_s=0.0, clock=None):
    """A machine whose clock is ahead of a database's. That one showed its time so long after it was asked."""
    made = ClockComparison("log", clock or ServiceClock())
    answered_s, wall_s = time.monotonic(), time.time()
    made.note(ClockReading(wall_s - after_s - ahead_s, answered_s - after_s - before_s, answered_s))
    return made


@given(ahead_s=SECONDS, before_s=LATENCIES, after_s=LATENCIES)
def test_no_difference_is_called_larger_than_it_is_however_slow_the_answer(ahead_s, before_s, after_s):
    begun_s = time.monotonic()
    found_s = comparison_with(ahead_s, before_s=before_s, after_s=after_s).difference_s
    unsure_s = time.monotonic() - begun_s + 0.01
    least_s = abs(ahead_s) - before_s - after_s
    assert least_s - unsure_s <= abs(found_s) <= abs(ahead_s) + unsure_s


@given(ahead_s=SECONDS, before_s=LATENCIES, after_s=LATENCIES)
def test_the_time_to_act_by_is_never_far_after_the_database_s(ahead_s, before_s, after_s):
    begun_s = time.monotonic()
    now_s = comparison_with(ahead_s, before_s=before_s, after_s=after_s).bounded_now()
    unsure_s = time.monotonic() - begun_s + 0.01
    assert now_s <= time.time() + unsure_s
    assert now_s <= time.time() - ahead_s + MAX_CLOCK_DIFFERENCE_S + unsure_s


@pytest.mark.parametrize(("ahead_s", "words"), [(600, "ahead of the log's"), (-600, "behind the log's")])
def test_while_clocks_differ_there_is_no_time_and_the_reason_names_both(ahead_s, words):
    compared = comparison_with(ahead_s)
    with pytest.raises(ClockDifferenceError, match=words):
        compared.agreed_now()


@pytest.mark.parametrize("compared", [ClockComparison("log", ServiceClock()), comparison_with(0.5)])
def test_clocks_that_agree_or_were_never_compared_leave_the_time_as_it_is(compared):
    before_s = time.time()
    assert before_s <= compared.agreed_now() <= compared.bounded_now() <= time.time()
    assert compared.fault is None


def test_of_a_service_that_plays_its_time_the_clocks_of_the_machines_are_compared():
    played = ServiceClock(simulated_s=1000.0, wall_s=time.time(), speed=60.0)
    assert comparison_with(0.5, clock=played).fault is None
    behind = comparison_with(600.0, clock=played)
    assert behind.fault is not None
    assert behind.bounded_now() < 1000.0


def test_a_jump_of_the_machine_s_clock_is_seen_without_another_reading_and_logged_once():
    clock, logged = ShiftedClock(), []
    compared = comparison_with(0.0, clock=clock)
    with recorded_log(logged):
        for ahead_s in (0.0, 600.0, 600.0, -600.0, 0.0, 0.0):
            ShiftedClock.ahead_s = ahead_s
            compared.log_change()
            assert (compared.fault is None) == (ahead_s == 0.0)
    assert [event for event, _ in logged] == ["clock ahead of the log", "clock agrees with the log"]
