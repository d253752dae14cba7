"""Local time: the UTC offsets of a time zone and its clock changes.

The code looks them up in the IANA time zone database and never reads the current time. The database is the package
tzdata, not that of the system, so the same lock file gives the same plan on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from importlib.resources import files
from zoneinfo import ZoneInfo

from murmurate.errors import ModelError

_FIRST_YEAR, _LAST_YEAR = 2024, 2060  # a plan covers the offsets of these years
_ONE_DAY = timedelta(days=1)
_ONE_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClock:
    """The difference between local time and UTC. The first offset is standard time, or the smallest offset.

    >>> LocalClock(name="UTC").slot_shifts(96)
    (0,)
    """

    name: str
    offsets_min: tuple[int, ...] = (0,)  # local time minus UTC, ascending [min]
    changes: tuple[tuple[int, int, int], ...] = ()  # (minute of the UTC day, offset before, offset after) [min]

    def slot_shifts(self, intervals_per_day: int) -> tuple[int, ...]:
        """Return, for each offset, how far the local interval of the day is ahead of UTC [intervals]."""
        return tuple(_intervals_ahead(offset, intervals_per_day) for offset in self.offsets_min)

    def slot_changes(self, intervals_per_day: int) -> tuple[tuple[int, int, int], ...]:
        """Return (first UTC interval of the day after a change, shift before, shift after) of each effective change."""
        shifts = {
            (
                -(-minute * intervals_per_day // 1440),
                _intervals_ahead(before, intervals_per_day),
                _intervals_ahead(after, intervals_per_day),
            )
            for minute, before, after in self.changes
        }
        return tuple(sorted(change for change in shifts if change[1] != change[2]))

    def local_slots(self, interval: int, intervals_per_day: int) -> frozenset[int]:
        """Return the local intervals of the day that overlap a UTC interval of the day, at any offset."""
        slots = set()
        for offset in self.offsets_min:
            first = interval + _intervals_ahead(offset, intervals_per_day)
            slots |= {first % intervals_per_day}
            if offset * intervals_per_day % 1440:
                slots |= {(first + 1) % intervals_per_day}
        return frozenset(slots)

    def holds_at_all_offsets(self, local: Sequence[bool]) -> tuple[bool, ...]:
        """Return, for each interval of the UTC day, whether `local` [interval] is true there at every offset."""
        return tuple(all(local[slot] for slot in self.local_slots(t, len(local))) for t in range(len(local)))


UTC_CLOCK = LocalClock(name="UTC")


def parse_slot(field: str, text: str, intervals_per_day: int) -> int:
    """Return the interval of the local day that begins at "HH:MM". Raises ModelError if none does.

    >>> parse_slot("periods", "07:00", 96)
    28
    """
    match = re.fullmatch(r"(\d\d):(\d\d)", text)
    minutes = int(match[1]) * 60 + int(match[2]) if match else -1
    if not 0 <= minutes <= 1440 or minutes * intervals_per_day % 1440:
        raise ModelError(field, repr(text), 'must be the start of an interval, such as "07:00"')
    return minutes * intervals_per_day // 1440


def _intervals_ahead(offset_min: int, intervals_per_day: int) -> int:
    return offset_min * intervals_per_day // 1440


@lru_cache(maxsize=64)
def local_clock(name: str) -> LocalClock:
    """Return every offset and every kind of clock change of a time zone from 2024 to 2060.

    >>> local_clock("Europe/Zurich")
    LocalClock(name='Europe/Zurich', offsets_min=(60, 120), changes=((60, 60, 120), (60, 120, 60)))
    """
    zone = load_time_zone(name)
    day, end = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC), datetime(_LAST_YEAR, 1, 1, tzinfo=UTC)
    offsets, changes = {_utc_offset(zone, day)}, set()
    while day < end:
        before, after = _utc_offset(zone, day), _utc_offset(zone, day + _ONE_DAY)
        if before != after:
            offsets.add(after)
            low, high = 0, 1440  # the first minute of the day with the offset of the next midnight
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if _utc_offset(zone, day + middle * _ONE_MINUTE) == after else (middle, high)
            changes.add((high, before, after))
        day += _ONE_DAY
    return LocalClock(name=name, offsets_min=tuple(sorted(offsets)), changes=tuple(sorted(changes)))


def utc_offset_min(name: str, at_s: int) -> int:
    """Return local time minus UTC [min] at a time [s of UTC since 1970], rounded down to a whole minute."""
    return _utc_offset(load_time_zone(name), datetime.fromtimestamp(at_s, UTC))


def _utc_offset(zone: ZoneInfo, at: datetime) -> int:
    offset = at.astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _ONE_MINUTE


@lru_cache(maxsize=64)
def load_time_zone(name: str) -> ZoneInfo:
    """Read a time zone from the package tzdata.

    >>> load_time_zone("Europe/Zurich").key
    'Europe/Zurich'
    """
    if name not in _time_zone_names():
        raise ModelError("time_zone", repr(name), "must be a name such as Europe/Zurich")
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


@cache
def _time_zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())
