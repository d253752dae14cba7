"""Points that tell no time count only if they have not waited, whatever process, connection and broker do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.ingest.mqtt_consumer import DeliveryFence

STEP_S = 900.0
NEW = DeliveryFence(STEP_S)
START_S = 1_794_658_500.0


def return_fences(fence, from_s, until_s):
    """A path on which fences return at once, one every second."""
    now_s = from_s
    while now_s <= until_s:
        fence.note_return(fence.next_fence(now_s), now_s)
        now_s += 1.0


class OrderedSession:
    """What a broker has for one client, in the order in which it took it, and what the client does with it."""

    def __init__(self):
        self.now_s, self.fence = START_S, DeliveryFence(STEP_S)
        self.held, self.at_senders = [], []
        self.accepted, self.published_s = [], {}

    def publish_point(self):
        self.published_s[len(self.published_s)] = self.now_s
        self.held.append(len(self.published_s) - 1)

    def send_fence(self):
        if (payload := self.fence.next_fence(self.now_s)) is not None:
            self.held.append(payload)

    def forge_fence(self):
        self.held.append(bytes(16))

    def deliver(self, count=1):
        for message in self.held[:count]:
            if isinstance(message, bytes):
                self.fence.note_return(message, self.now_s)
            elif self.fence.is_open(self.now_s):
                self.accepted.append((message, self.now_s))
        del self.held[:count]

    def restart(self):
        """A new process, and the same session at the broker."""
        self.fence = DeliveryFence(STEP_S)

    def play(self, steps):
        for step, seconds in steps:
            self.now_s += seconds
            getattr(self, step)()

    def work(self):
        """Some time in which all is well: fences return, points come."""
        for _ in range(90):
            self.now_s += 2.0
            self.send_fence()
            self.publish_point()
            self.deliver(len(self.held))


STEPS = st.sampled_from(["publish_point", "send_fence", "forge_fence", "deliver", "restart", "work"])
SECONDS = st.floats(0, 20) | st.floats(0, 5000)


@given(st.lists(st.tuples(STEPS, SECONDS), max_size=60))
def test_a_point_that_counts_was_taken_by_the_broker_within_the_tolerance(steps):
    session = OrderedSession()
    session.work()
    session.play(steps)
    session.deliver(len(session.held))
    for point, at_s in session.accepted:
        assert 0 <= at_s - session.published_s[point] < session.fence.tolerance_s


@given(st.lists(st.tuples(STEPS, SECONDS), max_size=20))
def test_when_all_is_well_again_points_count_again(steps):
    session = OrderedSession()
    session.play(steps)
    session.deliver(len(session.held))
    session.work()
    before = len(session.accepted)
    session.work()
    assert len(session.accepted) - before == 90


def test_a_point_counts_only_after_fences_have_returned_for_a_while():
    fence = DeliveryFence(STEP_S)
    assert not fence.is_open(START_S)
    return_fences(fence, START_S, START_S + NEW.settle_s - 1)
    assert not fence.is_open(START_S + NEW.settle_s - 1)
    return_fences(fence, START_S + NEW.settle_s, START_S + NEW.settle_s)
    assert fence.is_open(START_S + NEW.settle_s)


@pytest.mark.parametrize("pause_s", [15.0, 16.0, 2475.0])
def test_after_a_gap_it_takes_as_long_again(pause_s):
    fence, end_s = DeliveryFence(STEP_S), START_S + 300
    return_fences(fence, START_S, end_s)
    assert fence.is_open(end_s + 14.9)
    assert not fence.is_open(end_s + pause_s)
    return_fences(fence, end_s + pause_s, end_s + pause_s + 149)
    assert not fence.is_open(end_s + pause_s + 149)


@pytest.mark.parametrize("step_s", [-1.0, -3600.0, 16.0, 3600.0])
def test_a_clock_that_is_set_is_a_gap(step_s):
    fence, end_s = DeliveryFence(STEP_S), START_S + 300
    return_fences(fence, START_S, end_s)
    assert not fence.is_open(end_s + step_s)
    return_fences(fence, end_s + step_s, end_s + step_s)
    assert not fence.is_open(end_s + step_s)


def test_a_fence_that_took_too_long_is_replaced_and_does_not_count():
    fence = DeliveryFence(STEP_S)
    late = fence.next_fence(START_S)
    assert fence.next_fence(START_S + 14) is None
    again = fence.next_fence(START_S + 15)
    assert fence.lost_in_row == 1
    fence.note_return(late, START_S + 15)
    assert fence.returned_s < START_S
    fence.note_return(again, START_S + 16)
    assert (fence.returned_s, fence.lost_in_row) == (START_S + 15, 0)


def test_a_fence_that_comes_twice_counts_once():
    fence = DeliveryFence(STEP_S)
    payload = fence.next_fence(START_S)
    fence.note_return(payload, START_S + 1)
    second = fence.next_fence(START_S + 2)
    fence.note_return(payload, START_S + 3)
    assert fence.returned_s == START_S
    assert payload != second
