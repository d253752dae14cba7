"""Local time: which offsets from UTC a time zone uses, and when its clocks change.

This is a look-up in the IANA time zone database, not a clock: nothing here asks what time it is now.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from murmurate.errors import ModelError

_FIRST_YEAR, _LAST_YEAR = 2024, 2060  # the years whose offsets a plan must bear
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClock:
    """How local time differs from UTC. The first offset is standard time, or what comes closest to it.

    >>> LocalClock(name="UTC").slot_shifts(96)
    (0,)
    """

    name: str
    offsets_min: tuple[int, ...] = (0,)  # local time minus UTC, ascending [min]
    changes: tuple[tuple[int, int, int], ...] = ()  # (minute of the UTC day, offset before, offset after) [min]

    def slot_shifts(self, intervals_per_day: int) -> tuple[int, ...]:
        """By how many intervals the local interval of the day is ahead of that of UTC, for each offset."""
        return tuple(_shift(offset, intervals_per_day) for offset in self.offsets_min)

    def slot_changes(self, intervals_per_day: int) -> tuple[tuple[int, int, int], ...]:
        """(first UTC interval of the day after a change, shift before, shift after), without those that do nothing."""
        found = {
            (
                -(-minute * intervals_per_day // 1440),
                _shift(before, intervals_per_day),
                _shift(after, intervals_per_day),
            )
            for minute, before, after in self.changes
        }
        return tuple(sorted(change for change in found if change[1] != change[2]))

    def local_slots(self, interval: int, intervals_per_day: int) -> frozenset[int]:
        """The local intervals of the day that a UTC interval of the day touches, under any of the offsets."""
        touched = set()
        for offset in self.offsets_min:
            first = interval + _shift(offset, intervals_per_day)
            touched |= {first % intervals_per_day}
            if offset * intervals_per_day % 1440:
                touched |= {(first + 1) % intervals_per_day}
        return frozenset(touched)


UTC_CLOCK = LocalClock(name="UTC")


def _shift(offset_min: int, intervals_per_day: int) -> int:
    return offset_min * intervals_per_day // 1440


@lru_cache(maxsize=64)
def local_clock(name: str) -> LocalClock:
    """Every offset and every kind of clock change that a time zone has from 2024 to 2060.

    >>> local_clock("Europe/Zurich")
    LocalClock(name='Europe/Zurich', offsets_min=(60, 120), changes=((60, 60, 120), (60, 120, 60)))
    """
    zone = _zone(name)
    day, end = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC), datetime(_LAST_YEAR, 1, 1, tzinfo=UTC)
    offsets, changes = {_offset(zone, day)}, set()
    while day < end:
        before, after = _offset(zone, day), _offset(zone, day + _DAY)
        if before != after:
            offsets.add(after)
            changes.add((_minute_of_change(zone, day), before, after))
        day += _DAY
    return LocalClock(name=name, offsets_min=tuple(sorted(offsets)), changes=tuple(sorted(changes)))


def offset_min(name: str, at_s: int) -> int:
    """Local time minus UTC [min] at a time [s of UTC since 1970], rounded down to a whole minute."""
    return _offset(_zone(name), datetime.fromtimestamp(at_s, UTC))


def _minute_of_change(zone: ZoneInfo, day: datetime) -> int:
    """The first minute of a UTC day at which the offset is that of the next midnight."""
    after = _offset(zone, day + _DAY)
    low, high = 0, 1440
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _offset(zone, day + middle * _MINUTE) == after else (middle, high)
    return high


def _offset(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _MINUTE


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ModelError("time_zone", repr(name), "must be a name such as Europe/Zurich") from None
