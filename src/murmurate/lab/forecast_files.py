"""Read what a forecast is made from: histories, weather, standard load profiles, lists of holidays."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import date, datetime
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np

from murmurate.errors import ModelError
from murmurate.files import open_text, read_text
from murmurate.prediction.calendar import DAY_TYPES, MONTHS, find_month
from murmurate.prediction.forecast import Weather
from murmurate.time_zones import utc_offset_min
from murmurate.units import SECONDS_PER_DAY, FloatArray, IntArray

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_H25_NAME, _H25_SLOTS = "h25.csv", 96
_H25_DAY_TYPES = {"WT": 0, "SA": 1, "FT": 2}  # workday, Saturday, Sunday and holiday
_H25_ANNUAL_KWH = 1e6
_SEASON_POLYNOMIAL = (-3.92e-10, 3.2e-7, -7.02e-5, 2.1e-3, 1.24)  # of the day of the year, BDEW


class History(NamedTuple):
    """Values of successive intervals."""

    first: int  # interval, counted from 1970 in UTC
    columns: dict[str, FloatArray]

    @property
    def weather(self) -> Weather:
        """The columns `temperature_c` [°C] and `irradiance` [W/m^2], as far as there are such."""
        return Weather(*(self.columns.get(name) for name in Weather._fields))


def read_history(path: Path, required: tuple[str, ...], slots_per_day: int) -> History:
    """Read a CSV with the column `start` (2025-01-31T17:45+01:00) and numbers; every interval once, in order."""
    interval_s = SECONDS_PER_DAY // slots_per_day
    with open_text(path) as file:
        reader = csv.DictReader(file)
        missing = [name for name in ("start", *required) if name not in (reader.fieldnames or ())]
        if missing:
            raise ModelError(
                str(path), f"without {', '.join(missing)}", f"must have the columns {', '.join(('start', *required))}"
            )
        names = [name for name in reader.fieldnames or () if name != "start"]
        starts: list[int] = []
        values: list[list[float]] = []
        for number, row in enumerate(reader, start=2):
            try:
                at = datetime.fromisoformat(row["start"])
                if at.tzinfo is None:
                    raise ModelError(f"{path} line {number}", row["start"], "must have an offset, as 17:45+01:00 or Z")
                starts.append(round(at.timestamp()))
                values.append([_read_number(row[name]) for name in names])
            except (ValueError, TypeError):
                allowed = "must be a time and numbers, for example 2025-01-31T17:45+01:00,312.5"
                raise ModelError(f"{path} line {number}", ",".join(map(str, row.values())), allowed) from None
    return History(_first_interval(path, starts, interval_s), dict(zip(names, np.array(values).T, strict=True)))


def _first_interval(path: Path, starts: list[int], interval_s: int) -> int:
    """The interval of the first row, if every row is the next interval."""
    if not starts:
        raise ModelError(str(path), "empty", "must have a row for each interval")
    for number, (at, expected) in enumerate(zip(starts, range(starts[0], 2**62, interval_s), strict=False), start=2):
        if at != expected or at % interval_s:
            found = f"{at - starts[number - 3]} s after the line before" if number > 2 else "not at an interval's start"
            raise ModelError(f"{path} line {number}", found, f"must have one row every {interval_s} s, without a gap")
    return starts[0] // interval_s


def _read_number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number


def read_weather(path: Path, slots_per_day: int, first: int, count: int) -> Weather:
    """Read the weather of `count` intervals from `first` on: a CSV with start, temperature_c, irradiance or both."""
    history = read_history(path, (), slots_per_day)
    if all(column is None for column in history.weather):
        allowed = "must have temperature_c [°C] or irradiance [W/m²] next to start"
        raise ModelError(str(path), f"with the columns {', '.join(history.columns) or 'start'}", allowed)
    begin = first - history.first
    if begin < 0 or begin + count > len(next(iter(history.columns.values()))):
        raise ModelError("weather", "of another time", "must cover every interval of the readings")
    return history.weather.select(slice(begin, begin + count))


def read_holidays(path: Path) -> tuple[int, ...]:
    """Read a file with one date a line (2025-12-25) as days counted from 1970-01-01."""
    days = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            if line.strip():
                days.append(date.fromisoformat(line.strip()).toordinal() - _EPOCH_DAY)
        except ValueError:
            raise ModelError(f"{path} line {number}", line, "must be a date, for example 2025-12-25") from None
    return tuple(sorted(set(days)))


def read_h25(source: Path | None, annual_kwh: float) -> FloatArray:
    """Return the German standard load profile H25 of a household with this use [Wh: month, day type, slot].

    `source` is the file `h25.csv` of the package demandlib, or its wheel; None: the installed package. The package is
    not imported. The file has a column for each month and type of day, in kWh for 1 GWh a year.
    """
    if not 1 <= annual_kwh <= 1e6:
        raise ModelError("h25", annual_kwh, "must be what one household uses in a year [kWh], for example 3500")
    rows = list(csv.reader(io.StringIO(_h25_text(source))))
    table = np.full((MONTHS, DAY_TYPES, _H25_SLOTS), np.nan)
    body = [row for row in rows if row and row[0][:2].isdigit()]
    try:
        for column, day_type in enumerate(rows[1][1:]):
            table[column // DAY_TYPES, _H25_DAY_TYPES[day_type]] = [float(row[1 + column]) for row in body]
    except (ValueError, KeyError, IndexError):
        table[:] = np.nan
    if not np.isfinite(table).all():
        raise ModelError("h25", "in another form", "must have 12 months, SA, FT and WT, and 96 quarter hours")
    month = find_month(np.arange(365))  # 1970: a year of 365 days
    of_day = np.polyval(_SEASON_POLYNOMIAL, np.arange(1, 366))  # by which BDEW multiplies each day of the year
    factor = np.bincount(month, weights=of_day) / np.bincount(month)
    return np.asarray(table * factor[:, None, None] * 1000 * annual_kwh / _H25_ANNUAL_KWH)


def _h25_text(source: Path | None) -> str:
    if source is None:
        spec = find_spec("demandlib")
        if spec is None or not spec.submodule_search_locations:
            raise ModelError("h25", "not found", "needs --profile h25.csv, or the package: pip install demandlib")
        found = next(Path(spec.submodule_search_locations[0]).rglob(_H25_NAME), None)
        if found is None:
            raise ModelError("h25", "not found", "is not in the installed demandlib; give --profile h25.csv")
        return read_text(found)
    if source.suffix == ".whl":
        with zipfile.ZipFile(source) as wheel:
            names = [name for name in wheel.namelist() if name.endswith(f"/{_H25_NAME}")]
            if len(names) != 1:
                raise ModelError(str(source), "without h25.csv", "must be a wheel of demandlib 0.2.2 or later")
            return wheel.read(names[0]).decode("utf-8-sig")
    return read_text(source)


def utc_offsets(time_zone: str, first: int, count: int, slots_per_day: int) -> IntArray:
    """Return local time minus UTC in each interval [min]."""
    interval_s = SECONDS_PER_DAY // slots_per_day
    return np.array([utc_offset_min(time_zone, at * interval_s) for at in range(first, first + count)], np.int64)
