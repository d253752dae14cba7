"""The Irish trial of 2009 and 2010 (CER, ISSDA 0012-00): half hours of 6,445 meters, for those who signed its form.

    1392 19503 0.14        meter, day and half hour as DDDHH, kWh; no header. Day 1 is 1 January 2009, HH is 1 to 48.

Half hours count in local time, in the order in which they pass. The two autumn days of 25 hours have HH 1 to 50. The
spring day of 23 hours has HH 1 and 4 to 48: 46 half hours.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from murmurate.errors import ReadingError
from murmurate.time_zones import utc_offset_min
from research.data_sets.homes_data import HomesData
from research.data_sets.reading_grid import ReadingGrid, parse_kwh

_HALF_HOUR_S, _HALF_HOURS = 1800, 48
_TIME_ZONE = "Europe/Dublin"
_FIRST_DAY = datetime(2009, 1, 1, tzinfo=UTC)
_SPRING_GAP = (2, 3)  # half hours that a day of 23 hours lacks


def read_irish_trial(files: Sequence[Path], households: Collection[str] | None = None) -> HomesData:
    """Return the readings of all or some meters in text files. Raises ReadingError with the file and row."""
    grid = ReadingGrid(_HALF_HOUR_S)
    for file in files:
        with file.open(encoding="ascii", errors="replace") as lines:
            for number, line in enumerate(lines, start=1):
                place, row = f"{file}:{number}", line.split()
                if len(row) != 3:
                    raise ReadingError(place, f"{len(row)} columns wide", "must be a meter, a code DDDHH and kWh")
                if households is None or row[0] in households:
                    grid.add_reading(row[0], _start_of_code(row[1], place), parse_kwh(row[2], place), place)
    found = grid.to_readings(str(files[0]) if files else "files")
    return HomesData(
        name="Irish trial (CER)",
        licence="by signed form, not redistributable (ISSDA 0012-00)",
        measured=True,
        interval_s=_HALF_HOUR_S,
        time_zone=_TIME_ZONE,
        **found._asdict(),
    )


def _start_of_code(code: str, place: str) -> int:
    """Return the start of a half hour DDDHH [s of UTC]."""
    if len(code) != 5 or not code.isdecimal() or code.startswith("000"):
        raise ReadingError(place, "a wrong code", "must be DDDHH, such as 19503")
    midnight_s, half_hours = _local_day(int(code[:3]))
    number = int(code[3:])
    passed = number - 1
    if half_hours < _HALF_HOURS and number > max(_SPRING_GAP):
        passed -= len(_SPRING_GAP)
    if number < 1 or passed >= half_hours or (half_hours < _HALF_HOURS and number in _SPRING_GAP):
        raise ReadingError(place, f"half hour {number}", f"must be one of the {half_hours} of its day")
    return midnight_s + passed * _HALF_HOUR_S


@cache
def _local_day(day: int) -> tuple[int, int]:
    """Return the local midnight at which a day begins [s of UTC], and how many half hours the day has."""
    begin, end = (_local_midnight(_FIRST_DAY + timedelta(days=day - 1 + later)) for later in (0, 1))
    return begin, (end - begin) // _HALF_HOUR_S


def _local_midnight(date: datetime) -> int:
    naive_s = int(date.timestamp())
    return naive_s - 60 * utc_offset_min(_TIME_ZONE, naive_s - _HALF_HOUR_S)
