"""Rows of a file with a row for each meter and day: when each of its cells begins, clock changes included.

Columns that are named by the clock (00:00..23:30) leave out the hour that clocks skip, and need columns of their own
for the hour that occurs twice (`02:00 (2)`). Columns that are numbered (HH1..HH48) count since midnight: a day has 46,
48 or 50 half hours. Where a file has too few columns for a day, the cells after the change are refused, not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from murmurate.reading_import.columns import Columns
from murmurate.reading_import.local_time import FileClock, local_midnight, place_local_time
from murmurate.reading_import.refused_cells import DAY_LENGTH, NO_SUCH_TIME, NOT_A_TIME
from murmurate.units import SECONDS_PER_DAY

_MAX_DAYS = 20_000  # that are remembered: 50 years


@dataclass(frozen=True, slots=True)
class DayCells:
    """The cells of a day, in the order of the slots."""

    starts: tuple[int | str, ...]  # [s of UTC], or the reason why the cell is refused
    after_change: int  # number of the first slot after a clock change; where there is none, the number of slots


class DayClock:
    """Places the cells of days. Each day is computed once."""

    def __init__(self, columns: Columns, clock: FileClock, length_s: int) -> None:
        self._columns, self._clock, self._length_s = columns, clock, length_s
        self._nominal = SECONDS_PER_DAY // length_s
        self._has_repeated = {slot.number for slot in columns.slots if slot.is_repeated}
        self._remembered = lru_cache(_MAX_DAYS)(self._place_day)

    def place_day(self, text: str) -> DayCells | str:
        """Return the cells of the day that a cell names, or the reason why the row is refused."""
        return self._remembered(text)

    def _place_day(self, text: str) -> DayCells | str:
        day = self._clock.parse_date(text)
        if day is None:
            return NOT_A_TIME
        zone = self._clock.zone
        if self._columns.by_clock:
            return DayCells(tuple(self._by_clock(day, zone)), len(self._columns.slots))
        return self._since_midnight(day, zone)

    def _by_clock(self, day: date, zone: ZoneInfo) -> list[int | str]:
        starts: list[int | str] = []
        for slot in self._columns.slots:
            local = datetime(day.year, day.month, day.day) + timedelta(seconds=slot.number * self._length_s)  # noqa: DTZ001
            moment = place_local_time(local, zone)
            if isinstance(moment, str):
                starts.append(moment)
            elif slot.is_repeated:
                starts.append(moment.start_s + moment.later_s if moment.later_s else NO_SUCH_TIME)
            else:
                is_open = moment.later_s and slot.number not in self._has_repeated
                starts.append(DAY_LENGTH if is_open else moment.start_s)
        return starts

    def _since_midnight(self, day: date, zone: ZoneInfo) -> DayCells:
        midnight_s = local_midnight(day, zone)
        length = (local_midnight(day + timedelta(days=1), zone) - midnight_s) // self._length_s
        count = len(self._columns.slots)
        change = count if length == self._nominal else self._first_after_change(midnight_s, length, zone)
        too_few = count < length
        starts: list[int | str] = []
        for slot in self._columns.slots:
            if slot.number >= length:
                starts.append(NO_SUCH_TIME)
            else:
                is_open = too_few and slot.number >= change
                starts.append(DAY_LENGTH if is_open else midnight_s + slot.number * self._length_s)
        return DayCells(tuple(starts), change)

    def _first_after_change(self, midnight_s: int, length: int, zone: ZoneInfo) -> int:
        """The first interval of the day whose local time differs from that of other days, or occurs twice."""
        offset = _utc_offset(midnight_s, zone)
        for number in range(length):
            later = _utc_offset(midnight_s + number * self._length_s, zone)
            if later != offset:
                return number - max(int((offset - later).total_seconds()) // self._length_s, 0)
        return length


def _utc_offset(at_s: int, zone: ZoneInfo) -> timedelta:
    return datetime.fromtimestamp(at_s, zone).utcoffset() or timedelta(0)


def is_filled(cell: str) -> bool:
    """Return whether a cell that should be empty says something: zeros are how some files write nothing."""
    return bool(cell.strip().strip("0.,-")) and cell.strip().lower() not in {"null", "nan", "na", "n/a"}


def count_by_clock(cells: DayCells, row: Sequence[str], columns: Columns) -> bool:
    """Return whether a row has values beyond the end of a short day: its columns then do not count since midnight."""
    return not columns.by_clock and any(
        start is NO_SUCH_TIME and is_filled(row[slot.column])
        for start, slot in zip(cells.starts, columns.slots, strict=True)
    )
