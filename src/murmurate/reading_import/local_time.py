"""Times of a file as seconds of UTC, with both meanings of a local time that occurs twice.

When clocks go back, an hour of local time occurs twice; when they go forward, an hour does not occur at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from murmurate.errors import ReadingError
from murmurate.reading_import.cell_values import MAX_REMEMBERED_TEXTS
from murmurate.reading_import.refused_cells import NO_SUCH_TIME, NOT_A_TIME
from murmurate.time_zones import load_time_zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNIX_DIGITS = re.compile(r"([0-9]{9,10})(?:000)?(?:\.0+)?")  # seconds or milliseconds since 1970
_DAY_FIRST = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})(?:[ T,]+(.+))?", re.ASCII)
_END_OF_DAY = re.compile(r"(.*[ T])24:00(?::00)?", re.ASCII)
_FRACTION = re.compile(r"(:\d\d)\.0+(?=$|[+-]|Z)", re.ASCII)


class DateOrder(Enum):
    """Which number of a date such as 03/04/2026 is the day."""

    DAY_FIRST = "dmy"
    MONTH_FIRST = "mdy"


class Moment(NamedTuple):
    """A time of a file [s of UTC]."""

    start_s: int
    later_s: int = 0  # by how much later the second meaning of a local time is that occurs twice; else 0


def detect_date_order(cells: Iterable[str], place: str) -> DateOrder:
    """Return the order of dates such as 31/01/2026. Raises ReadingError where slashes leave it open.

    >>> detect_date_order(["03/04/2026", "03/31/2026"], "a.csv")
    <DateOrder.MONTH_FIRST: 'mdy'>
    """
    found: set[DateOrder] = set()
    is_open = False
    for match in (_DAY_FIRST.fullmatch(cell.strip()) for cell in set(cells)):
        if match is not None and match[2] != ".":
            is_open = True
            found |= {DateOrder.DAY_FIRST} if int(match[1]) > 12 else set()
            found |= {DateOrder.MONTH_FIRST} if int(match[3]) > 12 else set()
    if is_open and len(found) != 1:
        what = "with the day first and the month first" if found else "with dates that can be read in two ways"
        raise ReadingError(place, what, "must be told which comes first: --dates dmy or --dates mdy")
    return found.pop() if found else DateOrder.DAY_FIRST


class FileClock:
    """Reads times of a file. `time_zone` None: every time must have an offset from UTC, or be in Unix time."""

    def __init__(self, time_zone: str | None, order: DateOrder = DateOrder.DAY_FIRST) -> None:
        self._zone = None if time_zone is None else load_time_zone(time_zone)
        self._order = order
        self._remembered = lru_cache(MAX_REMEMBERED_TEXTS)(self._parse)

    def parse_time(self, text: str) -> Moment | str:
        """Return a time, or the reason why it is refused. Raises ReadingError if a time zone is needed."""
        return self._remembered(text.strip())

    def parse_date(self, text: str) -> date | None:
        """Return the day that a cell names, at midnight or without a time."""
        when = _parse_naive(text.strip(), self._order)
        return None if when is None or when.time() != datetime.min.time() else when.date()

    @property
    def zone(self) -> ZoneInfo:
        """The zone of local times. Raises ReadingError if none was given."""
        if self._zone is None:
            allowed = "must be read with --timezone UTC, or --timezone Europe/Zurich and the like"
            raise ReadingError("times", "without an offset from UTC", allowed)
        return self._zone

    def _parse(self, text: str) -> Moment | str:
        if match := _UNIX_DIGITS.fullmatch(text):
            return Moment(int(match[1]))
        when = _parse_naive(text, self._order)
        if when is None or when.microsecond:
            return NOT_A_TIME
        return Moment(_to_seconds(when)) if when.tzinfo is not None else place_local_time(when, self.zone)


def place_local_time(local: datetime, zone: ZoneInfo) -> Moment | str:
    """Return when a local time was, or the reason why it never was.

    >>> zone = load_time_zone("Europe/Zurich")
    >>> place_local_time(datetime(2025, 10, 26, 2, 30), zone)
    Moment(start_s=1761438600, later_s=3600)
    """
    first, second = (_to_seconds(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first > second:  # the offset before a gap is the smaller one
        return NO_SUCH_TIME
    return Moment(first, second - first)


def local_midnight(day: date, zone: ZoneInfo) -> int:
    """Return when a local day begins [s of UTC]; where clocks skip midnight, with the first time after it."""
    return _to_seconds(datetime(day.year, day.month, day.day, tzinfo=zone))


def _parse_naive(text: str, order: DateOrder) -> datetime | None:
    if match := _END_OF_DAY.fullmatch(text):
        before = _parse_naive(f"{match[1]}00:00", order)
        return None if before is None else before + timedelta(days=1)
    if match := _DAY_FIRST.fullmatch(text):
        first, second, year, clock = match[1], match[3], match[4], match[5]
        is_month_first = order is DateOrder.MONTH_FIRST and match[2] != "."
        day, month = (second, first) if is_month_first else (first, second)
        text = f"{year}-{month:0>2}-{day:0>2}T{(clock or '00:00').zfill(5)}"
    try:
        return datetime.fromisoformat(_FRACTION.sub(r"\1", text))
    except ValueError:
        return None


def _to_seconds(when: datetime) -> int:
    since = when.astimezone(UTC) - _EPOCH
    return since.days * 86_400 + since.seconds
