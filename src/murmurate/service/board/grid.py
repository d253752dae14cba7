"""Local days on the grid of UTC: a customer's day has 23, 24 or 25 hours, an interval never changes its length.

A local day begins at the first moment at which its date is on the calendar there. That also holds where the clock jumps
over midnight (Havana, Beirut), where it jumps over a whole day (Apia in 2011: that day has no intervals), and where it
is put back over midnight: the hour that is lived twice then belongs to the day that has already begun. So days are
stretches that follow each other without a gap, and an interval belongs to the day in which it begins.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from murmurate.service.board.view import ZoneView, rfc3339

_DAY = timedelta(days=1)


def span(view: ZoneView, interval: int) -> dict[str, str]:
    """When an interval begins and ends. The end is said too: whoever only knows the start has to guess the rest."""
    return {"start": rfc3339(view.begin_s(interval)), "end": rfc3339(view.begin_s(interval + 1))}


def day_of(view: ZoneView, interval: int) -> date:
    """The local day in which an interval begins."""
    begin_s, timezone = view.begin_s(interval), view.sign.timezone
    day = _date_at(begin_s, timezone)
    return day + _DAY if _begin_s(day + _DAY, timezone) <= begin_s else day


def intervals_of(view: ZoneView, day: date) -> range:
    """The intervals that begin in a local day: 96 of a quarter of an hour, 92 or 100 where the clock changes."""
    return steps_of(view.sign.timezone, day, view.interval_s)


def steps_of(timezone: ZoneInfo, day: date, step_s: int) -> range:
    """The same for steps of any length: step n is the time from n * step_s to (n + 1) * step_s [s of UTC]."""
    begin_s, end_s = _begin_s(day, timezone), _begin_s(day + _DAY, timezone)
    return range(-(-begin_s // step_s), -(-end_s // step_s))


def is_whole(view: ZoneView, day: date) -> bool:
    """Whether every interval of a local day has its final word. What is whole never changes again."""
    intervals = intervals_of(view, day)
    return bool(intervals) and view.first <= intervals[0] and intervals[-1] <= view.decided


def recent_days(view: ZoneView) -> list[date]:
    """The local days that the view knows from their begin, or from the zone's own begin, ascending."""
    if not view.prices:
        return []
    oldest = min(view.prices)
    day, last = day_of(view, oldest), day_of(view, view.decided)
    days = [day + _DAY * n for n in range((last - day).days + 1)]
    return [day for day in days if (own := intervals_of(view, day)) and oldest <= max(own[0], view.first)]


def _begin_s(day: date, timezone: ZoneInfo) -> int:
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
