"""Low Carbon London (CC BY 4.0): half hours of 5,567 homes, 2011 to 2014, as it is published and as Kaggle has it.

    LCLid,stdorToU,DateTime,KWH/hh (per half hour)     a row a reading; other columns may follow
    LCLid,tstp,energy(kWh/hh)                          a row a reading, by Kaggle
    LCLid,day,hh_0,...,hh_47                           a row a day, by Kaggle

Times are GMT all year, so no hour is doubled or missing when clocks change. A time is taken as the start of its half
hour: the data set does not say. `Null` and empty readings are missing. Rows off the half hour must be `Null`.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from murmurate.errors import ReadingError
from research.data_sets.homes_data import HomesData
from research.data_sets.reading_grid import ReadingGrid, parse_kwh

_HALF_HOUR_S = 1800
_TIME_AND_READING = {"DateTime": "KWH/hh (per half hour)", "tstp": "energy(kWh/hh)"}
_WIDE = tuple(f"hh_{number}" for number in range(48))
_MISSING = {"", "null"}


def read_low_carbon_london(files: Sequence[Path], households: Collection[str] | None = None) -> HomesData:
    """Return the readings of all or some households in CSV files. Raises ReadingError with the file and row."""
    grid = ReadingGrid(_HALF_HOUR_S)
    for file in files:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            _add_rows(grid, file, csv.reader(lines), households)
    found = grid.to_readings(str(files[0]) if files else "files")
    return HomesData(
        name="Low Carbon London",
        licence="CC BY 4.0 (UK Power Networks)",
        measured=True,
        interval_s=_HALF_HOUR_S,
        time_zone="Europe/London",
        **found._asdict(),
    )


def _add_rows(grid: ReadingGrid, file: Path, rows: Iterator[list[str]], households: Collection[str] | None) -> None:
    header = [name.strip() for name in next(rows, [])]
    time = next((name for name in _TIME_AND_READING if name in header), "")
    is_wide = {"LCLid", "day", *_WIDE} <= set(header)
    if not is_wide and not {"LCLid", time, _TIME_AND_READING.get(time, "")} <= set(header):
        allowed = "must have LCLid with DateTime and KWH/hh (per half hour), tstp and energy(kWh/hh), or day and hh_0.."
        raise ReadingError(str(file), f"with columns {', '.join(header)}", allowed)
    at = {name: place for place, name in enumerate(header)}
    for number, row in enumerate(rows, start=2):
        place = f"{file}:{number}"
        if len(row) != len(header):
            raise ReadingError(place, f"{len(row)} columns wide", f"must have {len(header)}")
        household = row[at["LCLid"]].strip()
        if households is not None and household not in households:
            continue
        if is_wide:
            day_s = _parse_time(row[at["day"]], place)
            for slot, name in enumerate(_WIDE):
                _add_reading(grid, household, day_s + slot * _HALF_HOUR_S, row[at[name]], place)
        else:
            _add_reading(grid, household, _parse_time(row[at[time]], place), row[at[_TIME_AND_READING[time]]], place)


def _add_reading(grid: ReadingGrid, household: str, start_s: int, kwh: str, place: str) -> None:
    is_missing = kwh.strip().lower() in _MISSING
    if start_s % _HALF_HOUR_S and not is_missing:
        raise ReadingError(place, "a reading off the half hour", "must be on the half hour, or Null")
    grid.add_reading(household, start_s, None if is_missing else parse_kwh(kwh, place), place)


def _parse_time(text: str, place: str) -> int:
    """Return a time such as `2012-10-12 00:30:00.0000000` or a day [s of UTC]."""
    moment, _, fraction = text.strip().partition(".")
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        raise ReadingError(place, "a wrong time", "must be such as 2012-10-12 00:30:00.0000000") from None
    if found.tzinfo is not None or fraction.strip("0"):
        raise ReadingError(place, "a wrong time", "must be whole seconds of GMT without an offset")
    return int(found.replace(tzinfo=UTC).timestamp())
