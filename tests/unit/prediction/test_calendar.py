"""Months, types of day and times of day, against the calendar of the standard library."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from murmurate.prediction.calendar import DayType, find_month, locate_intervals

FIRST = date(1970, 1, 1)


def test_every_day_has_its_month():
    days = np.arange(0, 80 * 366)
    assert find_month(days).tolist() == [(FIRST + timedelta(int(day))).month - 1 for day in days]


@given(interval=st.integers(0, 96 * 40_000), offset_min=st.integers(-12 * 60, 14 * 60), slots=st.sampled_from([24, 96]))
def test_an_interval_falls_where_the_local_clock_says(interval, offset_min, slots):
    at = datetime.fromtimestamp(interval * 86_400 // slots, UTC) + timedelta(minutes=offset_min)
    if at.year < 1970:
        return
    place = locate_intervals(np.array([interval]), slots, offset_min)
    kind = {5: DayType.SATURDAY, 6: DayType.SUNDAY}.get(at.weekday(), DayType.WORKDAY)
    slot = (at.hour * 60 + at.minute) * slots // 1440
    assert (place.month[0], place.day_type[0], place.slot[0], place.hour[0]) == (
        at.month - 1,
        kind,
        slot,
        slot * 24 // slots,
    )


def test_a_holiday_is_a_sunday_in_local_time():
    new_year = (date(2026, 1, 1) - FIRST).days
    hours = np.arange(24 * new_year - 2, 24 * new_year + 26)
    types = locate_intervals(hours, 24, 60, {new_year}).day_type
    assert types.tolist() == [DayType.WORKDAY] + [DayType.SUNDAY] * 24 + [DayType.WORKDAY] * 3
