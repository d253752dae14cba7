"""Local days on the grid of UTC: a customer's day has 23, 24 or 25 hours, an interval never changes its length.

A local day begins at the first moment at which its date is on the calendar there. That also holds where the clock jumps
over midnight (Havana, Beirut), where it jumps over a whole day (Apia in 2011: that day has no intervals), and where it
is put back over midnight: the hour that is lived twice then belongs to the day that has already begun. So days are
stretches that follow each other without a gap, and an interval belongs to the day in which it begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from murmurate.service.log_reader.zone_view import ZoneView, format_rfc3339

_ONE_DAY = timedelta(days=1)


def interval_start_end(view: ZoneView, interval: int) -> dict[str, str]:
    """Start and end of an interval. With the start alone a client would have to guess the length."""
    return {"start": format_rfc3339(view.start_s(interval)), "end": format_rfc3339(view.start_s(interval + 1))}


def day_of_interval(view: ZoneView, interval: int) -> date:
    """The local day in which an interval begins."""
    return _day_at(view.start_s(interval), view.display.timezone)


def _day_at(at_s: int, timezone: ZoneInfo) -> date:
    day = _date_at(at_s, timezone)
    return day + _ONE_DAY if day_start_s(day + _ONE_DAY, timezone) <= at_s else day


def intervals_of_day(view: ZoneView, day: date) -> range:
    """The intervals that begin in a local day: 96 of a quarter of an hour, 92 or 100 where the clock changes."""
    return steps_of_day(view.display.timezone, day, view.interval_s)


def steps_of_day(timezone: ZoneInfo, day: date, step_s: int) -> range:
    """The same for steps of any length: step n is the time from n * step_s to (n + 1) * step_s [s of UTC]."""
    begin_s, end_s = day_start_s(day, timezone), day_start_s(day + _ONE_DAY, timezone)
    return range(-(-begin_s // step_s), -(-end_s // step_s))


def today_and_tomorrow(view: ZoneView, now_s: float) -> range:
    """The intervals of the local day of a moment, and of the day after it."""
    today = day_of_interval(view, view.interval_at(now_s))
    return range(intervals_of_day(view, today).start, intervals_of_day(view, today + _ONE_DAY).stop)


def is_day_complete(view: ZoneView, day: date) -> bool:
    """Whether every interval of a local day has its final word. What is whole never changes again."""
    intervals = intervals_of_day(view, day)
    return bool(intervals) and view.first_priced <= intervals[0] and intervals[-1] <= view.last_decided


def recent_days(view: ZoneView) -> Sequence[date]:
    """The local days that the view knows from their begin, or from the zone's own begin, ascending."""
    known = view.known_intervals
    if not known:
        return ()
    return _days_between(known[0], view.first_priced, view.last_decided, view.interval_s, view.display.timezone)


@lru_cache(maxsize=1024)  # zones of a shard that were opened together have the same
def _days_between(oldest: int, first: int, last: int, interval_s: int, timezone: ZoneInfo) -> tuple[date, ...]:
    begin, end = (_day_at(interval * interval_s, timezone) for interval in (oldest, last))
    days = (begin + _ONE_DAY * n for n in range((end - begin).days + 1))
    return tuple(
        day for day in days if (own := steps_of_day(timezone, day, interval_s)) and oldest <= max(own[0], first)
    )


@lru_cache(maxsize=4096)
def day_start_s(day: date, timezone: ZoneInfo) -> int:
    """The first moment of a local day [s of UTC].

    A midnight that the clock shows twice begins the day the first time. One that it never shows lies in a gap: its two
    readings (PEP 495) then stand on either side of the jump, and the day begins with the jump.
    """
    midnight = datetime.combine(day, time(), timezone)
    first_s = int(midnight.timestamp())
    early_s = min(first_s, int(midnight.replace(fold=1).timestamp()))
    return early_s + bisect_left(range(early_s, first_s), day, key=lambda at_s: _date_at(at_s, timezone))


def _date_at(at_s: int, timezone: ZoneInfo) -> date:
    return datetime.fromtimestamp(at_s, UTC).astimezone(timezone).date()
