"""Which month, type of day and time of day an interval falls on, in local time. Arithmetic on day numbers only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from murmurate.units import SECONDS_PER_DAY, BoolArray, IntArray

MONTHS, DAY_TYPES = 12, 3
_MONDAY_FIRST = 3  # 1970-01-01 was a Thursday
_DAYS_OF_400_YEARS = 146_097
_DAYS_TO_MARCH_0 = 719_468  # from 0000-03-01 to 1970-01-01


class DayType(IntEnum):
    """What kind of day it is for the use of electricity. Holidays are Sundays."""

    WORKDAY = 0
    SATURDAY = 1
    SUNDAY = 2


@dataclass(frozen=True, slots=True, eq=False)
class CalendarSlots:
    """The place of some intervals in the local calendar."""

    month: IntArray  # 0: January
    day_type: IntArray
    slot: IntArray  # interval of the local day
    slots_per_day: int

    @property
    def hour(self) -> IntArray:
        return self.slot * 24 // self.slots_per_day

    def __len__(self) -> int:
        return len(self.slot)

    def __getitem__(self, chosen: slice | BoolArray) -> CalendarSlots:
        """Some of the intervals."""
        return CalendarSlots(self.month[chosen], self.day_type[chosen], self.slot[chosen], self.slots_per_day)


def locate_intervals(
    interval: IntArray, slots_per_day: int, offset_min: IntArray | int = 0, holidays: Collection[int] = ()
) -> CalendarSlots:
    """Return where intervals fall in the calendar. Intervals count from 1970 in UTC.

    `offset_min` is local time minus UTC at each interval [min]; `holidays` are local days, counted from 1970-01-01.

    >>> place = locate_intervals(np.array([19_723 * 96 + 95]), 96, 60)  # 2024-01-01 23:45 UTC, in Zurich
    >>> place.month.tolist(), place.day_type.tolist(), place.slot.tolist()
    ([0], [0], [3])
    """
    interval_s = SECONDS_PER_DAY // slots_per_day
    local_s = np.asarray(interval, np.int64) * interval_s + np.asarray(offset_min, np.int64) * 60
    day = local_s // SECONDS_PER_DAY
    weekday = (day + _MONDAY_FIRST) % 7
    day_type = np.where(weekday < 5, DayType.WORKDAY, np.where(weekday == 5, DayType.SATURDAY, DayType.SUNDAY))
    if holidays:
        day_type = np.where(np.isin(day, list(holidays)), DayType.SUNDAY, day_type)
    return CalendarSlots(
        find_month(day), day_type.astype(np.int64), local_s % SECONDS_PER_DAY // interval_s, slots_per_day
    )


def find_month(day: IntArray) -> IntArray:
    """Return the month (0: January) of days counted from 1970-01-01, in the Gregorian calendar.

    >>> find_month(np.array([0, 30, 31, 59, 789, 790])).tolist()  # 1972 has a 29th of February
    [0, 0, 1, 2, 1, 2]
    """
    of_era = (np.asarray(day, np.int64) + _DAYS_TO_MARCH_0) % _DAYS_OF_400_YEARS
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)  # from the 1st of March
    from_march = (5 * of_year + 2) // 153
    return np.asarray((from_march + 2) % MONTHS)
