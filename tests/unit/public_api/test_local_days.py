"""Local days follow each other without a gap, in every time zone that makes it hard."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from tests.support.zone_views import AWKWARD, seconds, view_of, views

from murmurate.service.log_reader.zone_view import ZoneView
from murmurate.service.public_api.local_days import day_of_interval, intervals_of_day, is_day_complete, recent_days

DAYS = [date(2026, 1, 1) + timedelta(days=n) for n in range(731)]


def local_date(view: ZoneView, interval: int) -> date:
    return datetime.fromtimestamp(view.start_s(interval), UTC).astimezone(view.display.timezone).date()


@pytest.mark.slow
@pytest.mark.parametrize("interval_s", [900, 1800, 3600])
@pytest.mark.parametrize("timezone", AWKWARD)
def test_the_days_of_two_years_share_out_every_interval(timezone: str, interval_s: int) -> None:
    view = view_of(timezone=timezone, interval_s=interval_s)
    ranges = [intervals_of_day(view, day) for day in DAYS]
    assert all(before.stop == after.start for before, after in pairwise(ranges))
    for day, own in zip(DAYS, ranges, strict=True):
        assert {local_date(view, interval) for interval in own} == {day}


@pytest.mark.parametrize("timezone", AWKWARD)
def test_an_interval_is_in_the_day_that_it_is_said_to_be_in(timezone: str) -> None:
    view = view_of(timezone=timezone)
    for day in DAYS[60:90] + DAYS[270:320]:
        assert {day_of_interval(view, interval) for interval in intervals_of_day(view, day)} == {day}


@pytest.mark.parametrize(
    ("timezone", "day", "count"),
    [
        ("Europe/Zurich", date(2026, 3, 29), 92),
        ("Europe/Zurich", date(2026, 10, 25), 100),
        ("Europe/Zurich", date(2026, 11, 14), 96),
        ("America/New_York", date(2026, 3, 8), 92),
        ("America/New_York", date(2026, 11, 1), 100),
        ("Australia/Lord_Howe", date(2026, 4, 5), 98),
        ("Australia/Lord_Howe", date(2026, 10, 4), 94),
        ("America/Havana", date(2025, 3, 9), 92),
        ("America/Havana", date(2025, 11, 2), 100),
        ("Asia/Beirut", date(2026, 3, 29), 92),
        ("Pacific/Apia", date(2011, 12, 30), 0),
    ],
)
def test_a_day_on_which_the_clock_changes_has_its_own_number_of_quarter_hours(
    timezone: str, day: date, count: int
) -> None:
    assert len(intervals_of_day(view_of(timezone=timezone), day)) == count


def test_a_day_begins_with_the_jump_where_the_clock_jumps_over_midnight() -> None:
    """Toronto, 1919-03-30: from 23:30 to 00:30 of the next day (tz database)."""
    view = view_of(timezone="America/Toronto")
    assert view.start_s(intervals_of_day(view, date(1919, 3, 31)).start) == seconds(1919, 3, 31, 4, 30)


def test_a_day_that_has_begun_goes_on_where_the_clock_is_put_back_over_midnight() -> None:
    """St. John's, 2010-11-07: from 00:01 back to 23:01 of the day before (tz database)."""
    view = view_of(timezone="America/St_Johns")
    begun = intervals_of_day(view, date(2010, 11, 7))
    assert [day_of_interval(view, begun.start + n) for n in (-1, 0, 1, 4)] == [date(2010, 11, 6)] + [
        date(2010, 11, 7)
    ] * 3
    assert len(begun) == 100


def test_hours_of_india_begin_at_half_past() -> None:
    view = view_of(timezone="Asia/Kolkata", interval_s=3600)
    own = intervals_of_day(view, date(2026, 11, 14))
    assert (len(own), view.start_s(own.start)) == (24, seconds(2026, 11, 13, 19))


def test_a_day_is_whole_from_its_last_decision_on() -> None:
    begin_s = seconds(2026, 11, 13, 23)
    assert is_day_complete(view_of([1] * 96, begin_s=begin_s), date(2026, 11, 14))
    assert not is_day_complete(view_of([1] * 95, begin_s=begin_s), date(2026, 11, 14))
    assert not is_day_complete(view_of([1] * 200, begin_s=begin_s + 900), date(2026, 11, 14))


def test_a_day_that_never_was_is_never_whole() -> None:
    view = view_of([1] * 400, begin_s=seconds(2011, 12, 29), timezone="Pacific/Apia")
    assert not is_day_complete(view, date(2011, 12, 30))
    assert list(recent_days(view)) == [date(2011, 12, n) for n in (28, 29, 31)] + [date(2012, 1, n) for n in (1, 2)]


@given(views())
def test_recent_days_are_those_known_from_their_begin_to_the_last_decision(view: ZoneView) -> None:
    days = list(recent_days(view))
    assert days == sorted(days)
    for day in days:
        own = [
            interval for interval in intervals_of_day(view, day) if view.first_priced <= interval <= view.last_decided
        ]
        assert own
        assert all(interval in view.prices for interval in own)
    if view.prices and min(view.prices) == view.first_priced:
        assert days[0] == day_of_interval(view, view.first_priced)
    for interval in view.prices:
        day = day_of_interval(view, interval)
        assert day in days or max(intervals_of_day(view, day).start, view.first_priced) < min(view.prices)
