"""The neighbourhoods inside the wheel of CityLearn 2.2b0 (MIT), read as a ZIP file and never installed.

    pip download citylearn==2.2b0 --no-deps -d data

17 homes in Fontana, California, were measured. 247 homes in Alameda, Travis and Chittenden counties come from the
building model ResStock, with the number of people at home; their readings are lights and appliances, without heating,
cooling and hot water. Every day has 24 hours, hour 1 is the one after midnight, no clock change is marked: hours are
taken as standard time. If those of Fontana follow the wall clock, its summer is an hour off in UTC.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np

from murmurate.errors import ReadingError
from murmurate.units import FloatArray
from research.data_sets.homes_data import HomesData
from research.data_sets.reading_grid import round_kwh

DATA_SETS_FOLDER = "citylearn/data/datasets"
_READING, _PEOPLE, _OUTDOORS = "non_shiftable_load", "occupant_count", "outdoor_dry_bulb_temperature"
_CALENDAR = ("month", "hour")
_HOUR = timedelta(hours=1)
_MAX_MEMBER_BYTES = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """Where the wheel has the homes of a place."""

    title: str
    folder: str
    file_pattern: str
    utc_offset_h: int  # of standard time
    first_hour: datetime  # in standard time
    measured: bool = False


NEIGHBOURHOODS = (
    Neighbourhood(
        title="Fontana, California",
        folder="citylearn_challenge_2022_phase_all",
        file_pattern=r"Building_\d+\.csv",
        utc_offset_h=-8,
        first_hour=datetime(2016, 7, 31, 23, tzinfo=UTC),
        measured=True,
    ),
    *(
        Neighbourhood(
            title=title,
            folder=f"{folder}_county_neighborhood",
            file_pattern=r"resstock-.*\.csv",
            utc_offset_h=offset,
            first_hour=datetime(2018, 1, 1, tzinfo=UTC),
        )
        for title, folder, offset in (
            ("Alameda County, California", "ca_alameda", -8),
            ("Travis County, Texas", "tx_travis", -6),
            ("Chittenden County, Vermont", "vt_chittenden", -5),
        )
    ),
)


def read_citylearn(wheel: Path) -> tuple[HomesData, ...]:
    """Return the homes of each neighbourhood in the wheel. Raises ReadingError where a file is not as expected."""
    try:
        with ZipFile(wheel) as archive:
            return tuple(_read_neighbourhood(archive, place) for place in NEIGHBOURHOODS)
    except BadZipFile:
        allowed = "must be the wheel: pip download citylearn==2.2b0 --no-deps"
        raise ReadingError(str(wheel), "not a ZIP file", allowed) from None


def _read_neighbourhood(archive: ZipFile, place: Neighbourhood) -> HomesData:
    folder = f"{DATA_SETS_FOLDER}/{place.folder}/"
    names = [name for name in archive.namelist() if name.startswith(folder)]
    homes = sorted(name for name in names if re.fullmatch(place.file_pattern, name.removeprefix(folder)))
    if not homes:
        allowed = f"must have files such as {folder}{place.file_pattern}; is it CityLearn 2.2b0?"
        raise ReadingError(str(archive.filename), f"without the homes of {place.title}", allowed)
    columns = (*_CALENDAR, _READING) if place.measured else (*_CALENDAR, _READING, _PEOPLE)
    tables = [_read_columns(archive, name, columns) for name in homes]
    for name, table in zip(homes, tables, strict=True):
        _check_hours(name, table, place.first_hour, len(tables[0]))
    outdoors = _read_columns(archive, f"{folder}weather.csv", (_OUTDOORS,))[:, 0]
    values = np.stack(tables, axis=1)  # [interval, household, column]
    occupied = None if place.measured else values[:, :, 3] > 0
    energy_wh = round_kwh(values[:, :, 2])
    return HomesData(
        name=place.title,
        licence="MIT (CityLearn 2.2b0)",
        measured=place.measured,
        households=tuple(Path(name).stem for name in homes),
        start_s=int((place.first_hour - timedelta(hours=place.utc_offset_h)).timestamp()),
        interval_s=int(_HOUR.total_seconds()),
        time_zone=f"Etc/GMT+{-place.utc_offset_h}",
        energy_wh=energy_wh,
        missing=np.zeros(energy_wh.shape, np.bool_),
        occupied=occupied,
        occupancy_known=None if occupied is None else np.ones(occupied.shape, np.bool_),
        temperature_c=outdoors[: len(energy_wh)],
    )


def _read_columns(archive: ZipFile, name: str, columns: tuple[str, ...]) -> FloatArray:
    """Return columns of a CSV file as numbers of 0 or more, temperatures excepted [row, column]."""
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ReadingError(name, "missing", "must be in the wheel") from None
    if info.file_size > _MAX_MEMBER_BYTES:
        raise ReadingError(name, f"{info.file_size:,} bytes", f"must be at most {_MAX_MEMBER_BYTES:,}")
    text = archive.read(info).decode()
    header = text.partition("\n")[0].strip().split(",")
    lacking = [column for column in columns if column not in header]
    if lacking:
        raise ReadingError(name, f"without {', '.join(lacking)}", f"must have the columns {', '.join(columns)}")
    places = [header.index(column) for column in columns]
    try:
        values = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, usecols=places, ndmin=2, comments=None)
    except ValueError:
        values = np.array(list(_read_slowly(name, text, places, columns)))
    at_least = -np.inf if columns == (_OUTDOORS,) else 0.0
    wrong = ~np.isfinite(values) | (values < at_least)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ReadingError(f"{name}:{row + 2}", f"a wrong {columns[column]}", "must be a number of 0 or more")
    return values


def _read_slowly(name: str, text: str, places: list[int], columns: tuple[str, ...]) -> Iterator[list[float]]:
    """Read row by row, so that an error names the row."""
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if number > 1:
            try:
                yield [float(row[place]) for place in places]
            except (ValueError, IndexError):
                allowed = f"must have numbers: {', '.join(columns)}"
                raise ReadingError(f"{name}:{number}", "not readable", allowed) from None


def _check_hours(name: str, table: FloatArray, first_hour: datetime, rows: int) -> None:
    """Raise ReadingError where a row is not the hour after the row before: a missing or doubled hour."""
    if len(table) != rows:
        raise ReadingError(name, f"{len(table):,} rows long", f"must have {rows:,}, as the first home")
    hours = [first_hour + number * _HOUR for number in range(rows)]
    expected = np.array([(hour.month, hour.hour + 1) for hour in hours])
    wrong = (table[:, :2] != expected).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        month, hour = expected[row]
        raise ReadingError(f"{name}:{row + 2}", "another hour", f"must be month {month}, hour {hour}")
