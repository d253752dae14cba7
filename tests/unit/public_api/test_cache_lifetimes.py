"""How long others may keep an answer: for all moments t at which it is given, and all t' until it expires, the answer
at t' is the answer at t, whatever the log has published in between.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from unittest.mock import patch

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.web_server import fetch
from tests.support.zone_views import seconds, shard_of, terms_with

from murmurate.public_log.zone_table import ClosedZone, ZoneRow, ZoneTable
from murmurate.service.log_reader.follower import ChangedShard
from murmurate.service.log_reader.zone_view import format_rfc3339
from murmurate.service.public_api import app, response_cache
from murmurate.service.public_api.app import public_app
from murmurate.service.public_api.live_state import LiveState
from murmurate.service.settings import ServiceSettings

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"
BEGIN_S = seconds(2026, 11, 14)
FINAL = (
    "now",
    "prices?from={first}&to={last}",
    "evcc/api/tariff/grid",
    "awattar/v1/marketdata?start={first}&end={last}",
)
CHANGING = (
    "prices",
    "prices?from={first}",
    "prices?from={first}&to=07:00",
    "evcc",
    "days",
    "history.csv",
    "cheapest?hours=2",
)


def logged_shard(count: int, interval_s: int, lead: int, *, is_closed: bool = False):
    """A shard of two zones whose prices were decided for `count` intervals. Some are withheld."""
    first = BEGIN_S // interval_s
    rows = [ZoneRow(zone, "0" * 64, "EUR", "1/100000", first - lead) for zone in ("harbour", "quay")]
    ticks = [[None if n % 5 == 3 else 8000 + 7 * n + at for n in range(count)] for at in range(2)]
    shard = shard_of(rows, ticks, interval_s=interval_s, lead=lead, name="quays")
    if not is_closed:
        return shard
    table = ZoneTable((rows[1],), (ClosedZone(*rows[0], shard.last, 0, 0),))
    object.__setattr__(shard.head, "table", table)
    return shard


class Answers:
    """The public API at moments that a test chooses, on one log."""

    def __init__(self, interval_s: int, lead: int) -> None:
        self.interval_s, self.lead = interval_s, lead
        self.state = LiveState(NOWHERE, ServiceSettings(url="https://x.example"))
        self.state.plan_terms.put("0" * 64, terms_with([9000, 8000], interval_s, "EUR"))
        self.app = public_app(self.state)

    def show(self, count: int, *, is_closed: bool = False) -> None:
        self.state.show_shard(
            ChangedShard(logged_shard(count, self.interval_s, self.lead, is_closed=is_closed), range(0))
        )

    def at(self, at_s: float, path: str) -> httpx.Response:
        with patch("time.time", lambda: at_s):
            return fetch(self.app, f"/zones/harbour/{path}")

    def close(self) -> None:
        self.state.lookup_threads.stop()
        self.state.bulk_threads.stop()
        self.state.close()


def kept_until_s(answer: httpx.Response) -> float:
    """The end of the second that `Expires` names: nginx keeps an answer up to it, others less long."""
    assert answer.headers["cache-control"] == "public, must-revalidate"
    return parsedate_to_datetime(answer.headers["expires"]).timestamp() + 1


MOMENTS = st.tuples(
    st.sampled_from((60, 900, 3600, 5400)),  # an interval [s]
    st.integers(1, 4),  # lead
    st.integers(1, 40),  # prices that are decided
    st.integers(-2, 4),  # intervals from the current one to the last one that is decided
    st.integers(0, 999),  # how much of the current interval is over [1/1000]
    st.integers(0, 3),  # tiles that are published before the second answer
    st.integers(0, 999),  # when in the life of the first answer the second is given [1/1000]
    st.booleans(),  # whether the zone was closed
)


def broken_promise(path: str, moment) -> str:
    """Return what is wrong with the answers to a path at a moment and a later one; empty: nothing."""
    interval_s, lead, count, ahead, over, tiles, age, is_closed = moment
    first, last = BEGIN_S // interval_s, BEGIN_S // interval_s + count - 1
    asked_s = (last - ahead + over / 1000) * interval_s
    filled = path.format(first=format_rfc3339(first * interval_s), last=format_rfc3339(last * interval_s))
    answers = Answers(interval_s, lead)
    try:
        answers.show(count, is_closed=is_closed)
        before = answers.at(asked_s, filled)
        if before.status_code != 200:
            return "" if before.headers["cache-control"] == "no-store" else "an error may be kept"
        life_s = kept_until_s(before) - asked_s
        if life_s <= 0:
            return ""
        is_final = life_s > response_cache.MAX_AGE_S
        if not is_final and path.endswith(":00"):
            return ""  # up to a time of the clock, which may be over within these seconds
        later_s = asked_s + age / 1000 * life_s
        answers.show(count + (tiles if is_final and not is_closed else 0), is_closed=is_closed)
        after = answers.at(later_s, filled)
        if (after.status_code, after.content) != (before.status_code, before.content):
            return f"{filled} at {asked_s} was kept for {life_s} s, and differs {later_s - asked_s} s later"
        return "" if kept_until_s(after) >= kept_until_s(before) or not is_final else "the end came nearer"
    finally:
        answers.close()


@pytest.mark.slow
@pytest.mark.parametrize("path", [*FINAL, *CHANGING])
@given(moment=MOMENTS)
def test_an_answer_stays_the_same_until_it_expires(path, moment) -> None:
    assert broken_promise(path, moment) == ""


def always_final(monkeypatch: pytest.MonkeyPatch) -> str:
    """The price now may be kept although its next price is not decided."""
    right = app.CachedResponse.from_json
    monkeypatch.setattr(app.CachedResponse, "from_json", lambda document, **_: right(document, is_final=True))
    return "now"


def to_the_end(monkeypatch: pytest.MonkeyPatch) -> str:
    """`Expires` names the end of the interval itself."""
    right = response_cache._http_date
    monkeypatch.setattr(response_cache, "_http_date", lambda at_s: right(at_s + 1))
    return "now"


def clock_times(monkeypatch: pytest.MonkeyPatch) -> str:
    """A stretch up to the next 07:30 may be kept until the end of an interval in which that is over."""
    monkeypatch.setattr(app.query_params, "has_clock_time", lambda *_: False)
    return "prices?from={first}&to=00:30"


@pytest.mark.slow
@pytest.mark.parametrize("plant", [always_final, to_the_end, clock_times])
def test_a_longer_life_is_found(plant, monkeypatch) -> None:
    path = plant(monkeypatch)
    moments = [
        (interval_s, 4, 40, ahead, over, tiles, 999, False)
        for interval_s in (900, 5400) for ahead in (0, 1, 39) for over in (100, 500) for tiles in (0, 1)
    ]  # fmt: skip
    assert any(broken_promise(path, moment) for moment in moments)


def test_a_price_now_is_kept_to_the_end_of_its_interval_once_the_next_price_is_decided() -> None:
    answers = Answers(900, 2)
    try:
        answers.show(3)  # the intervals 0, 1 and 2
        for interval, expected_s in ((0, 900), (1, 900), (2, 5 + 0.5)):
            asked_s = BEGIN_S + 900 * interval + 0.5
            answer = answers.at(asked_s, "now")
            assert kept_until_s(answer) - asked_s == pytest.approx(expected_s - 0.5, abs=1)
            again = answers.at(asked_s + 100, "now")  # from the cache: no later end
            assert (kept_until_s(again) == kept_until_s(answer)) == (interval < 2)
    finally:
        answers.close()


def test_who_has_the_answer_learns_how_long_to_keep_it() -> None:
    answers = Answers(900, 2)
    try:
        answers.show(10)
        with patch("time.time", lambda: BEGIN_S + 100.0):
            whole = fetch(answers.app, "/zones/harbour/now")
            short = fetch(answers.app, "/zones/harbour/now", headers={"if-none-match": whole.headers["etag"]})
        assert (short.status_code, short.headers["expires"]) == (304, whole.headers["expires"])
        assert kept_until_s(short) == BEGIN_S + 900
    finally:
        answers.close()
