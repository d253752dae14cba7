"""Limits on requests by key: a burst, then so many a second, in bounded memory."""

import asyncio
import threading
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from murmurate.service.web import request_limits
from murmurate.service.web.request_limits import (
    AnonymousLimits,
    RequestLimit,
    TooManyRequestsError,
    client_address,
)


@given(st.lists(st.tuples(st.floats(0, 20), st.sampled_from("ab")), max_size=200))
def test_no_key_passes_more_than_its_burst_and_its_rate(requests):
    clock, passed = [0.0], {"a": [], "b": []}
    limit = RequestLimit(2.0, 5, now=lambda: clock[0])
    for pause_s, key in requests:
        clock[0] += pause_s
        if limit.allows(key):
            limit.count(key)
            passed[key].append(clock[0])
    for times in passed.values():
        for first, begin in enumerate(times):
            for last in range(first, len(times)):
                assert last - first + 1 <= 5 + 2.0 * (times[last] - begin) + 1e-6


def test_a_key_that_was_quiet_has_its_burst_again():
    clock = [0.0]
    limit = RequestLimit(1.0, 3, now=lambda: clock[0])
    for _ in range(5):
        limit.count("a")
    assert (limit.allows("a"), limit.allows("b")) == (False, True)
    clock[0] += 1
    assert limit.allows("a")


def test_the_number_of_known_keys_is_bounded(monkeypatch):
    monkeypatch.setattr(request_limits, "MAX_KNOWN_KEYS", 10)
    limit = RequestLimit(1.0, 1)
    for number in range(1000):
        limit.count(str(number))
    assert len(limit._used) == 10
    assert not limit.allows("999")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=200))
def test_answers_go_out_at_the_pace_and_none_waits_longer_than_its_bound(pauses):
    clock, answered = [0.0], []
    pace = RequestLimit(10.0, 5, max_wait_s=1e9, now=lambda: clock[0])
    short = RequestLimit(10.0, 5, max_wait_s=2.0, now=lambda: clock[0])
    for pause_s in pauses:
        clock[0] += pause_s
        answered.append(clock[0] + pace.count())
        assert 0 <= short.count() <= 2.0 + 1e-6
    assert answered == sorted(answered)
    for first, begin in enumerate(answered):
        for last in range(first, len(answered)):
            assert last - first + 1 <= 5 + 10.0 * (answered[last] - begin) + 1e-6


def test_few_credentials_are_looked_up_at_once_and_not_too_many_wait(monkeypatch):
    monkeypatch.setattr(request_limits, "MAX_WAITING_LOOKUPS", 20)
    lock, running, peaks = threading.Lock(), [0], []

    def look_up():
        with lock:
            running[0] += 1
            peaks.append(running[0])
        threading.Event().wait(0.01)
        with lock:
            running[0] -= 1

    async def ask():
        limits = AnonymousLimits()
        first = await asyncio.gather(*(limits.look_up(look_up) for _ in range(50)), return_exceptions=True)
        return first, await limits.look_up(lambda: "found")

    answers, later = asyncio.run(ask())
    assert [type(answer) for answer in answers] == [type(None)] * 20 + [TooManyRequestsError] * 30
    assert max(peaks) <= request_limits.MAX_LOOKUPS_AT_ONCE
    assert later == "found"


def test_an_ipv6_client_counts_by_its_network_and_one_without_an_address_as_unknown():
    hosts = [SimpleNamespace(host="2001:db8::1:2:3:4"), None]
    assert [client_address(SimpleNamespace(client=host)) for host in hosts] == ["2001:db8::/64", "unknown"]
