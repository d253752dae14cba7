"""Moments and prices as a resident reads them: by the clock on the wall, to the last digit of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction

from murmurate.service.log_reader.zone_view import ZoneView, format_rfc3339


def format_price(ticks: int, tick: Fraction) -> str:
    """A price [currency/kWh], exactly; as a fraction where no decimal is exact.

    >>> ticks = {8120: Fraction(1, 100_000), -3: Fraction(1, 4), 5: Fraction(1, 7), 12: Fraction(1)}
    >>> tuple(format_price(*each) for each in ticks.items())
    ('0.08120', '-0.75', '5/7', '12')
    """
    digits = next((n for n in range(19) if (10**n * tick).denominator == 1), None)
    if digits is None:
        return str(ticks * tick)
    whole, rest = divmod(abs(int(ticks * tick * 10**digits)), 10**digits)
    sign = "-" if ticks * tick < 0 else ""
    return f"{sign}{whole}" + (f".{rest:0{digits}d}" if digits else "")


def local_datetime(view: ZoneView, at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s), UTC).astimezone(view.display.timezone)


def clock_label_formatter(view: ZoneView, intervals: range) -> Callable[[int], str]:
    """Names the begin of an interval; with its distance from UTC on days on which the clock changes.

    Without it two hours of such a day would bear the same names.
    """
    offsets = {local_datetime(view, view.start_s(n)).utcoffset() for n in intervals}
    layout = "%H:%M" if len(offsets) < 2 else "%H:%M (UTC%:z)"

    def name(interval: int) -> str:
        at = local_datetime(view, view.start_s(interval))
        offset = at.strftime("%z")
        return at.strftime(layout.replace("%:z", f"{offset[:3]}:{offset[3:5]}"))

    return name


@dataclass(frozen=True, slots=True)
class TimeLabel:
    """A moment for people and for machines."""

    at_s: float
    local: str  # as a clock in the zone shows it

    @property
    def utc(self) -> str:
        return format_rfc3339(self.at_s)


def format_day(day: date) -> str:
    """
    >>> format_day(date(2026, 11, 14))
    'Saturday, 14 November 2026'
    """
    return f"{day:%A}, {day.day} {day:%B %Y}"
